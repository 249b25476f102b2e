"""The drills of docs/guides/runbook.md, as they stand there but for the ports, against real programs.

A command with a comment must say what the comment says, within some seconds if need be: pods take
their time. What has none is run.
"""

import contextlib
import os
import re
import signal

from suites.testkit.pages import blocks, with_programs
from suites.testkit.ports import HOST, free_ports
from suites.testkit.process import Process
from suites.testkit.waiting import WAIT_SECONDS

EXPECT = """
set -euo pipefail
trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT
expect() {
    local said _
    for _ in $(seq 300); do
        said=$(eval "$2" 2>&1) || true
        case $said in *"$1"*) echo "ran $2"; return ;; esac
        sleep 0.1
    done
    echo "$2 said: $said, not $1" >&2
    exit 1
}
"""


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def test_each_drill_goes_as_it_stands_there(tmp_path):
    environment = with_programs(tmp_path, "rtad", "rtad-loader")
    port, admin = free_ports(2)
    listen, admin_listen = f"{HOST}:{port}", f"{HOST}:{admin}"
    script, expected = [EXPECT], 0
    for line in "".join(blocks("docs/guides/runbook.md", "## Drills")).splitlines():
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
    # A group of its own, so that what the drills start ends with them.
    log = tmp_path / "log"
    drills = Process("bash", path, log=log, cwd=tmp_path, env=environment, start_new_session=True)
    try:
        code = drills.wait(4 * WAIT_SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(drills.pid, signal.SIGKILL)
    said = drills.text()
    assert code == 0, said
    assert len(re.findall("^ran ", said, re.MULTILINE)) == expected, said
    assert "panic" not in said
