"""docs/examples/streams/spark_job.py on a local Spark: lost answers, and a killed driver."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from suites.streams.clicks import Clicks
from suites.streams.writer import Proxy
from suites.testkit.ports import HOST
from suites.testkit.process import Process
from suites.testkit.programs import ROOT

pytestmark = pytest.mark.long

SCRIPT = ROOT / "docs/examples/streams/spark_job.py"
# Reads the result: device, and the columns of the job, as JSON lines.
READ = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
for row in spark.read.parquet(sys.argv[1]).toJSON().collect():
    print("row:", row)
"""


class Job:
    def __init__(self, folder, writer):
        import pyspark

        self.folder, self.writer = folder, writer
        self.home = Path(pyspark.__file__).parent
        self.runs = 0
        self.clicks = Clicks(folder / "clicks")
        self.environment = os.environ | {
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": HOST,
        }

    def submit(self, *words):
        # A task may fail three times.
        flags = ["--master", "local[2,4]", "--driver-memory", "768m"]
        flags += ["--conf", "spark.ui.enabled=false"]
        return [str(word) for word in (self.home / "bin/spark-submit", *flags, *words)]

    def start(self, url):
        flags = ["--source", self.clicks.folder, "--to", self.folder / "counted"]
        flags += ["--checkpoint", self.folder / "checkpoint", "--url", url, "--window", "clicks"]
        flags += ["--kind", "oaid", "--token-file", self.writer.token]
        # Several requests in a partition, and several micro-batches.
        flags += ["--batch", 200, "--files", 3]
        self.runs += 1
        log = self.folder / f"spark-{self.runs}.log"
        command = self.submit(SCRIPT, *flags)
        return Process(*command, log=log, env=self.environment, start_new_session=True)

    def result(self):
        script = self.folder / "read.py"
        script.write_text(READ)
        done = subprocess.run(
            self.submit(script, self.folder / "counted"),
            env=self.environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        lines = [line.partition(": ")[2] for line in done.stdout.splitlines()]
        return [json.loads(line) for line in lines if line.startswith("{")]

    def assert_each_new_once(self):
        self.clicks.assert_each_new_once(self.writer, self.result())

    def assert_no_id_is_logged(self):
        self.clicks.assert_no_id_is_logged(self.folder.glob("spark-*.log"))


@pytest.fixture
def job(tmp_path, writer):
    return Job(tmp_path, writer)


def test_each_device_is_new_once(job):
    with Proxy(job.writer.address, lose=3) as proxy:
        run = job.start(proxy.url)
        assert run.wait(180) == 0, run.text()[-4000:]
        assert proxy.repeated() == 3
    job.assert_each_new_once()
    job.assert_no_id_is_logged()


def test_driver_killed_between_answer_and_commit_counts_nothing_twice(job):
    """The driver is killed after some answers of the first micro-batch, before its commit."""
    with Proxy(job.writer.address) as proxy:
        run = job.start(proxy.url)
        run.until("some requests", lambda: len(proxy.seen) >= 4, 120)
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        before = len(proxy.seen)
        again = job.start(proxy.url)
        assert again.wait(180) == 0, again.text()[-4000:]
        assert proxy.repeated() >= 4
        assert len(proxy.seen) > before
    job.assert_each_new_once()
