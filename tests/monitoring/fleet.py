"""What the live tests look at: two pods of rtad, a writer, a Prometheus that scrapes them, and a little traffic.

One pod reads a store, the other a server that is not there, and so has what the first has put into the cache that both share.
"""

import contextlib
import http.client
import itertools
import json
import os
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path

import sources
import yaml

RTAD, LOADER, WORK = os.environ["RTAD"], os.environ["LOADER"], Path(os.environ["WORK"])
HERE = Path(__file__).parent
PATIENCE = 60
TOKEN = "a-token-of-24-characters"
# Of Tencent Ads: two hashed ids, made with protoc; and of Ocean Engine.
TENCENT = bytes.fromhex(
    "0a164a6f383235775f75456532784c6c4a554146777653512a4808021a20386433656264333635346662343661323833323239363636396366316235"
    "33363220383365393135386134666235346330653165663062323338363339613233616550034a0408808002"
)
OCEAN = bytes.fromhex(
    "0801122038643365626433363534666234366132383332323936363639636631623533364801620e32303234303631366162636465666a056c6f6361"
    "6c7204934e944e78018a01480a2038643365626433363534666234366132383332323936363639636631623533361a2431666539613937302d656662"
    "622d323965302d306264642d663564626266373531616235"
)


def get(address, path, **parameters):
    query = f"?{urllib.parse.urlencode(parameters, doseq=True)}" if parameters else ""
    with urllib.request.urlopen(f"http://{address}{path}{query}", timeout=PATIENCE) as answer:
        return answer.read().decode()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def until(what, true):
    end = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > end:
            raise AssertionError(f"in vain: {what}")
        time.sleep(0.1)


class Fleet:
    def __init__(self):
        self.ending = contextlib.ExitStack()
        self.folder = WORK / "fleet"
        self.folder.mkdir()
        self.store = self.folder / "store"
        self.ids = self.loader("synth", "--count", "2000").split()
        self.publish("old_users", self.ids[:1000])
        self.publish("vip", self.ids[900:1100])
        self.loader("append", "--store", self.store, "--audience", "old_users", "--quiet", "-", given=self.ids[1000])

    def close(self):
        self.ending.close()

    def loader(self, *words, given=None):
        return subprocess.run([LOADER, *map(str, words)], input=given, check=True, stdout=subprocess.PIPE, text=True).stdout

    def publish(self, audience, ids):
        options = ["--quiet", "--expires", "72h", "--max-shrink", "1", "-"]
        self.loader("build", "--store", self.store, "--audience", audience, *options, given="\n".join(ids))

    def start(self, name, *command, **environment):
        """A process that is stopped in the end, and must not have panicked; returns how to read its log."""
        log = self.folder / f"{name}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(command, stderr=file, stdout=file, cwd=self.folder, env={**os.environ, **environment})

        def stop():
            process.terminate()
            process.wait(PATIENCE)
            assert "panic" not in log.read_text(), log.read_text()

        self.ending.callback(stop)

        def said():
            assert process.poll() is None, f"{name} has ended: {log.read_text()}"
            return log.read_text()

        return said

    def address(self, said, name):
        """Of a port, from the log of who listens there."""

        def found():
            return [line[name] for line in map(json.loads, said().splitlines()) if name in line]

        until(name, found)
        return found()[0]

    def rtad(self, name, store):
        ports = {"RTAD_LISTEN": "127.0.0.1:0", "RTAD_ADMIN_LISTEN": "127.0.0.1:0"}
        where = {"RTAD_STORE": str(store), "RTAD_STORE_CACHE_DIR": str(self.folder / "cache")}
        said = self.start(name, RTAD, "serve", "--config", str(HERE / "rtad.toml"), **ports, **where)
        return self.address(said, "decision_address"), self.address(said, "admin_address")

    def writer(self):
        """`rtad-loader serve`, with a write or two."""
        port, admin = free_port(), free_port()
        (self.folder / "token").write_text(TOKEN)
        listen = ["--listen", f"127.0.0.1:{port}", "--admin-listen", f"127.0.0.1:{admin}"]
        said = self.start("writer", LOADER, "serve", "--store", str(self.store), "--token-file", str(self.folder / "token"), *listen)
        until("the writer", lambda: "listening for writes" in said())
        body = json.dumps({"op": "add", "ids": self.ids[1001:1003]}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/audiences/old_users/devices", body)
        request.add_header("Authorization", f"Bearer {TOKEN}")
        urllib.request.urlopen(request, timeout=PATIENCE).read()
        return f"127.0.0.1:{admin}"

    def prometheus(self, pods, writer):
        """Scrapes them twice a second, and evaluates the rules as often."""
        port = free_port()
        (self.folder / "rules.yaml").write_text(yaml.safe_dump(sources.rule_groups()))
        labels = {"namespace": "ads", "pod": ""}
        targets = [{"targets": [admin], "labels": labels | {"pod": f"rtad-{number}"}} for number, (_, admin) in enumerate(pods)]
        config = {
            "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "1s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [
                {"job_name": "rtad", "static_configs": targets},
                {"job_name": "rtad-writer", "static_configs": [{"targets": [writer], "labels": labels | {"pod": "writer-0"}}]},
            ],
        }
        (self.folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        said = self.start(
            "prometheus",
            "prometheus",
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=data",
            f"--web.listen-address=127.0.0.1:{port}",
        )
        address = f"127.0.0.1:{port}"

        def is_ready():
            said()
            with contextlib.suppress(OSError):
                return "Ready" in get(address, "/-/ready")

        until("Prometheus", is_ready)
        return address

    def traffic(self, address):
        """A request every few milliseconds, of every route, until the end: good, blank, malformed, unknown, and without the token."""
        stop = threading.Event()
        connection = http.client.HTTPConnection(address, timeout=PATIENCE)
        token, known, stranger = {"X-Rta-Token": "hush-hush"}, self.ids[0], self.ids[1999]
        check = [
            ("GET", f"/v1/check/old_users/{one}", None, {})
            for one in (known, stranger, "0" * 32, "not-an-id", f"{stranger}?kind=oaid")
        ]
        decide = [
            ("POST", "/v1/decide", json.dumps({"device": device}), {})
            for device in ({"imei_md5": known}, {"oaid": stranger, "mac": "02:00:00:00:00:00"}, {"idfa": "junk"}, {})
        ]
        platforms = [
            ("POST", "/rta/tencent", TENCENT, token),
            ("POST", "/rta/tencent", TENCENT, {}),
            ("POST", "/rta/tencent", b"\xff", token),
            ("POST", "/rta/ocean", OCEAN, {}),
        ]
        others = [("POST", "/v1/check/old_users", json.dumps({"ids": [known, stranger, ""]}), {}), ("GET", "/nowhere", None, {})]

        def ask():
            with contextlib.closing(connection):
                ask_on()

        def ask_on():
            for method, path, body, headers in itertools.cycle(check + decide + platforms + others):
                if stop.wait(0.005):
                    return
                connection.request(method, path, body, headers)
                connection.getresponse().read()

        thread = threading.Thread(target=ask)
        thread.start()
        self.ending.callback(thread.join)
        self.ending.callback(stop.set)
