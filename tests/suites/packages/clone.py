"""Clones of the last commit in which `make dist` runs."""

import os
import subprocess

from suites.testkit.programs import ROOT

# Link-time optimization takes minutes, and has no effect on what these tests look at.
FAST = {
    "CARGO_PROFILE_RELEASE_LTO": "off",
    "CARGO_PROFILE_RELEASE_OPT_LEVEL": "0",
    "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16",
}


def run(*command, **more):
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}: {done.stdout[-8000:]}"
    return done.stdout


def make_dist(folder, **variables):
    """Clones into `folder` and runs `make dist` with these variables; returns target/dist. The
    tools are those of this checkout."""
    run("bash", "tests/setup.sh", "dist", cwd=ROOT)
    run("git", "clone", "--quiet", ROOT, folder)
    (folder / "target").mkdir()
    (folder / "target/tools").symlink_to(ROOT / "target/tools")
    run("make", "dist", cwd=folder, env=os.environ | FAST | variables)
    return folder / "target/dist"
