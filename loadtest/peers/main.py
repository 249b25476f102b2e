"""Peer measurement: CPU time per request of rtad and its peers, as a table and a chart; see run.sh.

    main.py RTAD LOADER PEERS STORE WORK DEVICES REDIS_IDS ROUNDS ROUND_SECONDS TABLE CHART

All servers share one core and are measured one at a time. wrk runs on another core. The figure is
the CPU time of the server, and of its Redis, per answered request. A rate would also depend on the
client and on other work of the machine.
"""

import contextlib
import dataclasses
import functools
import json
import pathlib
import platform
import re
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable

import request_files
import report
import servers
from request_files import RequestKind
from report import Figure, Row
from servers import Running

CONNECTIONS = 64
LUA = pathlib.Path(__file__).with_name("requests.lua")


@dataclasses.dataclass
class Lane:
    """One row: a kind of request to a server. `checked`: whether its answers can be verified."""

    row: Row
    kind: RequestKind
    checked: bool = True
    figures: list[Figure] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Server:
    """A server under test: its start function, and its rows of the table."""

    start: Callable[[], contextlib.AbstractContextManager[Running]]
    lanes: list[Lane]


def round_of(running: Running, kind: RequestKind, seconds: int) -> Figure:
    command = [
        "taskset",
        "-c",
        servers.CLIENT_CORE,
        "wrk",
        "-t1",
        f"-c{CONNECTIONS}",
        f"-d{seconds}s",
        "-s",
        str(LUA),
    ]
    command += [f"http://{running.address}", "--", str(kind.file)]
    before = running.cpu_seconds()
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    after = running.cpu_seconds()
    answered, microseconds, failed = map(
        int, re.search(r"answered (\d+) in (\d+) us, failed (\d+)", output).groups()
    )
    if failed or not answered or "Non-2xx" in output:
        raise SystemExit(f"{command}: {output}")
    return figure(before, after, answered, answered / microseconds * 1e6)


def figure(before: list[float], after: list[float], answered: int, rate: float) -> Figure:
    return Figure(
        *((late - early) * 1e6 / answered for early, late in zip(before, after, strict=True)), rate
    )


def every_server(
    rtad: str,
    peers: str,
    store: str,
    work: pathlib.Path,
    redis: servers.Redis,
    ids: int,
    kinds: dict,
) -> list[Server]:
    """All servers, in the order of the table. Constant answers copy length and type from rtad."""
    # A saturated core queues requests by design: disable shedding.
    ours_alone = functools.partial(servers.rtad, rtad, store, work, "10s")
    with ours_alone() as running:
        answers = {
            name: kind.send(running.address, 0)
            for name, kind in kinds.items()
            if name != "one-path"
        }
    answers["one-path"] = answers["get"]

    def constant(command: str, kind: str, *more: str) -> Callable:
        content_type, body = answers[kind]
        arguments = [command, "--length", str(len(body)), *more]
        if content_type:
            arguments += ["--content-type", content_type]
        return lambda: servers.peer(peers, *arguments)

    def bare(kind: str, route: str, name: str, ids: int = 1) -> Server:
        row = Row("floor", f"bare-{kind}", name, None, ids)
        return Server(
            constant("axum", kind, "--route", route), [Lane(row, kinds[kind], checked=False)]
        )

    def blind(key: str, name: str) -> Lane:
        return Lane(Row("floor", key, name, "bare-one-path"), kinds["get"], checked=False)

    def behind(command: str, name: str, *more: str) -> Server:
        arguments = [command, "--redis", str(redis.port), *more]
        lane = Lane(Row("instead", command, name, "bare-one-path"), kinds["get"])
        return Server(lambda: servers.peer(peers, *arguments, redis_pid=redis.pid), [lane])

    def ours(kind: str, name: str, floor: str, ids: int = 1) -> Lane:
        return Lane(Row("rtad", kind, name, floor, ids), kinds[kind])

    batch, route = f"/v1/check/{request_files.AUDIENCE}", "/v1/check/{audience}/{id}"
    of = f"of {request_files.BATCH}"
    return [
        Server(constant("epoll", "get"), [blind("epoll", "bare epoll loop")]),
        Server(lambda: servers.nginx(work), [blind("nginx", "nginx `return 200`")]),
        bare("one-path", "/bare", "bare axum, GET of one path"),
        bare("get", route, f"bare axum, GET `{route}`"),
        bare("tencent", "/rta/tencent", "bare axum, POST as long as Tencent's"),
        bare("ocean", "/rta/ocean", "bare axum, POST as long as Ocean's"),
        bare(
            "binary", batch, f"bare axum, POST as long as a binary batch {of}", request_files.BATCH
        ),
        bare("json", batch, f"bare axum, POST as long as a JSON batch {of}", request_files.BATCH),
        Server(
            ours_alone,
            [
                ours("get", "rtad `GET /v1/check`", "bare-one-path"),
                ours("tencent", "rtad POST Tencent, 3 ids", "bare-tencent"),
                ours("ocean", "rtad POST Ocean, 3 ids, one raw", "bare-ocean"),
                ours("binary", f"rtad binary batch {of}", "bare-binary", request_files.BATCH),
                ours("json", f"rtad JSON batch {of}", "bare-json", request_files.BATCH),
            ],
        ),
        behind("axum-redis-exists", "axum + Redis `EXISTS`"),
        behind(
            "axum-redis-bloom", "axum + Redis Bloom, 13 `GETBIT` in a pipeline", "--ids", str(ids)
        ),
    ]


