"""The writer under load, for the modes of events.py."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from suites.testkit.process import Process
from suites.testkit.programs import ROOT, WRITER

WRK = ROOT / "loadtest/wrk/events.lua"
WINDOW = """
[[window]]
name = "{durability}"
length = "1h"
capacity = {capacity}
durability = "{durability}"
"""
# New keys answered as duplicates: ten times the rate of the windows.
MAX_FALSE_POSITIVES = 1e-4


class Row(NamedTuple):
    """Results of one run of wrk."""

    requests: int
    seconds: float
    p50: float
    p99: float
    errors: int
    failed: int
    new: int
    # Requests of the thread with the fewest.
    least: int
    # Clock ticks of the server, in user mode and in the kernel.
    user: int
    system: int
    events: int

    @property
    def cpu(self):
        """µs of an event."""
        return (self.user + self.system) * 1e6 / os.sysconf("SC_CLK_TCK") / self.events


class Server(Process):
    """`rtad-writer` with windows in `folder`."""

    def __init__(self, folder, windows, cores=None, store=None):
        config = folder / "writer.toml"
        config.write_text(f"state_dir = {json.dumps(str(folder / 'state'))}\n{windows}")
        pin = ["taskset", "-c", ",".join(map(str, cores))] if cores else []
        super().__init__(
            *(*pin, WRITER, "--config", config),
            *("--store", store or folder / "store", "--no-token"),
            *("--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"),
            log=folder / "writer.log",
        )
        self.address = self.field("address")
        self.wait_for("all windows are owned by this process")



def ticks(pid):
    """User and system time of a process since its start."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]), int(fields[12])


def busy():
    """Busy clock ticks of all cores."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return sum(int(fields[n]) for n in (1, 2, 3, 6, 7, 8))


class Load:
    """wrk against one server."""

    def __init__(self, server, options, cores):
        self.server, self.options, self.runs = server, options, 0
        self.pin = ["taskset", "-c", ",".join(map(str, cores))] if cores else []
        self.threads = min(len(cores) or 1, options.connections)

    def run(self, window, seconds, batch, repeat_of=None, is_keyed=False):
        """Sends events; `repeat_of` is number and row of the run whose keys are sent again."""
        self.runs += 1
        number, repeat = self.runs, 0
        if repeat_of:
            # The last requests of each connection have no answer.
            number, repeat = repeat_of[0], repeat_of[1].least - self.options.connections - 1
        variables = {"WINDOW": window, "BATCH": batch, "RUN": number, "REPEAT": repeat}
        variables["KEYED"] = int(is_keyed)
        variables = {name: str(value) for name, value in variables.items()}
        command = ["wrk", f"-t{self.threads}", f"-c{self.options.connections}", f"-d{seconds}s"]
        # A request that waits for a slow disk is late, not lost.
        command += ["--timeout", "10s", "--latency", "-s", WRK, f"http://{self.server.address}"]
        before = ticks(self.server.pid)
        done = subprocess.run(
            [*self.pin, *command], env=os.environ | variables, capture_output=True, text=True
        )
        after = ticks(self.server.pid)
        lines = [line for line in done.stdout.splitlines() if line.startswith("row ")]
        if not lines:
            sys.exit(f"events: wrk ended with {done.returncode}: {done.stdout}{done.stderr}")
        requests, took, p50, p99, *rest = lines[0].split()[1:]
        row = Row(
            *(int(requests), float(took), float(p50), float(p99), *map(int, rest)),
            *(after[0] - before[0], after[1] - before[1], int(requests) * max(batch, 1)),
        )
        self.verify(window, row, batch, repeat_of)
        return self.runs, row

    def verify(self, window, row, batch, repeat_of):
        where, accepted = f"events: {window}: ", (row.requests - row.failed) * max(batch, 1)
        if row.requests == 0 or row.errors:
            sys.exit(f"{where}{row.requests} answers, {row.errors} missing")
        if repeat_of and row.new > 0:
            sys.exit(f"{where}{row.new} of {accepted} duplicates answered as new")
        if not repeat_of and row.new < accepted * (1 - MAX_FALSE_POSITIVES) - 1:
            sys.exit(f"{where}only {row.new} of {accepted} new keys answered as new")


def split_cores(server_cores):
    """Cores of the server and of wrk; none if there are too few for both."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) <= server_cores:
        return [], []
    return cores[:server_cores], cores[server_cores:]
