"""rtad-loader itself, as the jobs of the overlays run it."""

import copy
import gzip
import os
import pathlib
import signal
import subprocess
import time

import pytest

from suites.k8s import sizes
from suites.k8s.rendered import OVERLAYS, name_of, render
from suites.k8s.sandbox import live
from suites.testkit.programs import ROOT, loader

RENDERED = {name: render(ROOT / "k8s/overlays" / name) for name in OVERLAYS}


def ids(count, offset=0):
    return loader("synth", "--count", count, "--offset", offset).encode()


def flags():
    """Each flag of each job: the overlay, the job, and where the flag is."""
    for name, overlay in RENDERED.items():
        for document, _, container in overlay.containers():
            if container["command"][0] == "rtad-loader":
                for index, word in enumerate(container["args"]):
                    if word.startswith("--"):
                        yield pytest.param(
                            name, name_of(document), index, id=f"{name_of(document)} {word}"
                        )


def kill(process):
    """With all that it has started, as a container is killed."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class TestJobs:
    def test_the_nightly_build_and_the_gc_after_it(self, sandbox_of):
        sandbox = sandbox_of(RENDERED["prod"])
        for generation in range(1, 6):
            (sandbox.dumps / "old_users.txt.gz").write_bytes(gzip.compress(ids(2000, generation)))
            built = sandbox.run_container("CronJob/rtad-build")
            assert built.returncode == 0, built.stderr
            said = live(sandbox.store)
            assert (said["generation"], said["keys"]) == (generation, 2000)
        gone = sandbox.run_container("CronJob/rtad-gc")
        assert gone.returncode == 0, gone.stderr
        # All are younger than --min-age.
        assert '"removed_generations":[]' in gone.stdout

    def test_the_dev_store_is_filled(self, sandbox_of):
        sandbox = sandbox_of(RENDERED["dev"])
        filled = sandbox.run_container("Job/rtad-devices")
        assert filled.returncode == 0, filled.stderr
        assert live(sandbox.store)["keys"] == 1_000_000

    @pytest.mark.parametrize("name, job, index", list(flags()))
    def test_every_argument_counts(self, name, job, index, sandbox_of):
        """Misspelt, the program refuses it, so what was not refused above is known to it."""
        mutant = copy.deepcopy(RENDERED[name])
        [container] = [
            one
            for document, _, one in mutant.containers()
            if document["kind"] == "CronJob" and name_of(document) == job
        ]
        container["args"][index] = container["args"][index].replace("--", "--x", 1)
        refused = sandbox_of(mutant).run_container(job)
        assert refused.returncode == 2, refused.stderr

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
    """The build over several pods: its workers all at once, as processes of this machine."""

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
        # Each with half of the next one's.
        for number, path in enumerate(inputs):
            pathlib.Path(path).write_bytes(gzip.compress(ids(3000, number * 1500)))
        self.inputs = inputs
        self.left_behind = self.sandbox.root / "rtad-build-shared/job-of-last-week"
        self.left_behind.mkdir()
        self.sandbox.hand_over()
        subprocess.run(["touch", "-d", "1 week ago", self.left_behind], check=True)
        # They end before the sandbox is removed.
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
        said = self.sandbox.run(words, self.environment)
        assert said.returncode == 0, said.stderr

    def logs(self):
        return "".join(log.read_text() for log in sorted(self.sandbox.root.glob("worker-*.log")))

    def test_it_publishes_what_one_build_would(self):
        plain = self.sandbox.root / "plain"
        # What was appended and removed before is over both.
        for store in (self.sandbox.store, plain):
            self.load(store, "build", 500, 100_000)
            self.load(store, "append", 300, 200_000)
            self.load(store, "remove", 40, 10, "--tombstone")
        self.loader(plain, "build", *self.inputs)
        # One is killed at its first step and its pod replaced; the others wait for it.
        running = [self.worker(index) for index in range(self.workers)]
        kill(running[3])
        work = pathlib.Path(self.environment["WORK"])
        time.sleep(2)
        assert not (work / "published").exists()
        running[3] = self.worker(3)
        for process in running:
            assert process.wait(timeout=120) == 0, self.logs()
        said, expected = live(self.sandbox.store), live(plain)
        assert said["keys"] == expected["keys"]
        chunks = lambda store: sorted(
            path.name for path in (store / "old_users/chunks").rglob("*") if path.is_file()
        )
        assert chunks(self.sandbox.store) == chunks(plain)
        # A pod whose end was not noticed is started again, and does nothing.
        again = self.worker(0)
        assert again.wait(timeout=60) == 0, self.logs()
        assert live(self.sandbox.store)["generation"] == said["generation"]
        assert not self.left_behind.exists()
        assert list(work.glob("*.frames")) == []

    def test_a_list_that_cannot_be_read_is_no_empty_one(self):
        self.environment["INPUTS"] += ".none"
        failed = self.worker(1)
        assert failed.wait(timeout=60) == 2, self.logs()
        assert self.environment["INPUTS"] in self.logs()

    def test_a_failure_is_the_loader_s(self):
        """What podFailurePolicy goes by: the exit code of rtad-loader is that of the container."""
        pathlib.Path(self.inputs[1]).unlink()
        failed = self.worker(1)
        assert failed.wait(timeout=60) == 3, self.logs()
        assert self.inputs[1] in self.logs()
