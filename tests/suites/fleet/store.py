"""Publisher of the two audiences: the real loader writes to the bucket, pods read it through
HAProxy."""

import json
import os

from suites.fleet.questions import AUDIENCE, Device, Devices
from suites.testkit.programs import loader


class Store:
    def __init__(self, s3_server: dict[str, str], devices: Devices):
        self.environment = os.environ | s3_server
        self.url, self.devices = s3_server["RTAD_TEST_BUCKET"], devices

    def run(self, command: str, ids: list[Device]) -> dict:
        to = ["--store", self.url, "--audience", AUDIENCE, "--json"]
        text = "".join(f"{device.md5}\n" for device in ids)
        return json.loads(loader(command, *to, "-", given=text, env=self.environment))

    def build(self, after: bool) -> int:
        """Publishes one of the two audiences as the next generation; deltas of `change` are
        kept."""
        built = self.run("build", ids=self.devices.members(after))
        # A false positive would be reported as a wrong answer.
        assert built["expected_fpr"] < 1e-9, f"expected false positives: {built['expected_fpr']}"
        return built["generation"]

    def change(self, after: bool) -> tuple[int, int]:
        """Changes one audience to the other by deltas; returns generation and sequence."""
        come, leave = self.devices.coming, self.devices.leaving
        added, removed = (come, leave) if after else (leave, come)
        self.run("append", ids=added)
        facts = self.run("remove", ids=removed)
        return facts["generation"], facts["sequence"]
