"""Load test of event windows; run by events.sh, which lists the options."""

import argparse
import contextlib
import hashlib
import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

from suites.testkit import s3
from suites.testkit.client import ask, says_yes
from suites.testkit.process import Process, Rtad
from suites.testkit.programs import ROOT, WRITER

WRK = ROOT / "loadtest/wrk/events.lua"
# Million events per second and core.
TARGETS = {"none": 2, "interval": 1}
WINDOW = """
[[window]]
name = "{durability}"
length = "1h"
capacity = {capacity}
fpr = 1e-5
when_full = "error"
durability = "{durability}"
"""
# New keys answered as duplicates: ten times the rate of the windows.
MAX_FALSE_POSITIVES = 1e-4
# Fields of the share of failures.
NOT_200 = ("failed", "requests")
AUDIENCE = """
[[audience]]
name = "clicked"
from_window = "interval"
fpr = 0.0001
"""
POD = """
[server.api]
public = true

[store]
{poll_interval}

[[audience]]
name = "clicked"
"""


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

    def ticks(self):
        """User and system time since its start."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
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
        command += ["--latency", "-s", WRK, f"http://{self.server.address}"]
        before = self.server.ticks()
        done = subprocess.run(
            [*self.pin, *command], env=os.environ | variables, capture_output=True, text=True
        )
        after = self.server.ticks()
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


class Refused(Exception):
    """Answers other than 200: the table ends with their run."""


def split_cores(server_cores):
    """Cores of the server and of wrk; none if there are too few for both."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) <= server_cores:
        return [], []
    return cores[:server_cores], cores[server_cores:]


