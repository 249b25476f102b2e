"""Servers under measurement: started on free ports, pinned to one core, measured and killed."""

import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Iterator

from suites.testkit.ports import accepts, free_port
from suites.testkit.process import Process

# Servers run on the first core, clients on the last: these are not hyper-thread siblings.
CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE, CLIENT_CORE = str(CORES[0]), str(CORES[-1])
# Enough for 1.5 billion devices.
START_SECONDS = 600
# Keys for redis-benchmark, which queries numbers of twelve digits.
NUMBERS = 1_000_000

CONFIG = """
[server]
listen = "127.0.0.1:0"
admin_listen = "127.0.0.1:0"
workers = 1
max_wait = "{max_wait}"
api = {{ public = true }}
[store]
url = "{store}"
max_snapshot_size = "64GiB"
poll_interval = "1s"
[[audience]]
name = "old_users"
required = true
[[strategy]]
name = "new-users"
exclude = ["old_users"]
[[platform]]
kind = "tencent"
name = "tencent"
path = "/rta/tencent"
strategies = {{ new = "new-users" }}
bid_cache = "1h"
no_bid_cache = "24h"
[[platform]]
kind = "ocean"
name = "ocean"
path = "/rta/ocean"
strategies = {{ 10003 = "new-users" }}
bid_cache = "1h"
no_bid_cache = "24h"
"""

# One process: a master process does not handle requests. Connections have no request limit.
NGINX = """
daemon off;
master_process off;
pid {work}/nginx.pid;
error_log stderr;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    server_tokens off;
    client_body_temp_path {work}/body;
    proxy_temp_path {work}/proxy;
    fastcgi_temp_path {work}/fastcgi;
    uwsgi_temp_path {work}/uwsgi;
    scgi_temp_path {work}/scgi;
    server {{
        listen 127.0.0.1:{port};
        location / {{ default_type application/json; return 200 '{{"member":true}}'; }}
    }}
}}
"""


@dataclasses.dataclass
class Running:
    """A running server, and its Redis if it has one."""

    address: str
    pid: int
    redis_pid: int | None = None
    # Address of the admin port of rtad.
    admin: str = ""

    def cpu_seconds(self) -> list[float]:
        """User and system time so far of the server, with all threads, and of its Redis."""
        redis = [0.0, 0.0] if self.redis_pid is None else cpu_seconds_of(self.redis_pid)
        return cpu_seconds_of(self.pid) + redis


def cpu_seconds_of(pid: int) -> list[float]:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return [int(field) / os.sysconf("SC_CLK_TCK") for field in fields[11:13]]


def busy_share() -> float:
    """CPU share of other work: busy share of all cores for a second without requests."""

    def times() -> tuple[int, int]:
        fields = [
            int(field)
            for field in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
        ]
        return fields[3] + fields[4], sum(fields)

    (idle, total), _ = times(), time.sleep(1)
    later_idle, later_all = times()
    return 1 - (later_idle - idle) / (later_all - total)


def stolen_seconds() -> float:
    """Steal time so far, mean of the two cores."""
    cores = {f"cpu{SERVER_CORE}", f"cpu{CLIENT_CORE}"}
    counted = [line.split() for line in pathlib.Path("/proc/stat").read_text().splitlines()]
    return (
        sum(int(fields[8]) for fields in counted if fields[0] in cores)
        / 2
        / os.sysconf("SC_CLK_TCK")
    )


@contextlib.contextmanager
def pinned(command: list[str], log=os.devnull, **more) -> Iterator[Process]:
    """A process on the server's core, killed at the end with its children."""
    words = ["taskset", "-c", SERVER_CORE, *command]
    process = Process(*words, log=log, start_new_session=True, **more)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def rtad(program: str, store: str, work: pathlib.Path, max_wait: str) -> Iterator[Running]:
    config, log = work / "rtad.toml", work / "rtad.log"
    config.write_text(CONFIG.format(store=store, max_wait=max_wait))
    log.unlink(missing_ok=True)
    with pinned([program, "serve", "--config", str(config)], log) as process:
        # The decision port opens after the snapshot is loaded.
        process.wait_for('"decision_address"', START_SECONDS)
        yield Running(
            process.field("decision_address"), process.pid, admin=process.field("admin_address")
        )


@contextlib.contextmanager
def nginx(work: pathlib.Path) -> Iterator[Running]:
    config, port = work / "nginx.conf", free_port()
    config.write_text(NGINX.format(work=work, port=port))
    with pinned(
        ["nginx", "-e", "stderr", "-p", str(work), "-c", str(config)], work / "nginx.log"
    ) as process:
        process.until("its port", lambda: accepts(port))
        yield Running(f"127.0.0.1:{port}", process.pid)


@contextlib.contextmanager
def peer(program: str, *arguments: str, redis_pid: int | None = None) -> Iterator[Running]:
    """One of the peer servers of src/."""
    with pinned([program, *arguments], stdout=subprocess.PIPE, stderr=None, text=True) as process:
        address = process.process.stdout.readline().strip()
        if not address:
            raise SystemExit(f"did not start: {process.process.args}")
        yield Running(address, process.pid, redis_pid)


class Redis:
    """Redis without persistence, on the same core as its client, so that a rate is per core."""

    def __init__(self, pid: int, port: int):
        self.pid, self.port = pid, port

    def command(self, *words: str, **more) -> str:
        command = ["redis-cli", "-p", str(self.port), *words]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **more).stdout

    def hold(self, loader: str, peers: str, ids: int) -> None:
        """Loads the first devices, as keys and as a Bloom filter, and numbers for
        redis-benchmark."""
        command = (
            f"{loader} synth --count {ids} | {peers} set-commands | redis-cli -p {self.port} --pipe"
        )
        sent = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command], check=True, stdout=subprocess.PIPE, text=True
        ).stdout
        assert f"errors: 0, replies: {ids}" in sent, sent
        command = f"{loader} synth --count {ids} | {peers} bitmap --ids {ids} | redis-cli -p {self.port} -x SET bloom"
        subprocess.run(
            ["bash", "-o", "pipefail", "-c", command], check=True, stdout=subprocess.DEVNULL
        )
        self.command(
            "EVAL",
            f"for i = 0, {NUMBERS - 1} do redis.call('SET', string.format('%012d', i), 1) end",
            "0",
        )
        assert int(self.command("DBSIZE")) == ids + NUMBERS + 1
        # Wait for the end of rehashing, which makes lookups slower.
        while "rehashing target" in self.command("DEBUG", "HTSTATS", "0"):
            self.benchmark(1_000_000, 64)

    def benchmark(self, count: int, pipeline: int) -> float:
        """Queries random numbers, half of them present; returns commands per second."""
        command = [
            "taskset",
            "-c",
            CLIENT_CORE,
            "redis-benchmark",
            "-p",
            str(self.port),
            "-c",
            "64",
            "-n",
            str(count),
        ]
        command += ["-P", str(pipeline), "-r", str(2 * NUMBERS), "--csv", "EXISTS", "__rand_int__"]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        return float(output.splitlines()[-1].split(",")[1].strip('"'))


@contextlib.contextmanager
def redis() -> Iterator[Redis]:
    port = free_port()
    command = [
        "redis-server",
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "no",
    ]
    with pinned([*command, "--enable-debug-command", "local"]) as process:
        process.until("its port", lambda: accepts(port))
        yield Redis(process.pid, port)
