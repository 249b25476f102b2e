"""Running programs of the live tests: two pods of rtad, a writer, a Prometheus, and light traffic.

One pod reads a store. The other has an unreachable store and serves from the shared cache.
"""

import contextlib
import http.client
import itertools
import json
from pathlib import Path

import yaml

from suites.monitoring import sources
from suites.testkit.client import says_yes
from suites.testkit.ports import HOST, free_port
from suites.testkit.process import Process, Rtad, Writer, repeating
from suites.testkit.programs import loader, synth
from suites.testkit.waiting import WAIT_SECONDS

HERE = Path(__file__).parent
# Requests of Tencent with two hashed ids, and of Ocean Engine, made with protoc.
TENCENT = bytes.fromhex(
    "0a164a6f383235775f75456532784c6c4a554146777653512a4808021a20386433656264333635346662343661323833323239363636396366316235"
    "33363220383365393135386134666235346330653165663062323338363339613233616550034a0408808002"
)
OCEAN = bytes.fromhex(
    "0801122038643365626433363534666234366132383332323936363639636631623533364801620e32303234303631366162636465666a056c6f6361"
    "6c7204934e944e78018a01480a2038643365626433363534666234366132383332323936363639636631623533361a2431666539613937302d656662"
    "622d323965302d306264642d663564626266373531616235"
)


# Of the writer: a window, and an audience that is published from it.
WINDOWS = """
state_dir = "windows"

[[window]]
name = "clicks"
length = "24h"
capacity = 100_000
count = 100
durability = "store"
callback.id = "oaid"

[[audience]]
name = "clicked"
from_window = "clicks"
"""


class Fleet:
    def __init__(self, folder):
        self.ending = contextlib.ExitStack()
        self.folder = folder
        self.store = self.folder / "store"
        self.ids = synth(2000)
        self.config = self.folder / "rtad.toml"
        text = (HERE / "rtad.toml").read_text()
        stores = f'[store]\ncache_dir = "cache"\ncaps_url = "{self.store}"\n'
        self.config.write_text(text.replace("[store]\n", stores))
        self.publish("old_users", self.ids[:1000])
        self.publish("vip", self.ids[900:1100])
        to = ["--store", self.store, "--audience", "old_users"]
        loader("append", *to, "--quiet", "-", given=self.ids[1000])

    def close(self):
        self.ending.close()

    def publish(self, audience, ids):
        to = ["--store", self.store, "--audience", audience]
        options = ["--quiet", "--expires", "72h", "--max-change", "any", "-"]
        loader("build", *to, *options, given="\n".join(ids))

    def rtad(self, name, store):
        """Starts a pod; returns the addresses of its two ports."""
        flags = ["--config", self.config, "--store", store]
        pod = Rtad(*flags, log=self.folder / f"{name}.log", cwd=self.folder)
        self.ending.enter_context(pod)
        return pod.decisions, pod.admin

    def writer(self):
        """Starts `rtad-writer` with a window, and writes to both."""
        writer = self.ending.enter_context(Writer(self.folder, WINDOWS))
        body = {"op": "add", "ids": self.ids[1001:1003]}
        written = writer.post("/v1/audiences/old_users/devices", body)
        assert written.status == 200, written
        counted = self.count(writer, [*self.ids[:5], self.ids[0], ""])
        assert counted.json()["new"] == [*[True] * 5, False, None], counted
        # Events of a new device, and of a known one.
        some = lambda number: [self.ids[number % 1000 + 5], self.ids[0]]  # noqa: E731
        self.repeat(lambda number: self.count(writer, some(number)), 0.2)
        return writer.admin

    def count(self, writer, ids):
        answer = writer.post("/v1/windows/clicks/events", {"ids": ids})
        assert answer.status == 200, answer
        return answer

    def repeat(self, action, seconds):
        """Runs an action in a thread at this interval until the end."""
        self.ending.enter_context(repeating(action, seconds))

    def prometheus(self, pods, writer):
        """Starts a Prometheus that scrapes and evaluates rules twice a second."""
        (self.folder / "rules.yaml").write_text(yaml.safe_dump(sources.rule_groups()))
        labels = {"namespace": "ads", "pod": ""}
        targets = [
            {"targets": [admin], "labels": labels | {"pod": f"rtad-{number}"}}
            for number, (_, admin) in enumerate(pods)
        ]
        config = {
            "global": {
                "scrape_interval": "500ms",
                "scrape_timeout": "500ms",
                "evaluation_interval": "1s",
            },
            "rule_files": ["rules.yaml"],
            "scrape_configs": [
                {"job_name": "rtad", "static_configs": targets},
                {
                    "job_name": "rtad-writer",
                    "static_configs": [
                        {"targets": [writer], "labels": labels | {"pod": "writer-0"}}
                    ],
                },
            ],
        }
        (self.folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        address = f"{HOST}:{free_port()}"
        flags = ["--config.file=prometheus.yml", "--storage.tsdb.path=data"]
        flags += [f"--web.listen-address={address}"]
        log = self.folder / "prometheus.log"
        prometheus = Process("prometheus", *flags, log=log, cwd=self.folder)
        self.ending.enter_context(prometheus)
        prometheus.until("ready", lambda: says_yes(address, "/-/ready"))
        return address

    def traffic(self, address):
        """Sends a request every few milliseconds to all routes until the end: valid, blank,
        malformed, unknown, and without the token."""
        connection = http.client.HTTPConnection(address, timeout=WAIT_SECONDS)
        token, member, non_member = {"X-Rta-Token": "hush-hush"}, self.ids[0], self.ids[1999]
        check = [
            ("GET", f"/v1/check/old_users/{one}", None, {})
            for one in (member, non_member, "0" * 32, "not-an-id", f"{non_member}?kind=oaid")
        ]
        decide = [
            ("POST", "/v1/decide", json.dumps({"device": device}), {})
            for device in (
                {"imei_md5": member},
                {"oaid": non_member, "mac": "02:00:00:00:00:00"},
                {"idfa": "junk"},
                {},
            )
        ]
        platforms = [
            ("POST", "/rta/tencent", TENCENT, token),
            ("POST", "/rta/tencent", TENCENT, {}),
            ("POST", "/rta/tencent", b"\xff", token),
            ("POST", "/rta/ocean", OCEAN, {}),
        ]
        others = [
            ("POST", "/v1/check/old_users", json.dumps({"ids": [member, non_member, ""]}), {}),
            ("GET", "/nowhere", None, {}),
        ]

        requests = itertools.cycle(check + decide + platforms + others)

        def ask_next(_):
            connection.request(*next(requests))
            connection.getresponse().read()

        self.ending.callback(connection.close)
        self.repeat(ask_next, 0.005)