def measure(options, folder):
    """Prints the table of events per second and core."""
    on_server, on_load = split_cores(options.server_cores)
    windows = "".join(
        WINDOW.format(durability=durability, capacity=options.capacity)
        for durability in ("none", "interval", "fsync")
    )
    rows = {}
    began, busy_before, own_before = time.monotonic(), busy(), os.times()
    with Server(folder, windows, on_server) as server:
        load = Load(server, options, on_load)

        def one(title, window, batch, repeat_of=None, is_keyed=False):
            done = load.run(window, options.seconds, batch, repeat_of, is_keyed)
            print(f"events: {title}, {window}: {done[1].cpu:.3f} µs", file=sys.stderr)
            rows.setdefault((title, window), []).append(done[1])
            if done[1].failed:
                raise Refused
            return done

        def one_round(is_first):
            for window in ("none", "interval", "fsync"):
                if is_first and not options.quick:
                    # The first events touch the pages of the table.
                    load.run(window, 1, options.batch)
                first = one(f"new, {options.batch:,} in a request", window, options.batch)
                if window != "fsync":
                    one(f"duplicates, {options.batch:,} in a request", window, options.batch, first)
                title = f"new, {options.batch:,} in a request with Idempotency-Key"
                one(title, window, options.batch, is_keyed=True)
            for window in ("none", "interval", "fsync"):
                one("new, single, JSON", window, 0)

        with contextlib.suppress(Refused):
            for number in range(options.rounds):
                one_round(number == 0)
    seconds, hz = time.monotonic() - began, os.sysconf("SC_CLK_TCK")
    ours = sum(os.times()[:4]) - sum(own_before[:4])
    others = ((busy() - busy_before) / hz - ours) / seconds

    head = ("events", "durability", "events/s", "CPU µs per event", "user + system")
    head += ("million events/s per core", "target", "p50 ms", "p99 ms", "not 200")
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for (title, window), runs in rows.items():
        row = sorted(runs, key=lambda row: row.cpu)[len(runs) // 2]
        failed, requests = (sum(getattr(run, name) for run in runs) for name in NOT_200)
        unit = row.cpu / (row.user + row.system)
        has_target = options.batch >= 1000 and title.startswith("new, ") and "single" not in title
        target = TARGETS.get(window, "") if has_target else ""
        cells = (title, window, f"{row.events / row.seconds:,.0f}", f"{row.cpu:.3f}")
        cells += (f"{row.user * unit:.3f} + {row.system * unit:.3f}", f"{1 / row.cpu:.3g}", target)
        cells += (row.p50, row.p99, f"{100 * failed / requests:.2g} %")
        print("| " + " | ".join(map(str, cells)) + " |")
    low, high = (pick(run.cpu for runs in rows.values() for run in runs) for pick in (min, max))
    print(
        f"\n{options.rounds} rounds of {options.seconds} s, {options.connections} connections; "
        f"CPU of an event {low:.3f} to {high:.3f} µs over all rows and rounds; "
        f"other work took {max(others, 0):.1f} of {os.cpu_count()} cores"
    )
    if any(row.failed for runs in rows.values() for row in runs):
        sys.exit("events: answers other than 200")


class Pod:
    """A pod that follows the audience, and the sampled events that it does not answer yet."""

    def __init__(self, folder, name, poll_interval, store):
        config = folder / f"{name}.toml"
        config.write_text(POD.format(poll_interval=poll_interval))
        self.name, self.waiting, self.seconds, self.lock = name, {}, [], threading.Lock()
        self.process = Rtad(
            *("--config", config, "--store", store, "--workers", "1"),
            log=folder / f"{name}.log",
        )

    def poll(self, stopped):
        """Asks for the waiting events every 5 ms until `stopped`."""
        connection = http.client.HTTPConnection(self.process.decisions, timeout=10)
        while not stopped.is_set():
            with self.lock:
                waiting = list(self.waiting.items())
            for key, answered in waiting:
                if self.is_member(connection, key):
                    self.seconds.append(time.monotonic() - answered)
                    with self.lock:
                        del self.waiting[key]
            time.sleep(0.005)

    def is_member(self, connection, key):
        connection.request("GET", f"/v1/check/clicked/{key}")
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            sys.exit(f"events: {self.name}: {answer.status}")
        return json.loads(body)["member"]


def freshness(options, folder):
    """Prints the time from the answer to an event until pods answer that its device is a member."""
    seconds, per_second = options.seconds, 20
    per_batch = max(options.rate // per_second, 1)
    windows = WINDOW.format(durability="interval", capacity=1_000_000) + AUDIENCE
    intervals = {"1 s": 'poll_interval = "1s"', "10 s, the default": ""}
    if options.quick:
        del intervals["10 s, the default"]
    stopped, total = threading.Event(), 0
    with contextlib.ExitStack() as stack:
        store = folder / "store"
        if options.s3:
            os.environ |= stack.enter_context(s3.server(folder))
            store = os.environ["RTAD_TEST_BUCKET"]
        server = stack.enter_context(Server(folder, windows, store=store))
        published = 'rtad_window_audience_generations_total{audience="clicked"} 1'
        admin = server.field("admin_address")
        server.until("audience", lambda: published in ask(admin, "/metrics").text())
        pods = {
            title: Pod(folder, f"pod-{number}", setting, store)
            for number, (title, setting) in enumerate(intervals.items())
        }
        for pod in pods.values():
            stack.enter_context(pod.process)
            pod.process.until("snapshot", lambda pod=pod: says_yes(pod.process.admin, "/readyz"))
        threads = [threading.Thread(target=pod.poll, args=[stopped]) for pod in pods.values()]
        for thread in threads:
            thread.start()
        stack.callback(stopped.set)
        writer = http.client.HTTPConnection(server.address, timeout=10)
        checks = {
            pod: http.client.HTTPConnection(pod.process.decisions, timeout=10)
            for pod in pods.values()
        }
        begun, batches = time.monotonic(), seconds * per_second
        sampled = {batches * n // options.samples for n in range(options.samples)}
        for number in range(batches):
            time.sleep(max(0, begun + number / per_second - time.monotonic()))
            names = (f"{os.getpid()}-{number}-{n}" for n in range(per_batch))
            ids = [hashlib.md5(name.encode()).hexdigest() for name in names]
            # Not a false positive of an earlier state.
            following = [
                pod
                for pod, connection in checks.items()
                if number in sampled and not pod.is_member(connection, ids[0])
            ]
            writer.request("POST", "/v1/windows/interval/events", json.dumps({"ids": ids}))
            answer = writer.getresponse()
            body = answer.read()
            if answer.status != 200:
                sys.exit(f"events: {answer.status}")
            new = json.loads(body)["new"]
            answered = time.monotonic()
            if not all(new):
                sys.exit(f"events: {new.count(False)} new devices answered as duplicates")
            total += len(ids)
            for pod in following:
                with pod.lock:
                    pod.waiting[ids[0]] = answered
        took = time.monotonic() - begun
        deadline = time.monotonic() + 30
        while any(pod.waiting for pod in pods.values()) and time.monotonic() < deadline:
            time.sleep(0.01)
        stopped.set()
        for thread in threads:
            thread.join()
    print("| store | poll interval | events/s | samples | min, s | median, s | max, s | missing |")
    print("|---|---|---|---|---|---|---|---|")
    for title, pod in pods.items():
        found = pod.seconds or [float("nan")]
        figures = (min(found), statistics.median(found), max(found))
        cells = ("S3" if options.s3 else "directory", title)
        cells += (f"{total / took:,.0f}", len(pod.seconds))
        cells += (*(f"{figure:.2f}" for figure in figures), len(pod.waiting))
        print("| " + " | ".join(map(str, cells)) + " |")
    if any(pod.waiting or not pod.seconds for pod in pods.values()):
        sys.exit("events: not all samples became members")


def main():
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--freshness", action="store_true")
    parser.add_argument("--s3", action="store_true")
    parser.add_argument("--state", type=Path, default=ROOT / "target/loadtest/events")
    names = ("seconds", "rounds", "connections", "batch", "capacity", "server-cores")
    for name in (*names, "rate", "samples"):
        parser.add_argument(f"--{name}", type=int)
    options = parser.parse_args()
    defaults = {"seconds": 5, "rounds": 3, "capacity": 100_000_000, "rate": 2000, "samples": 100}
    defaults |= {"connections": 16, "batch": 1000, "server_cores": 1}
    if options.freshness:
        defaults["seconds"] = 20
    if options.quick:
        defaults |= {"seconds": 1, "rounds": 1, "capacity": 20_000_000, "rate": 200, "samples": 3}
    for name, default in defaults.items():
        if getattr(options, name) is None:
            setattr(options, name, default)
    folder = options.state.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "store").mkdir(parents=True)
    (freshness if options.freshness else measure)(options, folder)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
