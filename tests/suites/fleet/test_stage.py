"""A staged list: one pod of ten serves it, an alert's condition sees that it is wrong, and a rollback
ends it."""

import contextlib
import hashlib
import http.client
import json
import random
import subprocess

import pytest

from suites.testkit import programs
from suites.testkit.client import metric
from suites.testkit.process import Rtad
from suites.testkit.waiting import wait_until

AUDIENCE, STRATEGY = "old_users", "new_users"
PODS = 10
OLD_USERS = 20_000
# Of the condition of RtadStagedListDiffers.
LEAST_DIFFERENCE = 0.05

CONFIG = f"""
[store]
url = "{{store}}"
poll_interval = "1s"
cache_dir = "{{cache}}"

[server.api]
public = true

[[audience]]
name = "{AUDIENCE}"

[[strategy]]
name = "{STRATEGY}"
exclude = ["{AUDIENCE}"]
"""


def place(pod: str) -> int:
    """Place of a pod among a million, by the specification in snapshot-format.md."""
    digest = hashlib.sha256(f"{pod}\0{AUDIENCE}".encode()).digest()
    return int.from_bytes(digest[:4], "big") * 1_000_000 >> 32


def md5s(prefix: str) -> list[str]:
    return [hashlib.md5(f"{prefix}-{n}".encode()).hexdigest() for n in range(OLD_USERS)]


class Loader:
    def __init__(self, folder):
        self.folder, self.store = folder, folder / "store"

    def run(self, command, *flags):
        flags = ("--store", self.store, "--audience", AUDIENCE, *flags)
        words = [programs.LOADER, command, "--json", *map(str, flags)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def fails(self, command):
        words = [programs.LOADER, command, "--store", self.store, "--audience", AUDIENCE]
        return subprocess.run(words, capture_output=True, check=False).returncode

    def build(self, devices, *flags):
        file = self.folder / "md5s"
        file.write_text("\n".join(devices) + "\n")
        flags = ("--max-change", "any", *flags)
        return self.run("build", file, *flags)["generation"]


class Fleet:
    def __init__(self, folder, stack):
        self.folder, self.stack, self.pods = folder, stack, {}
        for number in range(PODS):
            self.start(f"rtad-{number}")
        for pod in self.pods.values():
            pod.field("decision_address")

    def start(self, name):
        config = self.folder / f"{name}.toml"
        text = CONFIG.format(store=self.folder / "store", cache=self.folder / name)
        config.write_text(text)
        pod = Rtad(
            "--config", config, log=self.folder / f"{name}.log", variables={"HOSTNAME": name}
        )
        self.pods[name] = self.stack.enter_context(pod)

    def restart(self, name):
        pod = self.pods[name]
        pod.stop()
        pod.log.unlink()
        pod.start()
        pod.field("decision_address")

    def generations(self):
        """Served generations and whether they are staged, by pod."""
        found = {}
        for name, pod in self.pods.items():
            snapshot = pod.status()["audiences"][0]["snapshot"]
            staged = metric(pod.admin, "rtad_snapshot_staged", audience=AUDIENCE) == 1
            if staged != snapshot["staged"]:
                # The pod has swapped between the two readings: the next look decides.
                return None
            found[name] = (snapshot["generation"], staged)
        return found

    def becomes(self, expected):
        wait_until(f"the fleet serves {expected}", lambda: self.generations() == expected)

    def shares(self, devices):
        """Each pod's share of decisions by reason, over these devices alone."""
        found = {}
        for name, pod in self.pods.items():
            before = self.reasons(pod)
            connection = http.client.HTTPConnection(pod.decisions)
            with contextlib.closing(connection):
                for md5 in devices:
                    connection.request("POST", "/v1/decide", json.dumps({"device": {"imei_md5": md5}}))
                    answer = connection.getresponse()
                    assert answer.read() and answer.status == 200, name
            after = self.reasons(pod)
            total = sum(after.values()) - sum(before.values())
            assert total == len(devices), name
            found[name] = {why: (after[why] - before[why]) / total for why in after}
        return found

    @staticmethod
    def reasons(pod):
        def count(reason):
            return metric(pod.admin, "rtad_decisions_total", strategy=STRATEGY, reason=reason)

        return {reason: count(reason) for reason in ["member", "not_member", "unavailable"]}


@pytest.fixture
def loader(tmp_path):
    return Loader(tmp_path)


def test_a_wrong_list_reaches_one_pod_of_ten_and_is_rolled_back(loader, tmp_path):
    right, wrong = md5s("right"), md5s("wrong")
    assert loader.build(right) == 1
    names = [f"rtad-{number}" for number in range(PODS)]
    first, second = sorted(names, key=place)[:2]
    of_first, of_second = (f"{(place(name) + 1) / 10_000:.4f}%" for name in (first, second))
    plain = dict.fromkeys(names, (1, False))

    with contextlib.ExitStack() as stack:
        fleet = Fleet(tmp_path, stack)
        fleet.becomes(plain)
        assert loader.build(wrong, "--stage", of_first) == 2
        fleet.becomes(plain | {first: (2, True)})

        # Half of the requests are of old users.
        asked = random.Random(7).sample(right, 200) + md5s("new")[:200]
        shares = fleet.shares(asked)
        differences = {
            name: max(abs(shares[name][why] - shares[second][why]) for why in shares[name])
            for name in names
        }
        differing = [name for name in names if differences[name] > LEAST_DIFFERENCE]
        assert differing == [first], differences

        # By its name, a pod takes the stage again; appends go to both generations.
        fleet.restart(first)
        fleet.becomes(plain | {first: (2, True)})

        assert loader.run("rollback")["generation"] == 1
        fleet.becomes(plain)
        shares = fleet.shares(asked)
        assert shares[first] == shares[second]
        # A repeated rollback does not reach the live generation.
        assert loader.fails("rollback") == 2
        fleet.becomes(plain)

        # A list that is right: one pod, then two, then all.
        assert loader.build([*right, *md5s("more")[:100]], "--stage", of_first) == 3
        fleet.becomes(plain | {first: (3, True)})
        loader.run("promote", "--stage", of_second)
        fleet.becomes(plain | {first: (3, True), second: (3, True)})
        loader.run("promote", "--stage", of_first)
        fleet.becomes(plain | {first: (3, True)})
        assert loader.run("promote")["generation"] == 3
        fleet.becomes(dict.fromkeys(names, (3, False)))
