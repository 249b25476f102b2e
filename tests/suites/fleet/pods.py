"""Pods: start, signals and stop as by Kubernetes, and state from their admin ports."""

import pathlib
import re
import shutil
import signal

from suites.testkit.client import ask, says_yes
from suites.testkit.ports import HOST
from suites.testkit.process import Rtad

CONFIG = pathlib.Path(__file__).with_name("rtad.toml")


class Pod:
    """One rtad with its own config, cache, log, and two fixed ports."""

    def __init__(self, name: str, work: pathlib.Path, ports: list[int], variables: dict[str, str]):
        self.name, self.rtad = name, None
        self.port, self.admin_port = ports
        self.address, self.admin = f"{HOST}:{self.port}", f"{HOST}:{self.admin_port}"
        self.folder = work / name
        self.folder.mkdir()
        files = ("rtad.toml", "cache", "log")
        self.config, self.cache, self.log = (self.folder / file for file in files)
        shutil.copy(CONFIG, self.config)
        self.variables = variables | {
            "RTAD_LISTEN": self.address,
            "RTAD_ADMIN_LISTEN": self.admin,
            "RTAD_STORE_CACHE_DIR": str(self.cache),
        }

    def start(self) -> None:
        self.rtad = Rtad("--config", self.config, log=self.log, variables=self.variables)

    def until_ready(self) -> None:
        self.rtad.until(f"{self.name} is ready", self.is_ready)

    def signal(self, number: signal.Signals) -> None:
        self.rtad.signal(number)

    def ends(self) -> int:
        """Waits for its end; returns its exit code."""
        return self.rtad.wait()

    def stop(self) -> None:
        """Kills it in any state."""
        if self.rtad:
            self.rtad.kill()

    def is_ready(self) -> bool:
        return says_yes(self.admin, "/readyz")

    def is_live(self) -> bool:
        return says_yes(self.admin, "/livez")

    def serves(self) -> tuple[int, int]:
        """Generation and sequence; (0, 0) without a snapshot."""
        snapshot = ask(self.admin, "/v1/status").json()["audiences"][0].get("snapshot")
        return (snapshot["generation"], snapshot["deltas"]["sequence"]) if snapshot else (0, 0)

    def strategies(self) -> list[str]:
        return ask(self.admin, "/v1/status").json()["strategies"]

    def metric(self, name: str, **labels: str) -> float:
        """Sum of a metric over the series with these labels."""
        wanted, total = {f'{label}="{value}"' for label, value in labels.items()}, 0.0
        for line in ask(self.admin, "/metrics").text().splitlines():
            if found := re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line):
                if wanted <= set((found[1] or "").split(",")):
                    total += float(found[2])
        return total

    def events(self, level: str) -> list[dict]:
        """Log events of this level."""
        return [event for event in self.rtad.events() if event["level"] == level]
