"""What is published: the two audiences, by the real loader, straight into the bucket. Pods read it by way of the balancer."""

import json
import subprocess

from questions import AUDIENCE, Device, Devices
from waiting import check


class Store:
    def __init__(self, loader: str, url: str, devices: Devices):
        self.loader, self.url, self.devices = loader, url, devices

    def run(self, command: str, *arguments: str, ids: list[Device] | None = None) -> dict:
        words = [self.loader, command, "--store", self.url, "--audience", AUDIENCE, "--json", *arguments]
        text = None if ids is None else "".join(f"{device.md5}\n" for device in ids)
        done = subprocess.run(words + (["-"] if text else []), input=text, capture_output=True, text=True)
        check(done.returncode == 0, f"rtad-loader {command} ended with {done.returncode}: {done.stderr}")
        return json.loads(done.stdout)

    def build(self, after: bool) -> int:
        """Publishes one of the two audiences as the next generation; what `change` has done since the last one goes over it."""
        built = self.run("build", ids=self.devices.members(after))
        # A stranger that is taken for a member would be a wrong answer that is none.
        check(built["expected_fpr"] < 1e-9, f"strangers are taken for members: {built['expected_fpr']}")
        return built["generation"]

    def change(self, after: bool) -> tuple[int, int]:
        """Makes one audience of the other by deltas; returns generation and sequence."""
        come, leave = self.devices.coming, self.devices.leaving
        added, removed = (come, leave) if after else (leave, come)
        self.run("append", ids=added)
        facts = self.run("remove", ids=removed)
        return facts["generation"], facts["sequence"]
