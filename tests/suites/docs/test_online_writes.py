"""The commands of docs/guides/online-writes.md on free ports. An rtad that polls the same store
answers the checks."""

import shlex
import subprocess

from suites.testkit.pages import blocks, with_programs
from suites.testkit.ports import HOST, free_ports
from suites.testkit.process import Process, Rtad
from suites.testkit.waiting import wait_until

CONFIG = """
[store]
poll_interval = "100ms"
[[audience]]
name = "old_users"
required = false
[[strategy]]
name = "new-users"
exclude = ["old_users"]
"""


def test_every_command_is_answered_as_the_page_says(tmp_path):
    started, *rest = blocks("docs/guides/online-writes.md")[:3]
    make_token, serve = started.splitlines()
    define, *commands = "".join(rest).splitlines()
    assert len(commands) >= 14
    assert not [command for command in commands if not command.startswith("curl ")]
    environment = with_programs(tmp_path, "rtad-writer")
    (tmp_path / "store").mkdir()
    (tmp_path / "rtad.toml").write_text(CONFIG)
    subprocess.run(["bash", "-c", make_token], cwd=tmp_path, check=True)

    port, admin = free_ports(2)
    listen = {
        "RTAD_WRITER_LISTEN": f"{HOST}:{port}",
        "RTAD_WRITER_ADMIN_LISTEN": f"{HOST}:{admin}",
    }
    store = {"RTAD_STORE": str(tmp_path / "store")}
    command = ["bash", "-c", f"exec {serve}"]
    writer = Process(*command, log=tmp_path / "writer.log", env=environment | listen, cwd=tmp_path)
    try:
        writer.wait_for("listening for writes")
        flags = ["--config", tmp_path / "rtad.toml"]
        with Rtad(*flags, log=tmp_path / "rtad.log", variables=store) as rtad:
            for command in commands:
                run(command, define, port, rtad.decisions, tmp_path)
        assert writer.end() == 0
        writer.check_log()
    finally:
        writer.kill()


def run(command, define, port, decisions, folder):
    """The page's comment is the answer, or a part of it; a pod may take some polls to give it."""
    line, _, expected = command.partition("  # ")
    asks_a_pod = ":8080/" in line
    line = line.replace("127.0.0.1:8070", f"{HOST}:{port}").replace("127.0.0.1:8080", decisions)

    def answered():
        done = subprocess.run(
            ["bash", "-c", f"{define}\n{line}"], cwd=folder, capture_output=True, text=True
        )
        right = done.returncode == 0 and done.stdout and expected in done.stdout
        assert right or asks_a_pod, f"{command} was answered {shlex.quote(done.stdout)}"
        return right

    wait_until(command, answered)
