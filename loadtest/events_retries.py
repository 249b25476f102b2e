"""Retries under load: `events.sh --retries`."""

import os
import sys
import threading
import time

from events_load import WINDOW, Load, Server, split_cores
from suites.testkit.client import ask, metric

# Ages at which a sampled request is sent again, in seconds: kept answers live ten minutes.
AGES = (1, 10, 60, 300, 590)
DURABILITY = "interval"
CHECKPOINTS = 60
CONFIG = """answers_memory = "{memory}"
checkpoint_interval = "{checkpoints}s"
"""
BATCH = 10


class Samples(threading.Thread):
    """Sends a request of new keys each second, and repeats each one at `AGES`."""

    def __init__(self, server):
        super().__init__()
        self.server, self.stopped = server, threading.Event()
        self.sent, self.repeated, self.wrong, self.oldest = 0, 0, 0, 0.0

    def run(self):
        due = []
        while not self.stopped.wait(1):
            body = os.urandom(16 * BATCH)
            first = self.send(self.sent, body)
            now = time.monotonic()
            due += [(now + age, self.sent, body, first) for age in AGES]
            self.sent += 1
            for at, number, body, first in [one for one in due if one[0] <= now]:
                due.remove((at, number, body, first))
                self.repeated += 1
                self.wrong += self.send(number, body) != first
            stored = "rtad_window_checkpoint_uploaded_timestamp_seconds"
            stored = metric(self.server.field("admin_address"), stored, window=DURABILITY)
            self.oldest = max(self.oldest, time.time() - stored if stored else 0)

    def send(self, number, body):
        headers = {"Content-Type": "application/octet-stream"}
        headers["Idempotency-Key"] = f"sample-{number}"
        return ask(self.server.address, f"/v1/windows/{DURABILITY}/events", body, headers=headers)


def retries(options, folder):
    """Prints how many requests were repeated under load, and how many got another answer."""
    on_server, on_load = split_cores(options.server_cores)
    # Each answer takes 128 bytes and one bit per event, and no core answers more than this.
    most = 5_000_000 * options.server_cores // options.batch
    memory = most * min(options.seconds, 600) * (128 + options.batch // 8)
    windows = WINDOW.format(durability=DURABILITY, capacity=options.capacity)
    windows += CONFIG.format(memory=f"{memory >> 20}MiB", checkpoints=CHECKPOINTS)
    with Server(folder, windows, on_server) as server:
        load = Load(server, options, on_load)
        # These events are sent again below, in requests that have a key each.
        first = load.run(DURABILITY, 2, options.batch)
        samples = Samples(server)
        samples.start()
        _, row = load.run(DURABILITY, options.seconds, options.batch, first, is_keyed=True)
        samples.stopped.set()
        samples.join()
        admin = server.field("admin_address")
        evicted = metric(admin, "rtad_window_answers_evicted_total", window=DURABILITY)
    head = ("seconds", "requests with a key", "events/s", "CPU µs per event", "sampled")
    head += ("repeated", "other answers", "evicted", "oldest checkpoint, s")
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    cells = (f"{row.seconds:.0f}", f"{row.requests:,}", f"{row.events / row.seconds:,.0f}")
    cells += (f"{row.cpu:.3f}", samples.sent, samples.repeated, samples.wrong)
    cells += (f"{evicted:.0f}", f"{samples.oldest:.0f}")
    print("| " + " | ".join(map(str, cells)) + " |")
    if row.failed or samples.wrong or evicted or not samples.repeated:
        sys.exit("events: a request got no answer, or a retry another one")
    # Writing and uploading come on top of the interval.
    if samples.oldest > 2 * CHECKPOINTS:
        sys.exit("events: checkpoints are too old")
