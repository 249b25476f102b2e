"""The decision log of pods that are killed, that share a folder, whose disk is full, and whose
bucket is unavailable."""

import os
import random
import re
import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow.fs
import pyarrow.parquet
import pytest

from suites.decision_log.pod import TOKEN, Pod, about, closed, make_store, request_ids
from suites.testkit.client import ask
from suites.testkit.ports import HOST, free_port
from suites.testkit.process import Process
from suites.testkit.programs import ROOT
from suites.testkit.seeds import SEED
from suites.testkit.waiting import wait_until

PODS, KILLS, LONG_KILLS = 4, 20, 100
KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture
def folder(tmp_path):
    make_store(tmp_path, {"old_users": ["000000000000001"], "high_value": ["000000000000002"]})
    return tmp_path


def killed(folder, name, seconds):
    """Runs a pod under load, and kills it after this time. Returns the number of its requests, and
    how many of them it had reported as written."""
    pod = Pod(folder, name)
    try:
        pod.wait_for("decision port listens")
        end, reported = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            pod.decide(*about(name, range(pod.sent, pod.sent + 20)))
            reported = pod.metric("rows_total")
    finally:
        pod.kill()
    pod.check_log()
    return pod.sent, reported


def kill(folder, kills):
    """Kills pods with a folder in common, some at a time."""
    choice = random.Random(SEED)
    names = [f"killed{number}" for number in range(kills)]
    # Files are closed after a second.
    seconds = [choice.uniform(0.1, 2.2) for _ in names]
    with ThreadPoolExecutor(PODS) as pool:
        runs = list(pool.map(lambda name, time: killed(folder, name, time), names, seconds))
    remains = list((folder / "log").glob("day=*/*.open"))
    assert remains, "some files were open"
    with Pod(folder) as pod:

        def has_removed():
            # Their age is the time up to the newest file, so a pod without requests keeps them.
            pod.decide(*about("last", [pod.sent]))
            return not any(file.exists() for file in remains)

        pod.until("remains are removed", has_removed)
        assert "files of killed processes removed" in pod.text()
        last = pod.sent
    found = request_ids(folder / "log")
    assert len(found) == len(set(found)), "a row is in two files"
    sent = {f"{name}-{one}" for name, (count, _) in zip(names, runs) for one in range(count)}
    assert set(found) <= sent | {f"last-{one}" for one in range(last)}
    for name, (_, reported) in zip(names, runs, strict=True):
        written = sum(one.startswith(f"{name}-") for one in found)
        assert written >= reported, f"{name}: {written} rows, {reported} were reported as written"
    assert sum(reported for _, reported in runs) > 0


def test_killed_pods_leave_readable_files_without_a_row_twice(folder):
    kill(folder, KILLS)


@pytest.mark.long
def test_many_killed_pods_leave_readable_files_without_a_row_twice(folder):
    kill(folder, LONG_KILLS)


def test_pods_with_one_folder_lose_nothing_when_they_stop(folder):
    with Pod(folder, "a") as a, Pod(folder, "b") as b:
        for start in range(0, 3_000, 100):
            a.decide(*about("a", range(start, start + 100)))
            b.decide(*about("b", range(start, start + 100)))
        assert a.metric("dropped_rows_total") == b.metric("dropped_rows_total") == 0
    found = sorted(request_ids(folder / "log"))
    assert found == sorted(f"{pod}-{number}" for pod in "ab" for number in range(3_000))


def send_bodies(pod, count, size):
    """Sends requests with random bodies, which are rows of this size each."""
    for _ in range(count):
        # No message begins with this byte.
        ask(pod.decisions, "/rta/tencent", b"\xff" + os.urandom(size), headers=TOKEN)
    pod.sent += count


