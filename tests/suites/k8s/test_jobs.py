"""Jobs of the overlays, run with the real rtad-loader."""

import copy
import gzip
import os
import pathlib
import signal
import subprocess

import pytest

from suites.k8s import sizes
from suites.k8s.rendered import OVERLAYS, name_of, render
from suites.k8s.sandbox import live
from suites.testkit.programs import ROOT, loader

RENDERED = {name: render(ROOT / "k8s/overlays" / name) for name in OVERLAYS}


def ids(count, offset=0):
    return loader("synth", "--count", count, "--offset", offset).encode()


def kill(process):
    """Kills a process with its children, like a container."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class TestJobs:
    def test_nightly_build_and_gc(self, sandbox_of):
        sandbox = sandbox_of(RENDERED["prod"])
        for generation in (1, 2):
            (sandbox.dumps / "old_users.txt.gz").write_bytes(gzip.compress(ids(2000, generation)))
            built = sandbox.run_container("CronJob/rtad-build")
            assert built.returncode == 0, built.stderr
            current = live(sandbox.store)
            assert (current["generation"], current["keys"]) == (generation, 2000)
        gone = sandbox.run_container("CronJob/rtad-gc")
        assert gone.returncode == 0, gone.stderr
        # All generations are younger than --min-age.
        assert '"removed_generations":[]' in gone.stdout

    def test_dev_store_is_filled(self, sandbox_of):
        sandbox = sandbox_of(RENDERED["dev"])
        filled = sandbox.run_container("Job/rtad-devices")
        assert filled.returncode == 0, filled.stderr
        assert live(sandbox.store)["keys"] == 1_000_000

    def test_memory_and_disk_are_enough(self):
        overlay = RENDERED["prod"]
        assert list(sizes.building(overlay)) == []
        for name, limits, expected in (
            ("rtad-build", "4Gi", "--memory"),
            ("rtad-build-many", "6Gi", "8 workers"),
        ):
            mutant = copy.deepcopy(overlay)
            job = mutant.one("CronJob", name)["spec"]["jobTemplate"]["spec"]
            job["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] = limits
            assert any(expected in problem for problem in sizes.building(mutant))


class TestManyPods:
    """Distributed build with all workers as local processes."""

    @pytest.fixture(autouse=True)
    def prepared(self, sandbox_of):
        self.sandbox = sandbox_of(RENDERED["prod"])
        [(self.document, self.template, self.container)] = [
            one
            for one in self.sandbox.overlay.containers()
            if name_of(one[0]) == "CronJob/rtad-build-many"
        ]
        self.words, self.environment, _ = self.sandbox.enter(
            self.document, self.template, self.container
        )
        self.workers = int(self.environment["WORKERS"])
        inputs = pathlib.Path(self.environment["INPUTS"]).read_text().split()
        # Overlapping by half.
        for number, path in enumerate(inputs):
            pathlib.Path(path).write_bytes(gzip.compress(ids(3000, number * 1500)))
        self.inputs = inputs
        self.left_behind = self.sandbox.root / "rtad-build-shared/job-of-last-week"
        self.left_behind.mkdir()
        self.sandbox.change_owner()
        subprocess.run(["touch", "-d", "1 week ago", self.left_behind], check=True)
        # Workers end before the sandbox is removed.
        self.started = []
        yield
        for process in self.started:
            kill(process)

    def worker(self, index):
        environment = self.environment | {"JOB_COMPLETION_INDEX": str(index)}
        with open(self.sandbox.root / f"worker-{index}.log", "a+") as log:
            process = self.sandbox.start(
                self.words, environment, stdout=log, stderr=log, start_new_session=True
            )
        self.started.append(process)
        return process

    def load(self, store, command, count, offset, *flags):
        file = self.sandbox.dumps / "ids"
        file.write_bytes(ids(count, offset))
        self.loader(store, command, *flags, str(file))

    def loader(self, store, command, *words):
        words = [
            "rtad-loader",
            command,
            "--store",
            str(store),
            "--audience",
            "old_users",
            "--quiet",
            *words,
        ]
        result = self.sandbox.run(words, self.environment)
        assert result.returncode == 0, result.stderr

    def logs(self):
        return "".join(log.read_text() for log in sorted(self.sandbox.root.glob("worker-*.log")))

    def test_result_equals_a_single_build(self):
        plain = self.sandbox.root / "plain"
        # Earlier deltas apply to both.
        for store in (self.sandbox.store, plain):
            self.load(store, "build", 500, 100_000)
            self.load(store, "append", 300, 200_000)
            self.load(store, "remove", 40, 10, "--tombstone")
        self.loader(plain, "build", *self.inputs)
        # One worker is killed at its first step and replaced; the others wait.
        running = [self.worker(index) for index in range(self.workers)]
        kill(running[3])
        work = pathlib.Path(self.environment["WORK"])
        assert not (work / "published").exists()
        running[3] = self.worker(3)
        for process in running:
            assert process.wait(timeout=120) == 0, self.logs()
        built, expected = live(self.sandbox.store), live(plain)
        assert built["keys"] == expected["keys"]
        chunks = lambda store: sorted(
            path.name for path in (store / "old_users/chunks").rglob("*") if path.is_file()
        )
        assert chunks(self.sandbox.store) == chunks(plain)
        # A restarted worker of a published build does nothing.
        again = self.worker(0)
        assert again.wait(timeout=60) == 0, self.logs()
        assert live(self.sandbox.store)["generation"] == built["generation"]
        assert not self.left_behind.exists()
        assert list(work.glob("*.frames")) == []

    def test_unreadable_input_list_is_an_error(self):
        self.environment["INPUTS"] += ".none"
        failed = self.worker(1)
        assert failed.wait(timeout=60) == 2, self.logs()
        assert self.environment["INPUTS"] in self.logs()

    def test_exit_code_is_that_of_the_loader(self):
        """podFailurePolicy depends on it: the container exits with the code of rtad-loader."""
        pathlib.Path(self.inputs[1]).unlink()
        failed = self.worker(1)
        assert failed.wait(timeout=60) == 3, self.logs()
        assert self.inputs[1] in self.logs()
