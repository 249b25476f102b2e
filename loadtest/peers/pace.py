"""Latency of rtad at a fixed rate, during a swap of its whole snapshot, and at triple its capacity.

Writes a table of docs/explanation/performance.md.
"""

import dataclasses
import functools
import json
import pathlib
import re
import resource
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from concurrent import futures

import request_files
import report
import servers

RATE, CONNECTIONS = 20_000, 64
# Rounds of this length alternate with a bare epoll loop, so that stalls of the machine affect both.
ROUND_SECONDS = 10
# Deadline of the platforms.
IN_TIME_MS = 60
# Overloads: title, kind, connections, and step of the search for the peak rate.
OVERLOADS = [
    ("`GET /v1/check`", "get", 2_000, 10_000),
    (f"JSON batches of {request_files.BATCH:,}", "json", 1_000, 500),
]
CALM, AFTER = 5, 10
# The peak drifts with the machine: number of searches, and seconds of each step and overload.
CYCLES, AROUND, STEP_SECONDS = 5, (0.85, 0.95, 1.05), 4
MANY = 5_000
FIELDS = re.compile(r"(\w+) (-?\d+)")


def main() -> None:
    rtad, loader, peers, load, store, work, devices, seconds, hours, table = sys.argv[1:]
    work, seconds = pathlib.Path(work), int(seconds)
    # For many connections, also of the load generator, which is a child.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # Stops the servers too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    kinds = request_files.every_kind(request_files.Pool(loader, int(devices), int(devices)), work)
    generations = Generations(loader, store)
    others = servers.busy_share()

    def paced(
        running: servers.Running, kind: str, connections: int, *arguments: str
    ) -> list[dict[str, int]]:
        command = [
            "taskset",
            "-c",
            servers.CLIENT_CORE,
            load,
            "pace",
            "--address",
            running.address,
            "--in-time",
            str(IN_TIME_MS),
        ]
        command += [
            "--requests",
            str(kinds[kind].file),
            "--connections",
            str(connections),
            *arguments,
        ]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        return [
            {name: int(value) for name, value in FIELDS.findall(line)}
            for line in output.splitlines()
        ]

    def steady(running: servers.Running, title: str, kind: str, *phases: int) -> list[Round]:
        """Runs the phases. They share one measurement of the core."""
        used, stolen = sum(running.cpu_seconds()), servers.stolen_seconds()
        lines = paced(running, kind, CONNECTIONS, *(f"{RATE}:{seconds}" for seconds in phases))
        used, stolen = sum(running.cpu_seconds()) - used, servers.stolen_seconds() - stolen
        totals = [line for line in lines if "phase" in line]
        print(title, totals, f"stolen {stolen:.2f} s", file=sys.stderr)
        if any(total["ok"] != total["due"] for total in totals):
            raise SystemExit(f"{title}: not all were answered: {totals}")
        return [Round(total, used / sum(phases), stolen / sum(phases)) for total in totals]

    with (
        servers.peer(peers, "epoll", "--length", "15") as floor,
        servers.rtad(rtad, store, work, "50ms") as running,
    ):
        for kind in ("get", "tencent", "json"):
            kinds[kind].check(running.address)
        lanes = [
            (floor, "bare epoll loop: what the machine itself adds", "get"),
            (running, "`GET /v1/check`", "get"),
            (running, "POST Tencent", "tencent"),
        ]
        rounds = {title: [] for _, title, _ in lanes}
        for number in range(max(1, seconds // ROUND_SECONDS)):
            for server, title, kind in lanes if number % 2 == 0 else reversed(lanes):
                rounds[title] += steady(server, title, kind, ROUND_SECONDS)
        swapped = Swap(running, generations, seconds)
        with futures.ThreadPoolExecutor() as threads:
            swap = threads.submit(swapped.once)
            title = "`GET /v1/check`, the whole snapshot replaced"
            before, after = steady(running, title, "get", seconds // 4, seconds - seconds // 4)
            swap.result()
        rounds["`GET /v1/check`, before another snapshot is published"] = [before]
        rounds["`GET /v1/check`, while it is loaded and replaces the first, and after"] = [after]
        note = (
            f"The other generation, without a chunk in common, was served {swapped.took:.0f} s after it had been published, a quarter of "
            f"the run of {seconds} s after its begin; loading it shares the core with the requests. How "
            f"busy the core was is given for the whole run in both rows."
        )
        generations.publish(generations.newest)
        time.sleep(2 * swapped.took)
        kept = memory(running, functools.partial(paced, running, "get"), float(hours))
        overloads = [
            overloaded(title, functools.partial(paced, running, kind, crowd), crowd, step)
            for title, kind, crowd, step in OVERLOADS
        ]
    about = (
        f"{int(devices):,} devices; rtad on one core; {RATE:,} requests a second over {CONNECTIONS} keep-alive connections, from "
        f"another core, for {ROUND_SECONDS} s in turn with the others: medians of {max(1, seconds // ROUND_SECONDS)} rounds, in brackets the "
        f"extremes; milliseconds from the due time of a request; other processes used {others:.0%} of all cores."
    )
    text = "\n\n".join(
        [
            about,
            lines(
                [
                    "",
                    "answered",
                    "median",
                    "99 %",
                    "99.9 %",
                    "highest",
                    "the core, busy",
                    "cores taken by the host",
                ],
                [row(title, found) for title, found in rounds.items()],
            ),
            note,
            f"Three times the peak rate, {CYCLES} times for {STEP_SECONDS} s, each after a new search for the peak; medians, and in "
            f"brackets the extremes. *In time* is within {IN_TIME_MS} ms; requests without an idle connection are not sent.",
            lines(
                [
                    "requests a second",
                    "connections",
                    "peak, in time",
                    "due",
                    "in time",
                    "of the peak",
                    "late",
                    "shed",
                    "shed: median, 99 % ms",
                ]
                + ["failed", "all in time again after"],
                overloads,
            ),
            "Memory of the process, beside what it had when it was ready, and of the kernel's TCP buffers, of both ends of each connection.",
            lines(["", "process, MB more", "TCP buffers, MB"], kept),
        ]
    )
    print(text)
    report.replace(pathlib.Path(table), text, "pace")


@dataclasses.dataclass
class Round:
    """Results of a round, and shares: of the server in its core, and of both cores taken by the
    host."""

    total: dict[str, int]
    busy: float
    stolen: float


def row(title: str, rounds: list[Round]) -> list[str]:
    def milliseconds(name: str) -> str:
        found = [one.total[name] / 1000 for one in rounds]
        middle = f"{statistics.median(found):.2f}"
        return f"{middle} ({min(found):.2f} to {max(found):.2f})" if len(found) > 1 else middle

    def share(name: str) -> str:
        return f"{statistics.median(getattr(one, name) for one in rounds):.1%}"

    answered = f"{sum(one.total['ok'] for one in rounds):,}"
    return [
        title,
        answered,
        *map(milliseconds, ("p50", "p99", "p999", "max")),
        share("busy"),
        share("stolen"),
    ]


def lines(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


def overloaded(title: str, paced, crowd: int, step: int) -> list[str]:
    # Increase the rate until overload: the peak is the maximum rate answered in time. Requests that
    # cannot be sent at once are dropped.
    climbed = paced("--max-wait", "2", *(f"{step * number}:2" for number in range(1, 21)))
    first = max(phase["in_time"] / 2 for phase in climbed if "phase" in phase)
    calm, too_much = int(first / 2), int(first * 3)
    cycle = [*(int(first * share) for share in AROUND), too_much]
    rates = [
        f"{calm}:{CALM}",
        *(f"{rate}:{STEP_SECONDS}" for rate in cycle * CYCLES),
        f"{calm}:{AFTER}",
    ]
    lines = paced("--max-wait", "2", *rates)
    phases = [line for line in lines if "phase" in line][1:-1]
    cycles = [phases[begin : begin + len(cycle)] for begin in range(0, len(phases), len(cycle))]
    peaks = [max(phase["in_time"] for phase in phases[:-1]) / STEP_SECONDS for phases in cycles]
    during = [phases[-1] for phases in cycles]
    goodput = [phase["in_time"] / STEP_SECONDS for phase in during]
    shares = [good / peak for good, peak in zip(goodput, peaks, strict=True)]
    after = [line for line in lines if "second" in line][-AFTER:]
    # A short stall of the machine is not an overload.
    bad = [
        number for number, second in enumerate(after, 1) if second["in_time"] < 0.95 * second["due"]
    ]
    again = f"{bad[-1] if bad else 0} s" if not bad or bad[-1] < AFTER else "never"

    def a_second(count) -> str:
        return f"{sum(map(count, during)) / CYCLES / STEP_SECONDS:,.0f}"

    def highest(name: str) -> float:
        return max(phase[name] for phase in during) / 1000

    return [
        title,
        f"{crowd:,}",
        f"{statistics.median(peaks):,.0f}",
        f"{too_much:,}",
        f"{statistics.median(goodput):,.0f}",
    ] + [
        f"{statistics.median(shares):.0%} ({min(shares):.0%} to {max(shares):.0%})",
        a_second(lambda phase: phase["ok"] - phase["in_time"]),
        a_second(lambda phase: phase["shed"]),
        f"{highest('shed_p50'):.1f}, {highest('shed_p99'):.1f}"
        if any(phase["shed"] for phase in during)
        else "",
        f"{sum(phase['failed'] for phase in during)}",
        again,
    ]


def memory(running: servers.Running, paced, hours: float) -> list[list[str]]:
    """Memory of idle and busy connections, and after as many requests as in `hours` at the fixed
    rate."""
    rows, before = [], own_memory(running.pid)

    def sampled(title: str, connections: int, *phases: str) -> None:
        # In the middle of the last phase.
        seconds = [int(phase.partition(":")[2]) for phase in phases]
        with futures.ThreadPoolExecutor() as threads:
            asker = threads.submit(paced, connections, *phases)
            time.sleep(sum(seconds) - seconds[-1] / 2)
            rows.append(
                [
                    title,
                    f"{(own_memory(running.pid) - before) / 1e6:+.1f}",
                    f"{socket_memory() / 1e6:.1f}",
                ]
            )
            asker.result()

    sampled(f"{CONNECTIONS} connections, {RATE:,} requests a second", CONNECTIONS, f"{RATE}:10")
    # Each connection has sent a request.
    sampled(f"{MANY:,} connections, idle", MANY, f"{MANY}:4", "10:6")
    sampled(f"{MANY:,} connections, {3 * RATE:,} requests a second", MANY, f"{3 * RATE}:10")
    sampled(f"{CONNECTIONS} connections again", CONNECTIONS, f"{RATE}:10")
    if hours:
        requests = int(hours * 3600 * RATE)
        phase = f"{4 * RATE}:{requests // (4 * RATE)}"
        sampled(f"half way through {requests / 1e6:.0f} million requests", CONNECTIONS, phase)
        sampled("after them", CONNECTIONS, f"{RATE}:10")
    return rows


def own_memory(pid: int) -> int:
    """Anonymous memory in bytes: the filters, and other memory of the process."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+) kB", status)[1]) << 10


def socket_memory() -> int:
    """Bytes of TCP buffers, without the sockets themselves."""
    line = next(
        line
        for line in pathlib.Path("/proc/net/sockstat").read_text().splitlines()
        if line.startswith("TCP:")
    )
    return int(line.split()[-1]) * 4096


class Generations:
    """Two generations of the same devices without a common chunk: 1,000 more ids change every
    chunk."""

    def __init__(self, loader: str, store: str):
        self.loader, self.store = loader, store
        if len(self.listed()["generations"]) < 2:
            more = subprocess.run(
                [loader, "synth", "--offset", "4000000000", "--count", "1000"],
                check=True,
                stdout=subprocess.PIPE,
            )
            subprocess.run([*self.command("append"), "--quiet", "-"], input=more.stdout, check=True)
            subprocess.run([*self.command("build"), "--compact", "--quiet"], check=True)
        listed = self.listed()
        self.newest = listed["generations"][-1]["generation"]
        self.other = listed["generations"][-2]["generation"]
        # Remove the delta with these ids from the older generation.
        if listed["live_generation"] != self.newest:
            self.publish(self.newest)

    def command(self, name: str) -> list[str]:
        return [self.loader, name, "--store", self.store, "--audience", request_files.AUDIENCE]

    def listed(self) -> dict:
        output = subprocess.run(
            [*self.command("list"), "--json"], check=True, stdout=subprocess.PIPE
        ).stdout
        return json.loads(output)["audiences"][0]

    def publish(self, generation: int) -> None:
        subprocess.run(
            [*self.command("rollback"), "--quiet", "--to", str(generation)],
            check=True,
            stdout=subprocess.DEVNULL,
        )


class Swap:
    """Publishes the other generation after a quarter of the run, and waits until it is served."""

    def __init__(self, running: servers.Running, generations: Generations, seconds: int):
        self.running, self.generations, self.seconds, self.took = running, generations, seconds, 0.0

    def once(self) -> None:
        time.sleep(self.seconds / 4)
        begun = time.monotonic()
        self.generations.publish(self.generations.other)
        served = f'rtad_snapshot_generation{{audience="{request_files.AUDIENCE}"}} {self.generations.other}\n'
        while (
            served
            not in urllib.request.urlopen(f"http://{self.running.admin}/metrics").read().decode()
        ):
            if time.monotonic() - begun > max(60, self.seconds):
                raise SystemExit("the other generation is not served")
            time.sleep(0.1)
        self.took = time.monotonic() - begun


if __name__ == "__main__":
    main()
