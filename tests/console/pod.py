"""The pod that the console shows: traffic for it, ids that it knows and does not know, and a store that can be broken and mended."""

import hashlib
import http.client
import json
import math
import os
import pathlib
import shutil
import subprocess
import threading
import time

DECISIONS = os.environ["RTAD_DECISIONS"]
ADMIN = os.environ["RTAD_ADMIN"]
LOADER = os.environ["RTAD_LOADER"]
WORK = pathlib.Path(os.environ["RTAD_WORK"])
CURRENT = WORK / "store" / "old_users" / "CURRENT"


def synth(count, offset=0):
    """Made-up IMEIs: the first ones are old users."""
    command = [LOADER, "synth", "--count", str(count), "--offset", str(offset), "--id-kind", "imei"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


MEMBERS = synth(200)
STRANGERS = synth(2000, 10**9)


def md5(device):
    return hashlib.md5(device.encode()).hexdigest()


def tencent(device):
    """A request of Tencent's about one IMEI, written by hand: an id, and a device with its md5."""
    return b"\x0a\x02r1\x2a\x22\x1a\x20" + md5(device).encode()


class Traffic(threading.Thread):
    """Asks as a platform and as a bidder, until it is stopped; in waves if it is for a picture."""

    def __init__(self, pause=0.002, in_waves=False):
        super().__init__(daemon=True)
        self.pause, self.in_waves = pause, in_waves
        self.is_stopped = threading.Event()
        self.asked = 0

    def run(self):
        connection = http.client.HTTPConnection(DECISIONS, timeout=20)
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
            wave = 1.6 + math.sin((time.monotonic() - begun) / 23) + 0.2 * math.sin((time.monotonic() - begun) / 3)
            time.sleep(self.pause * (1 / wave if self.in_waves else 1))
        connection.close()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.is_stopped.set()
        self.join()


class BrokenStore:
    """The store with a `CURRENT` that says nothing, until it is left."""

    def __enter__(self):
        self.whole = CURRENT.read_bytes()
        CURRENT.write_text("nonsense")

    def __exit__(self, *_):
        CURRENT.write_bytes(self.whole)


class LostStore:
    """The audience's folder is not there, until it is left."""

    def __enter__(self):
        shutil.move(CURRENT.parent, WORK / "lost")

    def __exit__(self, *_):
        shutil.move(WORK / "lost", CURRENT.parent)


def publish_again():
    """Another generation, of a few more devices."""
    more = WORK / "more.txt"
    more.write_text((WORK / "old_users.txt").read_text() + "\n".join(synth(1000, 10**8)) + "\n")
    command = [LOADER, "build", "--store", WORK / "store", "--audience", "old_users", "--id-kind", "imei", "--quiet", more]
    subprocess.run(command, check=True, capture_output=True)


def change():
    """One device more and two less: a delta over the generation."""
    for verb, devices in (("append", synth(1, 10**7)), ("remove", MEMBERS[100:102])):
        command = [LOADER, verb, "--store", WORK / "store", "--audience", "old_users", "--id-kind", "imei", "--quiet", "-"]
        subprocess.run(command, check=True, capture_output=True, input="\n".join(devices) + "\n", text=True)


def ask(method, path, body=None, headers=None):
    """What the admin port answers, as JSON."""
    connection = http.client.HTTPConnection(ADMIN, timeout=20)
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    told = answer.status, json.loads(answer.read())
    connection.close()
    return told


def post(path, body, headers=None):
    return ask("POST", path, body, headers)


def status():
    return ask("GET", "/v1/status")[1]
