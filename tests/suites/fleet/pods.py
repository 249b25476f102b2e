"""Pods: start, signals and stop as by Kubernetes, and state from their admin ports."""

import pathlib

from suites.testkit.client import metric, says_yes
from suites.testkit.ports import HOST
from suites.testkit.process import Rtad

CONFIG = pathlib.Path(__file__).with_name("rtad.toml")


class Pod(Rtad):
    """One rtad with its own config, cache, log, and two fixed ports."""

    def __init__(self, name: str, work: pathlib.Path, ports: list[int], variables: dict[str, str]):
        self.port, self.admin_port = ports
        self.address, self.at_admin = (f"{HOST}:{port}" for port in ports)
        folder = work / name
        folder.mkdir()
        self.config, self.cache = folder / "rtad.toml", folder / "cache"
        text = CONFIG.read_text().replace("[store]\n", f'[store]\ncache_dir = "{self.cache}"\n')
        self.config.write_text(text)
        listens = {"RTAD_LISTEN": self.address, "RTAD_ADMIN_LISTEN": self.at_admin}
        variables = variables | listens
        super().__init__("--config", self.config, log=folder / "log", variables=variables)
        self.name = name

    @property
    def admin(self) -> str:
        return self.at_admin

    def until_ready(self) -> None:
        self.until("ready", self.is_ready)

    def is_ready(self) -> bool:
        return says_yes(self.admin, "/readyz")

    def is_live(self) -> bool:
        return says_yes(self.admin, "/livez")

    def serves(self) -> tuple[int, int]:
        """Generation and sequence; (0, 0) without a snapshot."""
        snapshot = self.status()["audiences"][0].get("snapshot")
        return (snapshot["generation"], snapshot["deltas"]["sequence"]) if snapshot else (0, 0)

    def metric(self, name: str, **labels: str) -> float:
        """Sum of a metric over the series with these labels."""
        return metric(self.admin, name, **labels)
