"""`make fleet`, as a newcomer meets it: the requests that it prints are pasted, pods are ended by its own commands, and Ctrl-C ends it."""

import contextlib
import os
import pathlib
import re
import shlex
import signal
import socket
import subprocess
import sys
import urllib.request

from pods import HOST, free_ports
from waiting import PATIENCE_SECONDS, Failed, check, until

SCRIPT = pathlib.Path(__file__).with_name("up.sh")


def paste(line: str) -> str:
    """What a line of curl prints, without curl, which Debian's smallest images have not."""
    url, *more = [word for word in shlex.split(line) if word != "curl"]
    data = more[1].encode() if more[:1] == ["-d"] else None
    with urllib.request.urlopen(url, data, timeout=PATIENCE_SECONDS) as answer:
        return answer.read().decode()


def documented() -> None:
    """What the docs show of the balancer's config stands in it."""
    docs = pathlib.Path(__file__).parents[2] / "docs"
    shown = re.search(r"^```\n(backend pods\n.*?)^```$", (docs / "operations.md").read_text(), re.DOTALL | re.MULTILINE)
    check(shown and shown[1] in (docs / "haproxy.cfg").read_text(), "docs/operations.md shows another config than docs/haproxy.cfg")


def is_open(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=5):
        return True
    return False


def try_out(printed: list[str]) -> None:
    questions = [line.split(" # ") for line in printed if line.startswith("curl") and " # " in line]
    check(len(questions) == 3, f"three questions are printed: {questions}")

    def all_are_answered() -> None:
        for line, expected in questions:
            check(paste(line) == expected, f"{line} was answered {paste(line)}")

    all_are_answered()
    for line in [line for line in printed if line.startswith("kill")]:
        pid = pathlib.Path(re.search(r"cat (\S+)\)", line)[1])
        before = pid.read_text()
        subprocess.run(["bash", "-c", line], check=True)
        all_are_answered()
        until(f"another pod after {line.split()[1]}", lambda pid=pid, before=before: pid.read_text() not in ("", before))
        all_are_answered()
    append = next(line for line in printed if line.startswith("echo"))
    subprocess.run(["bash", "-c", append], check=True, stdout=subprocess.DEVNULL)
    line, expected = questions[1]
    until("the stranger is a member", lambda: paste(line) != expected)


def main() -> None:
    ports = free_ports(7)
    environment = os.environ | {"DEVICES": "20000", "FLEET_LISTEN": f"{HOST}:{ports[0]}"}
    for number in (1, 2, 3):
        environment |= {f"POD_{number}": f"{HOST}:{ports[2 * number - 1]}", f"POD_{number}_ADMIN": str(ports[2 * number])}
    command = ["bash", str(SCRIPT), *sys.argv[1:]]
    # A group of its own, which gets what a terminal sends at Ctrl-C.
    script = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        printed = []
        for line in script.stdout:
            printed.append(line.strip())
            if "Ctrl-C" in line:
                break
        check(printed and "Ctrl-C" in printed[-1], f"it did not start: {printed}")
        try_out(printed)
        documented()
        os.killpg(script.pid, signal.SIGINT)
        check(script.wait(PATIENCE_SECONDS) == 0, f"after Ctrl-C it ended with {script.returncode}")
        check(not any(is_open(port) for port in ports), "something still listens after Ctrl-C")
    except Failed as failed:
        sys.exit(f"newcomer: FAILED: {failed}")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(script.pid, signal.SIGKILL)
    print("newcomer: every command was run")


if __name__ == "__main__":
    main()