def test_full_disk_costs_the_rows_of_its_time_alone(folder):
    """A limit of the size of files stands for the disk: a write beyond it fails."""
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (256 * KIB, resource.RLIM_INFINITY))
    # Python ignores SIGXFSZ, and so does the pod with it.
    options = {"preexec_fn": limit, "restore_signals": False}
    with Pod(folder, options=options, raw="sampled") as pod:
        send_bodies(pod, 30, 16 * KIB)
        pod.until("rows are dropped", lambda: pod.metric("dropped_rows_total", reason="disk") > 0)
        assert pod.metric("failures_total", step="write") == 1
        assert not list((folder / "log").glob("day=*/*.open"))
        # Answers go on.
        assert pod.decide(*about("full", range(1)))
        resource.prlimit(pod.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)

        def has_written():
            pod.decide({"request_id": f"after-{pod.sent}", "device": {}})
            return pod.metric("rows_total") > 0

        pod.until("rows are written again", has_written)
        dropped = pod.metric("dropped_rows_total")
        assert "a file is lost; rows are dropped for 1s" in pod.text()
    assert len(request_ids(folder / "log")) + dropped == pod.sent


@pytest.mark.parametrize("hours", ["-1", "+1"])
def test_clock_that_jumps_loses_nothing(folder, hours):
    [library] = Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")
    now = folder / "now"
    now.write_text("+0h\n")
    variables = {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(now),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    with Pod(folder, variables=variables, max_age="3s") as pod:
        pod.decide(*about("r", range(100)))
        pod.until("a file is open", lambda: list((folder / "log").glob("day=*/*.open")))
        now.write_text(f"{hours}h\n")
        pod.decide(*about("r", range(100, 200)))
        pod.until_closed(200)
        pod.decide(*about("r", range(200, 300)))
        assert pod.metric("dropped_rows_total") == 0
    assert sorted(request_ids(folder / "log")) == sorted(f"r-{number}" for number in range(300))


class Bucket:
    """The test bucket behind a proxy, which can be stopped."""

    def __init__(self, environment, folder):
        self.url = f"{environment['RTAD_TEST_BUCKET']}/{folder.name}"
        server = environment["AWS_ENDPOINT_URL"].removeprefix("http://")
        self.port, config = free_port(), folder / "haproxy.cfg"
        config.write_text(
            "defaults\n mode tcp\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n"
            f"listen bucket\n bind {HOST}:{self.port}\n server weed {server}\n"
        )
        self.command = ["haproxy", "-db", "-f", config]
        self.log = folder / "haproxy.log"
        self.variables = environment | {"AWS_ENDPOINT_URL": f"http://{HOST}:{self.port}"}
        self.files = pyarrow.fs.S3FileSystem(
            access_key=environment["AWS_ACCESS_KEY_ID"],
            secret_key=environment["AWS_SECRET_ACCESS_KEY"],
            endpoint_override=server,
            scheme="http",
            region=environment["AWS_REGION"],
        )

    def start(self):
        return Process(*self.command, log=self.log)

    def names(self):
        path = self.url.removeprefix("s3://")
        selector = pyarrow.fs.FileSelector(path, recursive=True, allow_not_found=True)
        files = self.files.get_file_info(selector)
        return sorted(file.path for file in files if file.path.endswith(".parquet"))

    def rows(self, name):
        return pyarrow.parquet.ParquetFile(self.files.open_input_file(name)).metadata.num_rows

    def request_ids(self):
        tables = [pyarrow.parquet.read_table(one, filesystem=self.files) for one in self.names()]
        return sorted(one for table in tables for one in table["request_id"].to_pylist())


def outage(folder, environment, seconds):
    """Sends requests before, in and after an outage of the bucket. None is lost."""
    bucket = Bucket(environment, folder)
    proxy = bucket.start()
    try:
        with Pod(folder, to=bucket.url, variables=bucket.variables) as pod:
            pod.decide(*about("r", range(100)))
            wait_until("rows are in the bucket", lambda: len(bucket.request_ids()) == 100)
            proxy.kill()
            began, failures = time.monotonic(), 0

            def is_over():
                nonlocal failures
                pod.decide(*about("r", range(pod.sent, pod.sent + 100)))
                failures = pod.metric("failures_total", step="upload")
                return failures >= 2 and time.monotonic() - began >= seconds

            wait_until("the end of the outage", is_over, seconds + 60)
            # It is set on every try, the last of them before the current pause.
            lag = partial(pod.metric, "upload_lag_seconds")
            pod.until("the lag grows", lambda: lag() > seconds / 4)
            assert pod.metric("waiting_files") >= 1
            assert len(bucket.request_ids()) == 100
            proxy.start()
            pod.decide(*about("r", range(pod.sent, pod.sent + 100)))
            wait_until(
                "all rows are in the bucket",
                lambda: len(bucket.request_ids()) == pod.sent,
                2 * seconds + 60,
            )
            pod.until("no file waits", lambda: lag() == 0)
            assert pod.metric("dropped_rows_total") == 0
            # A stop uploads the open file.
            pod.decide(*about("r", range(pod.sent, pod.sent + 100)))
        assert bucket.request_ids() == sorted(f"r-{number}" for number in range(pod.sent))
        assert not closed(folder / "cache-a/log")
    finally:
        proxy.kill()


def test_outage_of_the_bucket_loses_nothing(folder, s3_server):
    outage(folder, s3_server, 3)


@pytest.mark.long
def test_outage_of_a_minute_loses_nothing(folder, s3_server):
    outage(folder, s3_server, 60)


@pytest.mark.long
def test_ten_minutes_at_the_default_rate_lose_nothing(folder, s3_server):
    """Files of five seconds, and an outage of the bucket of a minute."""
    for name, first in (("members", 1), ("others", 10**9)):
        lines = (f"md5 {first + number:032x}\n" for number in range(20_000))
        (folder / name).write_text("".join(lines))
    make = [sys.executable, ROOT / "loadtest/make_requests.py", "make", "--out", folder / "sent"]
    given = ["--members", folder / "members", "--non-members", folder / "others"]
    (folder / "sent").mkdir()
    subprocess.run([*make, *given], check=True)
    # 64 connections that wait 8 ms on average send some 7,000 requests a second. With a rate nearer
    # to the limit, a stall of the machine has too many of them in the second after it.
    environment = os.environ | {"REQUESTS": str(folder / "sent"), "CHECK": "0", "DELAY": "8"}
    wrk = ["wrk", "-t1", "-c64", "-d600s", "-s", ROOT / "loadtest/wrk/tencent.lua"]
    wrk += ["-H", "X-Token: hush-hush-hush-hush"]
    bucket = Bucket(s3_server, folder)
    proxy = bucket.start()
    try:
        with Pod(folder, to=bucket.url, max_age="5s", variables=bucket.variables) as pod:
            wrk.append(f"http://{pod.decisions}")
            load = Process(*wrk, log=folder / "wrk.log", env=environment)
            time.sleep(240)
            proxy.kill()
            time.sleep(60)
            assert pod.metric("failures_total", step="upload") >= 2
            proxy.start()
            assert load.wait(400) == 0
            sent, rate = map(int, re.search(r"^row (\d+) (\d+)", load.text(), re.M).groups())
            pod.until("no file waits", lambda: pod.metric("upload_lag_seconds") == 0, 120)
            for reason in ("rate", "ring", "disk"):
                assert pod.metric("dropped_rows_total", reason=reason) == 0, reason
        assert rate > 5000, rate
        rows = sum(bucket.rows(name) for name in bucket.names())
        # wrk does not count the requests that are open at its end.
        assert sent <= rows <= sent + 64, (sent, rows)
        print(f"{sent:,} requests, {rate:,} a second, {rows:,} rows")
    finally:
        proxy.kill()


def test_spool_over_its_size_loses_the_oldest_files(folder, s3_server):
    variables = s3_server | {"AWS_ENDPOINT_URL": f"http://{HOST}:{free_port()}"}
    lines = {"max_spool": "1MiB", "raw": "sampled"}
    spool = folder / "cache-a/log"
    with Pod(folder, to="s3://ads/log", variables=variables, **lines) as pod:
        written = []
        for _ in range(3):
            send_bodies(pod, 12, 40 * KIB)
            pod.until_closed(pod.sent)
            written.append({*closed(spool)}.difference(*written))
        dropped = partial(pod.metric, "dropped_rows_total", reason="upload")
        pod.until("the oldest files are deleted", dropped)
        left = closed(spool)
        rows = sum(pyarrow.parquet.ParquetFile(file).metadata.num_rows for file in left)
        assert rows + dropped() == pod.sent
        assert sum(file.stat().st_size for file in left) <= MIB
        assert written[-1] <= {*left} and not written[0] & {*left}
