"""Jobs of the overlays, run with the real rtad-loader."""

import copy
import gzip
import re

import yaml

from suites.k8s import sizes
from suites.k8s.rendered import OVERLAYS, Rendered, render
from suites.k8s.sandbox import live
from suites.testkit.programs import ROOT, loader

RENDERED = {name: render(ROOT / "k8s/overlays" / name) for name in OVERLAYS}
PAGE = ROOT / "docs/guides/kubernetes.md"


def ids(count, offset=0):
    return loader("synth", "--count", count, "--offset", offset).encode()


def first_build():
    """The overlay with the edit of docs/guides/kubernetes.md for the first build."""
    [pattern] = re.findall(r"rtad-build-first .*\| sed /(.+)/d \|", PAGE.read_text())
    job = copy.deepcopy(RENDERED["prod"]).one("CronJob", "rtad-build")
    lines = yaml.safe_dump(job).splitlines()
    left = [line for line in lines if pattern not in line]
    assert len(left) == len(lines) - 1
    others = [one for one in RENDERED["prod"].documents if one["metadata"]["name"] != "rtad-build"]
    return Rendered([yaml.safe_load("\n".join(left)), *others])


class TestJobs:
    def test_nightly_build_and_gc(self, sandbox_of):
        sandbox = sandbox_of(RENDERED["prod"])
        (sandbox.dumps / "old_users.txt.gz").write_bytes(gzip.compress(ids(2000)))
        refused = sandbox.run_container("CronJob/rtad-build")
        assert refused.returncode == 5, refused.stderr
        assert "no generation is published" in refused.stderr

        for generation, overlay in ((1, first_build()), (2, RENDERED["prod"])):
            sandbox.overlay = overlay
            dump = ids(2000, generation)
            (sandbox.dumps / "old_users.txt.gz").write_bytes(gzip.compress(dump))
            built = sandbox.run_container("CronJob/rtad-build")
            assert built.returncode == 0, built.stderr
            current = live(sandbox.store)
            assert (current["generation"], current["keys"]) == (generation, 2000)

        # A list of other devices.
        (sandbox.dumps / "old_users.txt.gz").write_bytes(gzip.compress(ids(2000, 9000)))
        refused = sandbox.run_container("CronJob/rtad-build")
        assert refused.returncode == 3, refused.stderr
        assert live(sandbox.store)["generation"] == 2
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
