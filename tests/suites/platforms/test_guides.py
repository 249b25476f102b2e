"""The commands of the guides to platforms, with the address of a running rtad for `POD:8080`."""

import json
import re
import sys

import pytest

from suites.testkit import pages
from suites.testkit.process import Rtad
from suites.testkit.programs import loader

PROTOC = f"'{sys.executable}' -m grpc_tools.protoc"


def shell(page, address, path):
    """The sh blocks of a guide, asking at `address` + `path`."""
    blocks = pages.blocks(f"docs/guides/{page}.md")
    asked = [re.sub(r"POD:8080/rta/\w+", address + path, block) for block in blocks]
    return [re.sub(r"\bprotoc\b", PROTOC, block) for block in asked]


@pytest.fixture
def tencent(served):
    return shell("integrate-tencent", served.decisions, "/rta/tencent")


def test_tencent_ping_returns_the_documented_bytes(tencent):
    command, _, answer = tencent[0].rpartition("#")
    assert pages.run(command, cwd=pages.ROOT).split() == answer.split()


def test_tencent_request_is_answered(tencent):
    assert re.search("^code: [01]$", pages.run(tencent[1], cwd=pages.ROOT), re.M)


def test_ocean_request_is_answered(served):
    [request] = shell("integrate-ocean-engine", served.decisions, "/rta/ocean")
    answer = pages.run(request, cwd=pages.ROOT)
    assert 'req_id: "r1"' in answer and "rta_id: 10003" in answer, answer


def test_mapped_platform_returns_the_documented_answer(tmp_path):
    page = (pages.ROOT / "docs/guides/map-a-platform.md").read_text()
    mapping, signature = re.findall(r"^```toml\n(.*?)^```$", page, re.M | re.S)
    (tmp_path / "ids.txt").write_text("8d3ebd3654fb46a2832296669cf1b536\n")
    store = ["--store", tmp_path / "store", "--audience", "old_users"]
    loader("build", *store, "--quiet", tmp_path / "ids.txt")
    (tmp_path / "example.secret").write_text("secret\n")
    config = tmp_path / "rtad.toml"
    for index, text in enumerate([mapping, mapping + signature]):
        config.write_text(text)
        log = tmp_path / f"log-{index}"
        with Rtad("--config", config, "--store", store[1], log=log) as rtad:
            rtad.wait_for("decision port listens")
            _, request, _ = shell("map-a-platform", rtad.decisions, "/rta/example")
            command, _, answer = request.rpartition("# ")
            assert json.loads(pages.run(command)) == json.loads(answer)
