"""The pods: what Kubernetes does to them, and what they say of themselves at their admin ports."""

import contextlib
import http.client
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess

from waiting import PATIENCE_SECONDS, Failed, check, until

HOST = "127.0.0.1"
CONFIG = pathlib.Path(__file__).with_name("rtad.toml")


def free_ports(number: int) -> list[int]:
    """Of those that the kernel does not give to connections by itself, if there are: a pod that is started again needs its own back."""
    first_of_kernel = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    below = range(first_of_kernel - 1 - os.getpid() % 10_000, 1024, -1)
    found = []
    with contextlib.ExitStack() as held:
        for port in itertools.chain(below, itertools.repeat(0, number)):
            one = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                one.bind((HOST, port))
                found.append(one.getsockname()[1])
            if len(found) == number:
                return found
    raise Failed("no free ports")


class Pod:
    """One rtad with a config, a cache and a log of its own; its two ports are the same whenever it is started."""

    def __init__(self, program: str, name: str, work: pathlib.Path, ports: list[int], environment: dict[str, str]):
        self.program, self.name, self.process = program, name, None
        self.port, self.admin_port = ports
        self.folder = work / name
        self.folder.mkdir()
        self.config, self.cache, self.log = (self.folder / file for file in ("rtad.toml", "cache", "log"))
        shutil.copy(CONFIG, self.config)
        self.environment = os.environ | environment
        self.environment |= {"RTAD_LISTEN": f"{HOST}:{self.port}", "RTAD_ADMIN_LISTEN": f"{HOST}:{self.admin_port}"}
        self.environment |= {"RTAD_STORE_CACHE_DIR": str(self.cache)}

    def start(self) -> None:
        command = [self.program, "serve", "--config", str(self.config)]
        with self.log.open("a") as log:
            self.process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)

    def until_ready(self) -> None:
        def ready() -> bool:
            check(self.process.poll() is None, f"{self.name} ended with {self.process.returncode}")
            return self.is_ready()

        until(f"{self.name} is ready", ready)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ends(self) -> int:
        """Waits for its end; returns its exit code."""
        until(f"{self.name} ends", lambda: self.process.poll() is not None)
        return self.process.returncode

    def stop(self) -> None:
        """However it is. Never later than now, as nothing that it would still do is of use."""
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def asked(self, method: str, path: str, body: bytes | None = None, port: int | None = None) -> tuple[int, bytes]:
        """Status and body of an answer of its admin port, or of another of its ports."""
        connection = http.client.HTTPConnection(HOST, port or self.admin_port, timeout=PATIENCE_SECONDS)
        with contextlib.closing(connection):
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def answers(self, path: str) -> bool:
        """Whether its admin port says yes."""
        try:
            return self.asked("GET", path)[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def is_ready(self) -> bool:
        return self.answers("/readyz")

    def serves(self) -> tuple[int, int]:
        """Generation and sequence; (0, 0) before there is one."""
        audience = json.loads(self.asked("GET", "/v1/status")[1])["audiences"][0]
        snapshot = audience.get("snapshot")
        return (snapshot["generation"], snapshot["deltas"]["sequence"]) if snapshot else (0, 0)

    def strategies(self) -> list[str]:
        return json.loads(self.asked("GET", "/v1/status")[1])["strategies"]

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric over the series that have these labels."""
        wanted, total = {f'{label}="{value}"' for label, value in labels.items()}, 0.0
        for line in self.asked("GET", "/metrics")[1].decode().splitlines():
            if found := re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line):
                if wanted <= set((found[1] or "").split(",")):
                    total += float(found[2])
        return total

    def events(self, level: str) -> list[dict]:
        """Lines of its log; rtad writes them as JSON."""
        lines = self.log.read_text().splitlines()
        events = [json.loads(line) for line in lines if line.startswith("{")]
        return [event for event in events if event["level"] == level]
