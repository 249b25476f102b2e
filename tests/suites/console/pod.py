"""Pod of the console tests: traffic, member and non-member ids, and store failures."""

import contextlib
import hashlib
import http.client
import json
import math
import pathlib
import shutil
import time

from suites.testkit.client import ask
from suites.testkit.process import Rtad, repeating
from suites.testkit.programs import loader, synth

HERE = pathlib.Path(__file__).parent


def imeis(count, offset=0):
    """Synthetic IMEIs; the first ones are members."""
    return synth(count, "--offset", offset, "--id-kind", "imei")


MEMBERS = imeis(200)
NON_MEMBERS = imeis(2000, 10**9)


def md5(device):
    return hashlib.md5(device.encode()).hexdigest()


def tencent(device):
    """Hand-encoded Tencent request: an id, and a device with the md5 of one IMEI."""
    return b"\x0a\x02r1\x2a\x22\x1a\x20" + md5(device).encode()


class Pod:
    """rtad with two audiences, one with an empty block of shards."""

    def __init__(self, folder, devices=300_000, strategies=""):
        self.folder, self.store = folder, folder / "store"
        self.audience = self.store / "old_users"
        self.devices = folder / "old_users.txt"
        self.devices.write_text(loader("synth", "--count", devices, "--id-kind", "imei"))
        self.load("build", "old_users", self.devices)
        vip = folder / "vip.txt"
        vip.write_text("".join(f"{md5}\n" for md5 in with_a_hole(devices // 2)))
        loader("build", "--store", self.store, "--audience", "vip", "--quiet", vip)
        self.config = folder / "rtad.toml"
        self.config.write_text((HERE / "rtad.toml").read_text() + strategies)
        flags = ["--config", self.config, "--store", self.store]
        self.rtad = Rtad(*flags, log=folder / "log")

    def __enter__(self):
        self.decisions, self.admin = self.rtad.decisions, self.rtad.admin
        return self

    def __exit__(self, *error):
        self.rtad.__exit__(*error)

    def load(self, command, audience, file, given=None):
        to = ["--store", self.store, "--audience", audience, "--id-kind", "imei", "--quiet"]
        loader(command, *to, file, given=given)

    @contextlib.contextmanager
    def broken_store(self):
        """Context with a damaged newest record."""
        newest = max(self.audience.glob("records/*.json"))
        whole = newest.read_bytes()
        newest.write_text("nonsense")
        try:
            yield
        finally:
            newest.write_bytes(whole)

    @contextlib.contextmanager
    def lost_store(self):
        """Context without the folder of the audience."""
        shutil.move(self.audience, self.folder / "lost")
        try:
            yield
        finally:
            shutil.move(self.folder / "lost", self.audience)

    @contextlib.contextmanager
    def broken_config(self):
        """Context with a config of two mistakes, whose reload was refused."""
        text = self.config.read_text()
        broken = text.replace("[server.api]", '[server]\nmax_body = "x"\n[server.api]\nnonsense = 1')
        self.config.write_text(broken)
        assert ask(self.admin, "/v1/reload", b"").status == 422
        try:
            yield
        finally:
            self.config.write_text(text)
            assert ask(self.admin, "/v1/reload", b"").status == 200

    def publish_again(self):
        """Publishes another generation with a few more devices."""
        more = self.folder / "more.txt"
        more.write_text(self.devices.read_text() + "\n".join(imeis(1000, 10**8)) + "\n")
        self.load("build", "old_users", more)

    def change(self):
        """Publishes a delta: one device added, two removed."""
        for command, devices in (("append", imeis(1, 10**7)), ("remove", MEMBERS[100:102])):
            self.load(command, "old_users", "-", given="\n".join(devices) + "\n")

    def post(self, path, body):
        """POSTs to the admin port; returns status and JSON."""
        answer = ask(self.admin, path, body)
        return answer.status, answer.json()

    def status(self):
        return self.rtad.status()


def with_a_hole(count):
    """md5s without a block of neighboring shards, like an export with missing files."""
    for number in range(count):
        digest = hashlib.md5(f"vip-{number}".encode()).digest()
        if not (0x60 <= digest[0] < 0x70 and 0x40 <= digest[1] < 0xC0):
            yield digest.hex()


@contextlib.contextmanager
def traffic(decisions, pause=0.002, in_waves=False):
    """Sends platform and /v1/decide requests; in waves for screenshots. Yields the paths sent."""
    connection = http.client.HTTPConnection(decisions, timeout=20)
    sent, begun = [], time.monotonic()

    def send(number):
        device = (NON_MEMBERS if number % 3 else MEMBERS)[number % 200]
        if number % 4 == 0:
            body = {"device": {"imei": device if number % 20 else "__IMEI__"}}
            request = ("POST", "/v1/decide", json.dumps(body))
        elif number % 7 == 0:
            request = ("GET", f"/v1/check/old_users/{md5(device)}")
        else:
            request = ("POST", "/rta/tencent", tencent(device))
        connection.request(*request)
        answer = connection.getresponse()
        assert answer.status == 200, answer.status
        answer.read()
        sent.append(request[1])
        if in_waves:
            seconds = time.monotonic() - begun
            wave = 1.6 + math.sin(seconds / 23) + 0.2 * math.sin(seconds / 3)
            time.sleep(pause * max(0, 1 / wave - 1))

    with contextlib.closing(connection), repeating(send, pause):
        yield sent
