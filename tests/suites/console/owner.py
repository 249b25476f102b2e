"""Owner of event windows: a writer under events."""

import contextlib

from suites.testkit.client import ask
from suites.testkit.process import Writer, repeating

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


class Owner(Writer):
    """A writer that can be stopped and started at its address. A thread sends events while
    it runs."""

    def __init__(self, folder):
        self.closing = contextlib.ExitStack()
        super().__init__(folder, WINDOWS)
        self.send("today", ["a", "a"])
        # Room for 32 keys, and one that is not an id.
        self.send("tiny", ["", *map(str, range(100))])

    def start(self):
        super().start()
        self.closing.enter_context(repeating(self.send_events, PAUSE_SECONDS))

    def stop(self):
        self.closing.close()
        super().stop()

    def send_events(self, number):
        self.send("clicks", [f"{self.pid}-{number}"] * PER_REQUEST)

    def send(self, window, ids):
        answer = self.post(f"/v1/windows/{window}/events", {"kind": "text", "ids": ids})
        assert answer.status == 200, answer

    def windows(self):
        """The entries of `GET /v1/windows` by name."""
        listed = ask(self.admin, "/v1/windows").json()["windows"]
        return {window["window"]: window for window in listed}