def one_round(measured: list[Server], number: int, seconds: int) -> float:
    """Measures each server once; returns the CPU share of other work on the machine."""
    with contextlib.ExitStack() as started:
        measurements = []
        for server in measured:
            running = started.enter_context(server.start())
            measurements += [(running, lane) for lane in server.lanes]
        others = servers.busy_share()
        # Rows of the same requests in sequence, and every second round reversed: machine speed
        # drifts.
        measurements.sort(key=lambda pair: pair[1].kind.number)
        for running, lane in measurements if number % 2 == 0 else reversed(measurements):
            if lane.checked and number == 0:
                lane.kind.check(running.address)
            lane.figures.append(round_of(running, lane.kind, seconds))
            print(f"round {number + 1}: {lane.row.name}: {lane.figures[-1]}", file=sys.stderr)
    return others


def alone(redis: servers.Redis, seconds: int, lanes: list[tuple[Row, int, list[Figure]]]) -> None:
    """Runs redis-benchmark with about as many commands as fit the seconds; it has no time limit."""
    for row, pipeline, figures in lanes:
        count = seconds * (100_000 if pipeline == 1 else 1_000_000)
        before = servers.cpu_seconds_of(redis.pid)
        rate = redis.benchmark(count, pipeline)
        after = servers.cpu_seconds_of(redis.pid)
        figures.append(figure([0.0, 0.0, *before], [0.0, 0.0, *after], count, rate))


def machine() -> str:
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    version = {
        "nginx": subprocess.run(["nginx", "-v"], capture_output=True, text=True).stderr,
        "Redis": subprocess.run(
            ["redis-server", "--version"], capture_output=True, text=True
        ).stdout,
        "wrk": subprocess.run(["wrk", "-v"], capture_output=True, text=True).stdout,
    }
    named = ", ".join(
        f"{name} {re.search(r'[0-9]+[.][0-9]+[.]?[0-9]*', text)[0]}"
        for name, text in version.items()
    )
    return f"{model[1] if model else platform.machine()}, Linux {platform.release().split('-')[0]}, {named}"


def main() -> None:
    rtad, loader, peers, store, work, *numbers, table, chart = sys.argv[1:]
    devices, ids, rounds, seconds = map(int, numbers)
    work = pathlib.Path(work)
    command = [loader, "list", "--store", store, "--audience", request_files.AUDIENCE, "--json"]
    listed = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    keys = next(made["keys"] for made in listed["audiences"][0]["generations"] if made["live"])
    if keys != devices:
        raise SystemExit(f"{store} has {keys} devices, not {devices}: give another STORE")
    # Stops the servers too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    kinds = request_files.every_kind(request_files.Pool(loader, devices, ids), work)
    with servers.redis() as redis:
        print(f"{ids} ids into Redis", file=sys.stderr)
        redis.hold(loader, peers, ids)
        measured = every_server(rtad, peers, store, work, redis, ids, kinds)
        by_benchmark = [
            (Row("instead", "benchmark", "Redis alone, `redis-benchmark` `EXISTS`"), 1, []),
            (Row("instead", "benchmark-16", "Redis alone, the same pipelined by 16"), 16, []),
        ]
        others = []
        for number in range(rounds):
            others.append(one_round(measured, number, seconds))
            alone(redis, seconds, by_benchmark)
    found = {lane.row: lane.figures for server in measured for lane in server.lanes}
    found |= {row: figures for row, _, figures in by_benchmark}
    about = (
        f"{machine()}; {devices:,} devices in rtad, {ids:,} in Redis; {CONNECTIONS} keep-alive connections; "
        f"medians of {rounds} alternating rounds of {seconds} s, and of their ratios; "
        f"other processes used {statistics.median(others):.0%} of all cores."
    )
    text = report.table(found, about)
    print(text)
    if statistics.median(others) > 0.1:
        print("the machine was not idle: discard these figures", file=sys.stderr)
    picture = f"![CPU time per request of rtad and its peers]({pathlib.Path(chart).name})"
    report.replace(pathlib.Path(table), f"{picture}\n\n{text}", "peers")
    pathlib.Path(chart).write_text(report.chart(found, about))


if __name__ == "__main__":
    main()
