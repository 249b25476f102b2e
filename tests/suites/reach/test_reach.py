"""Sketches of two pods in one folder, read by the programs of
docs/guides/answer-growth-questions.md."""

import hashlib
import json
import re
import subprocess
import sys

import pytest

from suites.rules.protocols import Client
from suites.testkit.client import metric
from suites.testkit.process import Rtad
from suites.testkit.programs import ROOT, loader

CONFIG = """
server = { api = { public = true }, time_zone = "Asia/Shanghai" }
store = { url = "store" }
log = { to = "log", key_secret = "0123456789abcdef", sample = 0.0 }
[[experiment]]
name = "price-test"
buckets = [{ name = "high", slots = "0..5000" }, { name = "low", slots = "5000..10000" }]
[[audience]]
name = "old_users"
[[strategy]]
name = "new-users"
exclude = ["old_users"]
[[strategy]]
name = "high-bids"
when = { bucket = "price-test:high" }
"""
# Devices of each pod; they share the middle.
PODS = [range(4_000), range(2_000, 6_000)]
ALL = 6_000
# Whichever day it is.
SPAN = "'2000-01-01' AND '2999-12-31'"


def md5(number):
    return hashlib.md5(f"device {number}".encode()).hexdigest()


def is_high(number):
    digest = hashlib.md5(f"price-test-{md5(number)}".encode()).digest()
    return int.from_bytes(digest[:4], "big") % 10_000 < 5_000


HIGH = sum(map(is_high, range(ALL)))


def guide(language):
    """The blocks of a language in the guide's section."""
    text = (ROOT / "docs/guides/answer-growth-questions.md").read_text()
    section = text.split("\n## Devices reached\n")[1].split("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.M | re.S)


def reach(rtad, numbers):
    """Sends a request of each device, some of them twice, and one without a device."""
    devices = [{"md5": md5(number)} for number in [*numbers, *numbers[:500]]] + [{}]
    bodies = [json.dumps({"device": device}).encode() for device in devices]
    with Client(rtad.decisions) as client:
        for start in range(0, len(bodies), 100):
            client.post("/v1/decide", bodies[start : start + 100])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the files of two pods, which ended on one day."""
    folder = tmp_path_factory.mktemp("reach")
    (folder / "rtad.toml").write_text(CONFIG)
    to = ["--store", folder / "store", "--audience", "old_users", "--quiet"]
    loader("build", *to, "-", given=md5(1_000_000))
    for number, devices in enumerate(PODS):
        rtad = Rtad("--config", "rtad.toml", log=folder / f"log-{number}.txt", cwd=folder)
        try:
            reach(rtad, devices)
            found = metric(rtad.admin, "rtad_reach_devices", strategy="new-users")
            assert found == pytest.approx(len(devices), rel=0.02)
            assert rtad.end() == 0
        finally:
            rtad.stop()
    return folder


def check(found):
    """Compares rows of strategy, experiment, bucket and devices with the truth."""
    expected = {
        ("new-users", None, None): ALL,
        ("high-bids", None, None): HIGH,
        ("high-bids", "price-test", "high"): HIGH,
    }
    assert {row[:3] for row in found} == set(expected)
    for *row, devices in found:
        assert devices == pytest.approx(expected[tuple(row)], rel=0.02), row


def test_python_adds_pods_up(folder):
    [program] = guide("python")
    run = [sys.executable, "-c", program]
    done = subprocess.run(run, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    named = [[None if cell == "None" else cell for cell in row] for row in rows]
    check([(*labels, int(devices)) for *labels, devices in named])


@pytest.mark.long
def test_spark_adds_pods_up_and_compares_own_lists(folder):
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[1]").getOrCreate()
    try:
        queries = [one.replace("s3://ads/rtad-log", f"{folder}/log") for one in guide("sql")]
        week, overlap = (re.sub(r"'2026-11-20' AND '2026-11-26'", SPAN, one) for one in queries)
        check([tuple(row) for row in spark.sql(week).collect()])
        # Half of the list was reached.
        own = [(md5(number),) for number in range(ALL // 2, ALL // 2 + ALL)]
        spark.createDataFrame(own, ["md5"]).createOrReplaceTempView("converted")
        [[reached]] = spark.sql(overlap).collect()
        assert reached == pytest.approx(ALL // 2, rel=0.1)
    finally:
        spark.stop()
