"""The fuzz targets name only what exists: they are a workspace of their own, which no build has."""

import subprocess

import pytest

from suites.testkit.programs import ROOT


@pytest.mark.long
def test_targets_compile():
    command = ["cargo", "check", "--quiet", "--manifest-path", "fuzz/Cargo.toml", "--bins"]
    command += ["--target-dir", "target/fuzz"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
