"""The commands of docs/reference/platforms.md, but for the address, the path and protoc's own."""

import re
import sys

import pytest

from suites.testkit import pages


@pytest.fixture
def commands(served):
    path = "/rta/tencent-example"
    protoc = f"'{sys.executable}' -m grpc_tools.protoc"

    def with_address(block):
        block = block.replace("POD:8080/rta/tencent", served.decisions + path)
        return re.sub(r"\bprotoc\b", protoc, block)

    heading = re.search(r"^## Integrating.*$", (pages.ROOT / "docs/reference/platforms.md").read_text(), re.M)
    return [with_address(block) for block in pages.blocks("docs/reference/platforms.md", heading[0])]


def test_the_ping_is_answered_as_the_page_says(commands):
    command, _, answer = commands[0].rpartition("#")
    assert pages.run(command, cwd=pages.ROOT).split() == answer.split()


def test_the_request_by_hand_is_answered(commands):
    assert re.search("^code: [01]$", pages.run(commands[1], cwd=pages.ROOT), re.M)
