"""The drills of docs/runbook.md, as they stand there but for the ports, against real programs.

A command with a comment must say what the comment says, within some seconds if need be: pods take their time. What has none is run.
"""

import re
import subprocess
import unittest

import fleet
import sources

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


def blocks():
    part = sources.RUNBOOK.read_text().split("\n## Drills\n")[1]
    part = re.split(r"^## ", part, maxsplit=1, flags=re.MULTILINE)[0]
    return re.findall(r"^```sh\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


class Drills(unittest.TestCase):
    def test_each_goes_as_it_stands_there(self):
        folder = fleet.WORK / "drills"
        (folder / "bin").mkdir(parents=True)
        (folder / "bin/rtad").symlink_to(fleet.RTAD)
        (folder / "bin/rtad-loader").symlink_to(fleet.LOADER)
        port, admin = fleet.free_port(), fleet.free_port()
        script, expected = [EXPECT], 0
        for line in "".join(blocks()).splitlines():
            line = line.replace("127.0.0.1:8080", f"127.0.0.1:{port}").replace("127.0.0.1:9090", f"127.0.0.1:{admin}")
            command, comment, answer = line.partition("  # ")
            if comment:
                expected += 1
                line = f"expect {quoted(answer.strip())} {quoted(command.strip())}"
            script.append(line)
        self.assertGreater(expected, 15)
        environment = {
            "PATH": f"{folder}/bin:/usr/local/bin:/usr/bin:/bin",
            "RTAD_LISTEN": f"127.0.0.1:{port}",
            "RTAD_ADMIN_LISTEN": f"127.0.0.1:{admin}",
            "RTAD_LOG": "warn",
        }
        path = folder / "drills.sh"
        path.write_text("\n".join(script))
        log = folder / "log"
        with log.open("w") as file:
            done = subprocess.run(["bash", path], cwd=folder, env=environment, stdout=file, stderr=file, timeout=4 * fleet.PATIENCE)
        said = log.read_text()
        self.assertEqual(done.returncode, 0, said)
        self.assertEqual(len(re.findall("^ran ", said, re.MULTILINE)), expected, said)
        self.assertNotIn("panic", said)


if __name__ == "__main__":
    unittest.main()
