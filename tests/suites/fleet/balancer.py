"""HAProxy with the recommended config, its runtime API and its log. It also proxies the store, so
that tests can cut it off."""

import csv
import os
import pathlib
import socket
import subprocess

from suites.testkit.process import Process
from suites.testkit.programs import ROOT
from suites.testkit.waiting import wait_until

CONFIG = ROOT / "docs/haproxy.cfg"

# One thread, as it shares two cores with all other processes.
MORE = """
global
    nbthread 1
    stats socket "{socket}" level admin

defaults store
    mode tcp
    timeout connect 5s
    timeout client 2m
    timeout server 2m

listen store from store
    bind "{store}"
    server s3 "{s3}"
"""


class Balancer:
    def __init__(
        self,
        work: pathlib.Path,
        ports: list[list[int]],
        platforms: str,
        address: str,
        store: str,
        s3: str,
    ):
        """`ports` has both ports of each pod. `platforms`, `address` and `store` are listen
        addresses: for platforms, for all requests, and of the store; `s3` is the address of the
        real store."""
        self.platforms, self.address = platforms, address
        self.socket, self.log = work / "haproxy.sock", work / "haproxy.log"
        more = work / "more.cfg"
        more.write_text(MORE.format(socket=self.socket, store=store, s3=s3))
        environment = os.environ | {"FLEET_LISTEN": platforms, "FLEET_INTERNAL": address}
        for number, (port, admin_port) in enumerate(ports, 1):
            environment |= {
                f"POD_{number}": f"127.0.0.1:{port}",
                f"POD_{number}_ADMIN": str(admin_port),
            }
        command = ["haproxy", "-db", "-f", str(CONFIG), "-f", str(more)]
        checked = subprocess.run([*command, "-c"], env=environment, capture_output=True, text=True)
        assert checked.returncode == 0 and "WARNING" not in checked.stderr, (
            f"haproxy -c: {checked.stdout}{checked.stderr}"
        )
        self.process = Process(*command, log=self.log, env=environment)
        try:
            self.process.until("its socket", self.socket.exists)
        except AssertionError:
            self.stop()
            raise

    def stop(self) -> None:
        self.process.kill()

    def command(self, command: str) -> str:
        with socket.socket(socket.AF_UNIX) as runtime:
            runtime.connect(str(self.socket))
            runtime.sendall(command.encode() + b"\n")
            return "".join(iter(lambda: runtime.recv(65536).decode(), "")).strip()

    def servers(self) -> dict[str, dict[str, str]]:
        """Statistics of each pod, by name."""
        rows = csv.DictReader(self.command("show stat").removeprefix("# ").splitlines())
        return {
            row["svname"]: row
            for row in rows
            if row["pxname"] == "pods" and row["svname"] != "BACKEND"
        }

    def in_flight(self, pod) -> int:
        """Number of requests the pod has not answered yet."""
        return int(self.servers()[pod.name]["scur"])

    def retried(self) -> int:
        """Number of requests retried because a pod did not answer."""
        return sum(
            int(server["wretr"]) + int(server["wredis"]) for server in self.servers().values()
        )

    def until(self, status: str, pod) -> None:
        """Waits until its health checks report the pod `UP` or `DOWN`."""
        wait_until(
            f"HAProxy holds {pod.name} for {status}",
            lambda: self.servers()[pod.name]["status"].startswith(status),
        )

    def cut_store(self) -> None:
        """Cuts all pods off from the store, including open connections."""
        assert not self.command("disable server store/s3"), "disable server"
        assert not self.command("shutdown sessions server store/s3"), "shutdown sessions"

    def restore_store(self) -> None:
        assert not self.command("enable server store/s3"), "enable server"

    def failures(self) -> list[str]:
        """Log of requests answered by HAProxy itself, without a pod: `pods/NAME METHOD STATUS
        …`."""
        lines = [
            line.split(" ", 1)[1]
            for line in self.log.read_text().splitlines()
            if " pods/" in line and "retries:" in line
        ]
        return [line for line in lines if line.split()[2] != "200"]
