"""Load test of event windows; run by events.sh, which lists the options."""

import argparse
import contextlib
import hashlib
import http.client
import json
import os
import shutil
import statistics
import sys
import threading
import time
from pathlib import Path

from events_load import WINDOW, Load, Server, busy, split_cores
from events_redis import COMMANDS, Redis
from suites.testkit import s3
from suites.testkit.client import says_yes
from suites.testkit.process import Rtad
from suites.testkit.programs import ROOT

# Million events per second and core.
TARGETS = {"disk": 1, "store": 1}
# Fields of the share of failures.
NOT_200 = ("failed", "requests")
AUDIENCE = """
[[audience]]
name = "clicked"
from_window = "disk"
"""
POD = """
[server]
workers = 1

[server.api]
public = true

[store]
{poll_interval}

[[audience]]
name = "clicked"
"""


class Refused(Exception):
    """Answers other than 200: the table ends with their run."""


def measure(options, folder):
    """Prints the table of events per second and core."""
    on_server, on_load = split_cores(options.server_cores)
    windows = "".join(
        WINDOW.format(durability=durability, capacity=options.capacity)
        for durability in ("disk", "store")
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

        def one_round():
            for window in ("disk", "store"):
                first = one(f"new, {options.batch:,} in a request", window, options.batch)
                one(f"duplicates, {options.batch:,} in a request", window, options.batch, first)
                title = f"new, {options.batch:,} in a request with Idempotency-Key"
                one(title, window, options.batch, is_keyed=True)
            for window in ("disk", "store"):
                one("new, single, JSON", window, 0)

        def one_round_of_redis(redis):
            for command in COMMANDS:
                run = redis.run(command, options.redis_events, on_load)
                rows.setdefault(("Redis, one pipeline", command), []).append(run)

        with contextlib.ExitStack() as stack:
            redis = options.redis and stack.enter_context(Redis(folder / "redis", on_server))
            stack.enter_context(contextlib.suppress(Refused))
            for _ in range(options.rounds):
                one_round()
                if redis:
                    one_round_of_redis(redis)
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
            *("--config", config, "--store", store),
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
    windows = WINDOW.format(durability="disk", capacity=1_000_000) + AUDIENCE
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
        server.until("audience", lambda: says_yes(server.address, "/v1/audiences/clicked"))
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
            writer.request("POST", "/v1/windows/disk/events", json.dumps({"ids": ids}))
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
    parser.add_argument("--redis", action="store_true")
    parser.add_argument("--state", type=Path, default=ROOT / "target/loadtest/events")
    names = ("seconds", "rounds", "connections", "batch", "capacity", "server-cores")
    for name in (*names, "rate", "samples", "redis-events"):
        parser.add_argument(f"--{name}", type=int)
    options = parser.parse_args()
    defaults = {"rounds": 3, "capacity": 100_000_000, "rate": 2000, "samples": 100}
    defaults |= {"connections": 16, "batch": 1000, "server_cores": 1, "redis_events": 3_000_000}
    defaults |= {"seconds": 20 if options.freshness else 5}
    if options.quick:
        defaults |= {"seconds": 1, "rounds": 1, "capacity": 20_000_000, "rate": 200, "samples": 3}
        defaults |= {"redis_events": 200_000}
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
