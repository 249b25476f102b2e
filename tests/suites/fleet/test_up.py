"""`make fleet`: runs its printed requests and commands, and ends it with Ctrl-C."""

import os
import pathlib
import re
import signal
import sys

import pytest

from suites.testkit import pages
from suites.testkit.ports import HOST, accepts, free_ports
from suites.testkit.process import Process
from suites.testkit.programs import ROOT
from suites.testkit.waiting import wait_until


@pytest.fixture
def ports():
    return free_ports(8)


@pytest.fixture
def up(ports, tmp_path):
    listen = {
        "DEVICES": "20000",
        "FLEET_LISTEN": f"{HOST}:{ports[7]}",
        "FLEET_INTERNAL": f"{HOST}:{ports[0]}",
        "PYTHONPATH": str(ROOT / "tests"),
    }
    for number in (1, 2, 3):
        listen[f"POD_{number}"] = f"{HOST}:{ports[2 * number - 1]}"
        listen[f"POD_{number}_ADMIN"] = str(ports[2 * number])
    # Its own process group, for the SIGINT of Ctrl-C.
    command = [sys.executable, "-m", "suites.fleet.up"]
    script = Process(
        *command, log=tmp_path / "log", env=os.environ | listen, start_new_session=True
    )
    try:
        yield script
    finally:
        if script.process.poll() is None:
            os.killpg(script.pid, signal.SIGKILL)
        script.wait()


def paste(line):
    return pages.run(f"{line} --silent --show-error --fail")


def test_printed_commands_give_the_printed_answers(up, ports):
    up.wait_for("Stop with Ctrl-C")
    printed = up.text().splitlines()
    questions = [line.split(" # ") for line in printed if line.startswith("curl") and " # " in line]
    assert len(questions) == 3, printed

    def all_are_answered():
        for line, expected in questions:
            assert paste(line) == expected, line

    all_are_answered()
    kills = [line for line in printed if line.startswith("kill")]
    assert len(kills) == 2, printed
    for line in kills:
        pid = pathlib.Path(re.search(r"cat (\S+)\)", line)[1])
        before = pid.read_text()
        pages.run(line)
        all_are_answered()
        another = f"another pod after {line.split()[1]}"
        wait_until(another, lambda pid=pid, before=before: pid.read_text() not in ("", before))
        all_are_answered()
    append = next(line for line in printed if line.startswith("echo"))
    pages.run(append)
    line, expected = questions[1]
    wait_until("the new device is a member", lambda: paste(line) != expected)

    os.killpg(up.pid, signal.SIGINT)
    assert up.wait() == 0, up.text()
    assert not any(accepts(port) for port in ports), "a port is still open after Ctrl-C"


def test_page_contains_the_haproxy_config():
    docs = ROOT / "docs"
    page = (docs / "guides/operate.md").read_text()
    shown = re.search(r"^```\n(backend pods\n.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert shown and shown[1] in (docs / "haproxy.cfg").read_text()
