"""docs/examples/streams/flink_job.py on a local Flink: lost answers, and a killed job."""

import contextlib
import json
import os
import signal

import pytest

from suites.streams.clicks import EVENTS, Clicks
from suites.streams.writer import Proxy
from suites.testkit.process import Process
from suites.testkit.programs import ROOT

pytestmark = pytest.mark.long

SCRIPT = ROOT / "docs/examples/streams/flink_job.py"
# PyFlink and PySpark need different versions of py4j.
PROGRAMS = ROOT / "target/tools/flink/bin"


class Job:
    def __init__(self, folder, writer):
        self.folder, self.writer = folder, writer
        self.clicks = Clicks(folder / "clicks")
        self.started = []
        # Flink starts `python`.
        self.environment = os.environ | {"PATH": f"{PROGRAMS}:{os.environ['PATH']}"}

    def start(self, url, *more):
        flags = ["--source", self.clicks.folder, "--batches", self.folder / "batches"]
        flags += ["--to", self.folder / "counted", "--checkpoint", self.folder / "checkpoint"]
        flags += ["--url", url, "--window", "clicks", "--kind", "oaid"]
        flags += ["--token-file", self.writer.token, "--batch", 200, *more]
        log = self.folder / f"flink-{len(self.started)}.log"
        # -B: the example's folder stays clean.
        command = [PROGRAMS / "python3", "-B", SCRIPT, *flags]
        run = Process(*command, log=log, env=self.environment, start_new_session=True)
        self.started.append(run)
        return run

    def restart(self, url, *more):
        """Starts it from its last checkpoint."""
        last = self.last_checkpoint()
        return self.start(url, "--set", f"execution.state-recovery.path={last}", *more)

    def kill(self):
        """Kills its processes, with the JVM."""
        for run in self.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
            run.wait()

    def last_checkpoint(self):
        completed = self.folder.glob("checkpoint/*/chk-*/_metadata")
        return max(completed, key=lambda path: path.stat().st_mtime_ns).parent

    def checkpoints(self, run, number):
        """Waits for so many more checkpoints."""

        def last():
            files = (self.folder / "checkpoint").glob("*/chk-*/_metadata")
            return [int(path.parent.name.removeprefix("chk-")) for path in files]

        enough = max(last(), default=0) + number
        run.until("checkpoints", lambda: max(last(), default=0) >= enough, 120)

    def result(self):
        """The events of the finished files."""
        files = (self.folder / "counted").glob("*/part-*")
        return [json.loads(line) for path in files for line in path.read_text().splitlines()]

    def finish(self, run):
        """Waits for all results and two more checkpoints, then kills it."""
        run.until("the result", lambda: len(self.result()) >= EVENTS, 120)
        self.checkpoints(run, 2)
        self.kill()

    def assert_each_new_once(self):
        self.clicks.assert_each_new_once(self.writer, self.result())
        self.clicks.assert_no_id_is_logged(run.log for run in self.started)


@pytest.fixture
def job(tmp_path, writer):
    job = Job(tmp_path, writer)
    yield job
    job.kill()


def test_lost_answer_is_repeated_with_the_same_key(job):
    with Proxy(job.writer.address, lose=3) as proxy:
        job.finish(job.start(proxy.url, "--every", "2 s"))
        assert proxy.repeated() == 3
    job.assert_each_new_once()


def test_job_killed_between_answer_and_checkpoint_counts_nothing_twice(job):
    with Proxy(job.writer.address) as proxy:
        run = job.start(proxy.url, "--every", "5 s")
        run.until("some requests", lambda: len(proxy.seen) >= 4, 120)
        job.kill()
        job.finish(job.restart(proxy.url, "--every", "5 s"))
        assert proxy.repeated() >= 1
    job.assert_each_new_once()


def test_job_killed_before_a_batch_is_cut_loses_no_event(job):
    """The events wait in the state of the last checkpoint."""
    flags = ["--every", "1 s", "--linger", 30]
    with Proxy(job.writer.address) as proxy:
        run = job.start(proxy.url, *flags)
        job.checkpoints(run, 4)
        job.kill()
        job.finish(job.restart(proxy.url, *flags))
    job.assert_each_new_once()


def test_wrong_token_ends_the_job_and_loses_no_event(job):
    token = job.writer.token
    right = token.read_text()
    token.write_text("another-token-of-24-characters")
    run = job.start(f"http://{job.writer.address}", "--every", "2 s")
    assert run.wait(120) == 1
    assert "status 401" in run.text()
    assert job.result() == []
    token.write_text(right)
    job.finish(job.restart(f"http://{job.writer.address}", "--every", "2 s"))
    job.assert_each_new_once()
