"""The pod that the console shows: traffic for it, ids that it knows and does not know, and a store
that can be broken and mended."""

import contextlib
import hashlib
import http.client
import json
import math
import pathlib
import shutil
import threading
import time

from suites.testkit.client import ask
from suites.testkit.process import Rtad
from suites.testkit.programs import loader, synth

HERE = pathlib.Path(__file__).parent


def imeis(count, offset=0):
    """Made-up IMEIs: the first ones are old users."""
    return synth(count, "--offset", offset, "--id-kind", "imei")


MEMBERS = imeis(200)
STRANGERS = imeis(2000, 10**9)


def md5(device):
    return hashlib.md5(device.encode()).hexdigest()


def tencent(device):
    """A request of Tencent's about one IMEI, written by hand: an id, and a device with its md5."""
    return b"\x0a\x02r1\x2a\x22\x1a\x20" + md5(device).encode()


class Pod:
    """rtad over two audiences, one of which has an empty block in its map."""

    def __init__(self, folder, devices=300_000):
        self.folder, self.store = folder, folder / "store"
        self.current = self.store / "old_users" / "CURRENT"
        self.devices = folder / "old_users.txt"
        self.devices.write_text(loader("synth", "--count", devices, "--id-kind", "imei"))
        self.load("build", "old_users", self.devices)
        vip = folder / "vip.txt"
        vip.write_text("".join(f"{md5}\n" for md5 in with_a_hole(devices // 2)))
        loader("build", "--store", self.store, "--audience", "vip", "--quiet", vip)
        flags = ["--config", HERE / "rtad.toml", "--store", self.store]
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
        """The store with a `CURRENT` that says nothing, until it is left."""
        whole = self.current.read_bytes()
        self.current.write_text("nonsense")
        try:
            yield
        finally:
            self.current.write_bytes(whole)

    @contextlib.contextmanager
    def lost_store(self):
        """The audience's folder is not there, until it is left."""
        shutil.move(self.current.parent, self.folder / "lost")
        try:
            yield
        finally:
            shutil.move(self.folder / "lost", self.current.parent)

    def publish_again(self):
        """Another generation, of a few more devices."""
        more = self.folder / "more.txt"
        more.write_text(self.devices.read_text() + "\n".join(imeis(1000, 10**8)) + "\n")
        self.load("build", "old_users", more)

    def change(self):
        """One device more and two less: a delta over the generation."""
        for command, devices in (("append", imeis(1, 10**7)), ("remove", MEMBERS[100:102])):
            self.load(command, "old_users", "-", given="\n".join(devices) + "\n")

    def post(self, path, body):
        """What the admin port answers, as JSON."""
        answer = ask(self.admin, path, body)
        return answer.status, answer.json()

    def status(self):
        return ask(self.admin, "/v1/status").json()


def with_a_hole(count):
    """md5s that leave out a block of neighboring shards: an export that lost a part of its
    files."""
    for number in range(count):
        digest = hashlib.md5(f"vip-{number}".encode()).digest()
        if not (0x60 <= digest[0] < 0x70 and 0x40 <= digest[1] < 0xC0):
            yield digest.hex()


class Traffic(threading.Thread):
    """Asks as a platform and as a bidder, until it is stopped; in waves if it is for a picture."""

    def __init__(self, decisions, pause=0.002, in_waves=False):
        super().__init__(daemon=True)
        self.decisions, self.pause, self.in_waves = decisions, pause, in_waves
        self.is_stopped = threading.Event()
        self.asked = 0

    def run(self):
        connection = http.client.HTTPConnection(self.decisions, timeout=20)
        begun = time.monotonic()
        while not self.is_stopped.is_set():
            self.asked += 1
            known = self.asked % 3 == 0
            device = (MEMBERS if known else STRANGERS)[self.asked % 200]
            if self.asked % 4 == 0:
                body = {"device": {"imei": "__IMEI__" if self.asked % 20 == 0 else device}}
                connection.request("POST", "/v1/decide", json.dumps(body))
            elif self.asked % 7 == 0:
                connection.request("GET", f"/v1/check/old_users/{md5(device)}")
            else:
                connection.request("POST", "/rta/tencent", tencent(device))
            answer = connection.getresponse()
            assert answer.status == 200, answer.status
            answer.read()
            wave = (
                1.6
                + math.sin((time.monotonic() - begun) / 23)
                + 0.2 * math.sin((time.monotonic() - begun) / 3)
            )
            time.sleep(self.pause * (1 / wave if self.in_waves else 1))
        connection.close()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.is_stopped.set()
        self.join()
