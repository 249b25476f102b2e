"""Drills of the runbook, docs/examples/drills.sh, executed with real programs on other ports.

The output of a command with a comment must contain the comment within five minutes. Other commands
are only run.
"""

import contextlib
import os
import re
import signal

from suites.testkit.pages import ROOT, with_programs
from suites.testkit.ports import HOST, free_ports
from suites.testkit.process import Process
from suites.testkit.waiting import WAIT_SECONDS

EXPECT = """
set -euo pipefail
trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT
expect() {
    local output _
    for _ in $(seq 3000); do
        output=$(eval "$2" 2>&1) || true
        case $output in *"$1"*) echo "ran $2"; return ;; esac
        sleep 0.1
    done
    echo "$2: expected $1, found $output" >&2
    exit 1
}
"""


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def test_drills_give_the_documented_output(tmp_path):
    environment = with_programs(tmp_path, "rtad", "rtad-loader")
    port, admin = free_ports(2)
    listen, admin_listen = f"{HOST}:{port}", f"{HOST}:{admin}"
    script, expected = [EXPECT], 0
    for line in (ROOT / "docs/examples/drills.sh").read_text().splitlines():
        line = line.replace("127.0.0.1:8080", listen).replace("127.0.0.1:9090", admin_listen)
        command, comment, answer = line.partition("  # ")
        if comment:
            expected += 1
            line = f"expect {quoted(answer.strip())} {quoted(command.strip())}"
        script.append(line)
    assert expected > 15
    environment = {
        "PATH": environment["PATH"],
        "RTAD_LISTEN": listen,
        "RTAD_ADMIN_LISTEN": admin_listen,
        "RTAD_LOG": "warn",
    }
    path = tmp_path / "drills.sh"
    path.write_text("\n".join(script))
    # Its own process group, so that all processes of the drills end.
    log = tmp_path / "log"
    drills = Process("bash", path, log=log, cwd=tmp_path, env=environment, start_new_session=True)
    try:
        code = drills.wait(4 * WAIT_SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(drills.pid, signal.SIGKILL)
    output = drills.text()
    assert code == 0, output
    assert len(re.findall("^ran ", output, re.MULTILINE)) == expected, output
    assert "panic" not in output
