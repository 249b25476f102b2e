"""Rust tests of stores with a bucket in RTAD_TEST_S3, without which they skip S3."""

import os
import subprocess

import pytest

from suites.testkit.programs import ROOT

# Of the whole workspace, as built by `make test`: a single package would rebuild its dependencies
# with other features.
CARGO = ["cargo", "test", "--quiet", "--workspace"]


@pytest.mark.parametrize(
    ("target", "filters"),
    [
        ("--lib", "tests::appending tests::collecting tests::deleting tests::publishing"),
        ("--test cli", "remote:: appending:: on_s3"),
        ("--test service", "remote_stores::"),
    ],
)
def test_rust_tests_pass_on_s3(s3_server, target, filters):
    done = subprocess.run(
        [*CARGO, *target.split(), "--", "--nocapture", *filters.split()],
        cwd=ROOT,
        env=os.environ | s3_server,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert "on s3://" in done.stdout, f"nothing ran on S3: {done.stdout}"
    assert "skipped:" not in done.stdout, done.stdout
