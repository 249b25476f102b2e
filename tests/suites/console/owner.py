"""Owner of event windows: a write service under events."""

import contextlib
import http.client
import itertools
import json
import threading

from suites.testkit.client import ask
from suites.testkit.ports import HOST, free_ports
from suites.testkit.process import Process
from suites.testkit.programs import LOADER

# Nothing listens at port 1: a backend that cannot be reached.
WINDOWS = """
state_dir = "windows"

[[window]]
name = "clicks"
length = "90m"
capacity = 100_000
count = 3
durability = "fsync"

[[window]]
name = "today"
length = "day"
time_zone = "Asia/Shanghai"
capacity = 1000

[[window]]
name = "tiny"
length = "10m"
capacity = 1
durability = "none"

[[window]]
name = "shared"
length = "24h"
backend = "redis://127.0.0.1:1"

[[audience]]
name = "clicked"
from_window = "clicks"
min_count = 2
"""
# Each request to `clicks` has one new device, and three events of it.
PER_REQUEST, PAUSE_SECONDS = 4, 0.02


class Owner:
    """`rtad-loader serve` that can be stopped and started at its address. A thread sends events
    while it runs."""

    def __init__(self, folder):
        self.folder = folder
        self.address, self.admin = (f"{HOST}:{port}" for port in free_ports(2))
        (folder / "loader.toml").write_text(WINDOWS)
        self.numbers = itertools.count()

    def __enter__(self):
        self.start()
        self.send("today", ["a", "a"])
        # Room for 32 keys, and one that is not an id.
        self.send("tiny", ["", *map(str, range(100))])
        return self

    def __exit__(self, *error):
        self.stop(*error)

    def start(self):
        flags = ["--config", "loader.toml", "--store", "store", "--no-token"]
        flags += ["--listen", self.address, "--admin-listen", self.admin]
        self.process = Process(LOADER, "serve", *flags, log=self.folder / "log", cwd=self.folder)
        self.process.until("listening", lambda: says_listening(self.admin))
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def stop(self, *error):
        self.stopping.set()
        self.thread.join()
        self.process.__exit__(*(error or (None, None, None)))

    def run(self):
        connection = http.client.HTTPConnection(self.address, timeout=20)
        with contextlib.closing(connection):
            while not self.stopping.wait(PAUSE_SECONDS):
                ids = [f"device-{next(self.numbers)}"] * PER_REQUEST
                body = json.dumps({"kind": "text", "ids": ids})
                connection.request("POST", "/v1/windows/clicks/events", body)
                answer = connection.getresponse()
                assert answer.status == 200, answer.read()
                answer.read()

    def send(self, window, ids):
        body = json.dumps({"kind": "text", "ids": ids})
        assert ask(self.address, f"/v1/windows/{window}/events", body).status == 200

    def windows(self):
        """The entries of `GET /v1/windows` by name."""
        listed = ask(self.admin, "/v1/windows").json()["windows"]
        return {window["window"]: window for window in listed}


def says_listening(admin):
    with contextlib.suppress(OSError):
        return ask(admin, "/livez").status == 200
