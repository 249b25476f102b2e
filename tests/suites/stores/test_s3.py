"""The Rust tests of stores, run again with a bucket in RTAD_TEST_S3. Without one they skip what
needs a server."""

import os
import subprocess

import pytest

from suites.testkit.programs import ROOT

# Of the whole workspace, as `make test` has built it: dependencies of one package alone would be
# built anew for its features.
CARGO = ["cargo", "test", "--quiet", "--workspace"]


@pytest.mark.parametrize(
    "target",
    [
        "--lib store::tests",
        "--test remote",
        "--test appending",
        "--test serve on_s3",
        "--test remote_stores",
    ],
)
def test_rust_tests_pass_on_s3(s3_server, target):
    done = subprocess.run(
        [*CARGO, *target.split(), "--", "--nocapture"],
        cwd=ROOT,
        env=os.environ | s3_server,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert "on s3://" in done.stdout, f"nothing ran on S3: {done.stdout}"
    assert "skipped:" not in done.stdout, done.stdout
