"""Jobs of the overlays, run with the real rtad-loader."""

import copy
import gzip

from suites.k8s import sizes
from suites.k8s.rendered import OVERLAYS, render
from suites.k8s.sandbox import live
from suites.testkit.programs import ROOT, loader

RENDERED = {name: render(ROOT / "k8s/overlays" / name) for name in OVERLAYS}


def ids(count, offset=0):
    return loader("synth", "--count", count, "--offset", offset).encode()


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
        mutant = copy.deepcopy(overlay)
        job = mutant.one("CronJob", "rtad-build")["spec"]["jobTemplate"]["spec"]
        job["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] = "4Gi"
        assert any("--memory" in problem for problem in sizes.building(mutant))
