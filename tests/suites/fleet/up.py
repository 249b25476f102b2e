"""`make fleet`: three rtad behind HAProxy on this machine, with a store of synthetic devices in a
directory.

    PYTHONPATH=tests python3 -m suites.fleet.up

Prints requests to paste. A pod that ends is restarted, as by Kubernetes. Ctrl-C ends everything and
removes its files. Environment: DEVICES (1000000); FLEET_LISTEN (127.0.0.1:8000), the address of
HAProxy for platforms; FLEET_INTERNAL (127.0.0.1:8001), its address for own services; POD_1
(127.0.0.1:8081) to POD_3, addresses of the pods; POD_1_ADMIN (9091) to POD_3_ADMIN, their admin
ports.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from suites.testkit.client import says_yes
from suites.testkit.ports import HOST, accepts
from suites.testkit.process import Process, Rtad
from suites.testkit.programs import LOADER, ROOT

NUMBERS = (1, 2, 3)
DEFAULTS = {"DEVICES": "1000000", "FLEET_LISTEN": f"{HOST}:8000"}
DEFAULTS |= {"FLEET_INTERNAL": f"{HOST}:8001"}
DEFAULTS |= {f"POD_{number}": f"{HOST}:808{number}" for number in NUMBERS}
DEFAULTS |= {f"POD_{number}_ADMIN": f"909{number}" for number in NUMBERS}

PRINTED = """
Three pods serve {devices} synthetic devices behind http://{front}. Paste; the answer follows #:

curl http://{front}/v1/check/old_users/{member} # {{"member":true}}
curl http://{front}/v1/check/old_users/{new_device} # {{"member":false}}
curl http://{front}/v1/decide -d '{{"device":{{"imei_md5":"{new_device}"}}}}' # {{"decisions":[{{"strategy":"new-users","bid":true,"reason":"not_member"}}]}}

Stop or kill a pod, and repeat the requests: the pod is restarted, and no request fails.

kill -TERM $(cat {work}/pod1.pid)
kill -KILL $(cat {work}/pod2.pid)

Make the new device a member. After some seconds each pod serves the delta; its admin port shows it:

echo {new_device} | {loader} append --store {work}/store --audience old_users -
curl http://{admin}/v1/status

Platforms reach http://{platforms}, where HAProxy admits their paths alone. The logs are
{work}/*.log. Stop with Ctrl-C."""
CONFIG = """
[[audience]]
name = "old_users"
[[strategy]]
name = "new-users"
exclude = ["old_users"]
"""


class Fleet:
    def __init__(self, work):
        self.work, self.pods = work, {}
        self.config = work / "rtad.toml"
        self.config.write_text(CONFIG)
        self.environment = DEFAULTS | os.environ
        self.front = self.environment["FLEET_INTERNAL"]

    def loader(self, *words, **options):
        return subprocess.run([LOADER, *words], check=True, text=True, **options)

    def build(self):
        to = ["--store", self.work / "store", "--audience", "old_users", "--quiet"]
        with subprocess.Popen(
            [LOADER, "synth", "--count", self.devices], stdout=subprocess.PIPE
        ) as ids:
            self.loader("build", *to, "-", stdin=ids.stdout)
        assert ids.returncode == 0, "making the devices failed"

    @property
    def devices(self):
        return self.environment["DEVICES"]

    def synth(self, *flags):
        return self.loader("synth", *flags, stdout=subprocess.PIPE).stdout.strip()

    def admin(self, number):
        host = self.environment[f"POD_{number}"].rpartition(":")[0]
        return f"{host}:{self.environment[f'POD_{number}_ADMIN']}"

    def start(self, number):
        """Starts a pod and waits until it is ready."""
        listen = {"RTAD_LISTEN": self.environment[f"POD_{number}"]}
        listen |= {"RTAD_ADMIN_LISTEN": self.admin(number), "RTAD_DRAIN_TIMEOUT": "8s"}
        log = self.work / f"pod{number}.log"
        flags = ["--config", self.config, "--store", self.work / "store"]
        pod = Rtad(*flags, log=log, variables=listen)
        self.pods[number] = pod
        (self.work / f"pod{number}.pid").write_text(str(pod.pid))
        pod.until("ready", lambda: says_yes(self.admin(number), "/readyz"))

    def balance(self):
        command = ["haproxy", "-db", "-f", ROOT / "docs/haproxy.cfg"]
        log = self.work / "haproxy.log"
        self.balancer = Process(*command, log=log, env=self.environment)
        self.balancer.until("listens", lambda: accepts(int(self.front.rpartition(":")[2])))

    def print(self):
        values = {"devices": self.devices, "front": self.front, "work": self.work}
        values["platforms"] = self.environment["FLEET_LISTEN"]
        values |= {"member": self.synth("--count", "1"), "admin": self.admin(1), "loader": LOADER}
        values["new_device"] = self.synth("--offset", self.devices, "--count", "1")
        print(PRINTED.format(**values), flush=True)

    def watch(self):
        while True:
            time.sleep(0.5)
            assert self.balancer.process.poll() is None, self.balancer.text()
            for number, pod in self.pods.items():
                if pod.process.poll() is not None:
                    print(f"pod {number} has ended; restarting it", flush=True)
                    with contextlib.suppress(AssertionError):
                        self.start(number)

    def run(self):
        self.balancer = None
        try:
            self.build()
            for number in NUMBERS:
                self.start(number)
            self.balance()
            self.print()
            self.watch()
        finally:
            # No more requests.
            if self.balancer:
                self.balancer.kill()
            for pod in self.pods.values():
                pod.stop()


def main():
    os.environ["PATH"] += ":/usr/sbin"
    # SIGINT too: a shell ignores it in background processes.
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as work, contextlib.suppress(KeyboardInterrupt):
        Fleet(pathlib.Path(work)).run()


if __name__ == "__main__":
    sys.exit(main())
