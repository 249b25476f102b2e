"""Processes under test: output in a log file, addresses read from it, stopped after the test."""

import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

from . import programs
from .client import ask, says_yes
from .ports import HOST, free_ports
from .waiting import WAIT_SECONDS, wait_until

ANY_PORTS = {"RTAD_LISTEN": "127.0.0.1:0", "RTAD_ADMIN_LISTEN": "127.0.0.1:0"}


def make_old(path):
    """Makes a file look as if it was last changed ten seconds ago: a start reads a young one twice."""
    changed = time.time() - 10
    os.utime(path, (changed, changed))


class Process:
    """A running program. As a context manager it is stopped at the end. Fails if the program has
    ended early or panicked."""

    def __init__(self, *command, log, **options):
        self.command, self.options = [str(word) for word in command], options
        self.log, self.name = Path(log), Path(self.command[0]).name
        self.start()

    def start(self):
        """Starts it, also again after its end."""
        with self.log.open("ab") as to:
            streams = {"stdout": to, "stderr": to}
            self.process = subprocess.Popen(self.command, **streams | self.options)
        self.pid = self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, error, *_):
        died = self.process.poll()
        self.stop()
        if error is None:
            assert died is None, f"{self.name} exited early with {died}: {self.last_warnings()}"
            self.check_log()

    def check_log(self):
        assert "panic" not in self.text().lower(), self.last_warnings()

    def text(self):
        return self.log.read_text()

    def last_warnings(self):
        """The last log lines above level info."""
        lines = [line for line in self.text().splitlines() if '"level":"INFO"' not in line]
        return "\n".join(lines[-40:])

    def events(self):
        """The complete JSON lines of its log."""
        lines = self.text().rpartition("\n")[0].splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def until(self, what, probe, seconds=WAIT_SECONDS):
        """Like `wait_until`, but fails at once if the process ends."""

        def alive_and_probed():
            found = probe()
            code = self.process.poll()
            assert found or code is None, f"{self.name} ended with {code}: {self.text()[-4000:]}"
            return found

        return wait_until(f"{self.name}: {what}", alive_and_probed, seconds)

    def wait_for(self, pattern, seconds=WAIT_SECONDS):
        """The first match of a regular expression in its log."""
        return self.until(pattern, lambda: re.search(pattern, self.text(), re.MULTILINE), seconds)

    def field(self, name):
        """This field of the first log event that has it."""
        found = self.until(name, lambda: [event for event in self.events() if name in event])
        return found[0][name]

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self, seconds=WAIT_SECONDS):
        """Waits for its end; returns its exit code."""
        wait_until(f"{self.name} ends", lambda: self.process.poll() is not None, seconds)
        return self.process.returncode

    def end(self):
        """Sends SIGTERM; returns its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def stop(self):
        """Stops it in any state."""
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(WAIT_SECONDS)
        self.kill()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Rtad(Process):
    """`rtad serve` on free ports, with additional environment `variables`."""

    def __init__(self, *flags, log, variables=None, **options):
        env = os.environ | ANY_PORTS | (variables or {})
        if "--config" in flags:
            make_old(flags[flags.index("--config") + 1])
        super().__init__(programs.RTAD, "serve", *flags, log=log, env=env, **options)

    def status(self):
        return ask(self.admin, "/v1/status").json()

    @property
    def admin(self):
        return self.field("admin_address")

    @property
    def decisions(self):
        """Available after the first snapshots are loaded."""
        return self.field("decision_address")


class Writer(Process):
    """`rtad-writer` with a config in `folder`, on ports that outlive a restart. Its working
    directory is the folder, and so is that of the store, `store`."""

    TOKEN = "a-token-of-24-characters"

    def __init__(self, folder, config, *more, variables=None):
        self.token = folder / "token"
        self.token.write_text(self.TOKEN)
        (folder / "rtad-writer.toml").write_text(config)
        for name in ["token", "rtad-writer.toml"]:
            make_old(folder / name)
        (folder / "store").mkdir(exist_ok=True)
        self.address, self.admin = (f"{HOST}:{port}" for port in free_ports(2))
        flags = ["--config", "rtad-writer.toml", "--store", "store", "--token-file", self.token]
        flags += ["--listen", self.address, "--admin-listen", self.admin, *more]
        env = os.environ | (variables or {})
        super().__init__(programs.WRITER, *flags, log=folder / "writer.log", cwd=folder, env=env)

    def start(self):
        super().start()
        self.until("ready", lambda: says_yes(self.admin, "/readyz"))

    def post(self, path, body):
        """The answer to a JSON body, as an authorized caller."""
        headers = {"Authorization": f"Bearer {self.TOKEN}"}
        return ask(self.address, path, json.dumps(body), headers=headers)


@contextlib.contextmanager
def repeating(action, seconds):
    """Calls an action with 0, 1, … in a thread, with this pause before each. A failure fails the
    test at the end."""
    stop, failures = threading.Event(), []

    def run():
        for number in itertools.count():
            if stop.wait(seconds):
                return
            try:
                action(number)
            except Exception as error:
                failures.append(error)
                return

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not failures, failures
