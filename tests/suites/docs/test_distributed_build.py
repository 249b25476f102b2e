"""The shell commands of docs/guides/distributed-build.md, with four workers one after the other and
one of them twice. The chunks must equal those of `rtad-loader build`."""

import json
import re
import subprocess

import pytest

from suites.testkit.pages import with_programs
from suites.testkit.programs import ROOT, loader, synth

WORKERS = range(4)


def steps():
    """The page's commands: what comes before its first comment, and each step."""
    page = (ROOT / "docs/guides/distributed-build.md").read_text()
    part = page.partition("<!-- tests/suites/docs runs what follows. -->")[2]
    block = re.search(r"^```sh\n(.*?)^```$", part, re.M | re.S)[1]
    return re.split(r"^# .*\n", block, flags=re.M)


BEGINNING, *STEPS = steps()


class Job:
    """Two stores with the same past, dumps of four workers, and the folder that they share."""

    def __init__(self, folder):
        self.folder = folder
        self.store, self.expected = folder / "store", folder / "expected"
        for store in (self.store, self.expected):
            self.load(store, "build", synth(500, "--seed", 3))
            self.load(store, "append", synth(300, "--seed", 4))
            self.load(store, "remove", synth(40, "--offset", 10), "--tombstone")
        (folder / "dumps").mkdir()
        (folder / "work").mkdir()
        for worker in WORKERS:
            ids = "\n".join(synth(4000, "--offset", worker * 3000)) + "\n"
            for name in "ab":
                (folder / f"dumps/{name}-{worker}.txt").write_text(ids)
        self.environment = with_programs(folder, "rtad-loader")
        self.environment |= {"STORE": str(self.store), "N": str(len(WORKERS))}

    def load(self, store, command, ids, *flags):
        to = ["--store", store, "--audience", "old_users", "--quiet"]
        loader(command, *to, *flags, "-", given="\n".join(ids) + "\n")

    def step(self, number, **variables):
        script = BEGINNING + STEPS[number - 1]
        environment = self.environment | variables
        command = ["bash", "-c", script]
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True
        )

    def chunks(self, store):
        return sorted(path.name for path in (store / "old_users/chunks").iterdir())

    def keys(self, store):
        manifest = loader("inspect", "--store", store, "--audience", "old_users", "--json")
        return json.loads(manifest)["keys"]


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path)


def test_the_page_stops_at_failures_and_has_a_command_of_the_loader_in_each_step():
    assert BEGINNING == "set -euo pipefail\n"
    commands = [len(re.findall(r"^rtad-loader|\| rtad-loader", step, re.M)) for step in STEPS]
    assert commands == [1, 1, 1, 1, 1]


def test_the_steps_publish_the_chunks_of_one_build(job):
    dumps = sorted((job.folder / "dumps").iterdir())
    loader("build", "--store", job.expected, "--audience", "old_users", "--quiet", *dumps)

    def succeeds(number, **variables):
        done = job.step(number, **variables)
        assert done.returncode == 0, f"step {number}: {done.stderr}"

    succeeds(1)
    for number in (2, 3, 4):
        for worker in (0, 1, 2, 2, 3):
            succeeds(number, I=str(worker))

    part = job.folder / "work/distinct-2.json"
    part.rename(job.folder / "work/late")
    refused = job.step(5)
    assert refused.returncode != 0
    assert "buckets 2048 to 3071: no report" in refused.stdout + refused.stderr
    (job.folder / "work/late").rename(part)

    succeeds(5)
    assert job.chunks(job.store) == job.chunks(job.expected)
    assert job.keys(job.store) == job.keys(job.expected)
