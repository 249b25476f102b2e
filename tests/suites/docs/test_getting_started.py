"""The commands of docs/getting-started.md, on free ports."""

import os
import re

import pexpect
import pytest

from suites.testkit import pages
from suites.testkit.client import says_yes
from suites.testkit.pages import blocks
from suites.testkit.ports import HOST, free_ports
from suites.testkit.process import Process
from suites.testkit.programs import FOLDER

TUTORIAL = "docs/getting-started.md"
OWN = blocks(TUTORIAL, "## 2. Publish your own list")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A working folder in which the built programs stand for a release build."""
    work = tmp_path_factory.mktemp("readme")
    (work / "target").mkdir()
    (work / "target/release").symlink_to(FOLDER)
    pages.run(OWN[0], cwd=work)
    return work


@pytest.fixture(scope="module")
def built(folder):
    pages.run(OWN[1].splitlines()[1], cwd=folder)
    return folder


def test_requests_get_the_documented_answers(built):
    port, admin = free_ports(2)
    listen = {"RTAD_LISTEN": f"{HOST}:{port}", "RTAD_ADMIN_LISTEN": f"{HOST}:{admin}"}
    command = f"exec {OWN[1].splitlines()[2]}"
    [block] = blocks(TUTORIAL, "## 3. Send requests")
    requests = block.splitlines()
    assert len(requests) >= 3
    environment = os.environ | listen
    server = Process("bash", "-c", command, log=built / "log", env=environment, cwd=built)
    try:
        server.until("ready", lambda: says_yes(f"{HOST}:{admin}", "/readyz"))
        for request in requests:
            request, _, expected = request.rpartition("# ")
            request = request.replace(":8080", f":{port}").replace(":9090", f":{admin}")
            assert pages.run(request).strip() == expected, request
        assert server.end() == 0
        server.check_log()
    finally:
        server.kill()


def test_captured_request_is_explained(built):
    config, asked = blocks(TUTORIAL, "## 4. Answer a platform")
    pages.run(config, cwd=built)
    commands = asked.splitlines()
    assert len(commands) == 2
    pages.run(commands[0], cwd=built)
    said = pages.run(commands[1], cwd=built)
    assert any(line.startswith("No bid for T1001, because") for line in said.splitlines()), said


def test_init_asks_on_a_terminal(tmp_path):
    init = pexpect.spawn(str(FOLDER / "rtad"), ["init"], cwd=tmp_path, encoding="utf-8")
    init.expect("snapshots")
    init.sendline()
    init.expect("ocean")
    # The second kind of platform.
    init.send("\x1b[B \r")
    init.expect("rtad serve --config rtad.toml")
    init.expect(pexpect.EOF)
    init.close()
    assert init.exitstatus == 0
    config = (tmp_path / "rtad.toml").read_text()
    assert re.findall(r"^(?:url|kind) = .*", config, re.M) == ['url = "./store"', 'kind = "ocean"']


def test_commands_of_the_readme_are_those_of_the_makefile():
    """tests/service/cli/demo.rs runs the demo, and this is `make test`."""
    [commands] = blocks("README.md", "## Two commands")
    assert re.findall(r"^make (\w+) +#", commands, re.M) == ["demo", "test"]
    planned = pages.run("make --dry-run demo test", cwd=pages.ROOT)
    assert "./target/demo/rtad demo\n" in planned and "python3 tests/run.py\n" in planned
