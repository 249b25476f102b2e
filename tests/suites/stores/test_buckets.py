"""Rust tests of stores with a bucket in RTAD_TEST_BUCKET, without which they skip buckets."""

import os
import re
import subprocess

import pytest

from suites.testkit.programs import BUILD_PATH, ROOT

# Of the whole workspace, as built by `make test`: a single package would rebuild its dependencies
# with other features.
CARGO = "cargo test --quiet --workspace --lib --test cli --test service --".split()
# Ends of the names of tests that need a bucket, or have each kind of request to one.
NAMES = ["in_every_store", "in_a_bucket"]


@pytest.mark.parametrize("server", ["s3_server", "azure_server", "gcs_server"])
def test_rust_tests_pass_in_a_bucket(request, server):
    environment = request.getfixturevalue(server)
    if server == "azure_server":
        # Azurite has one thread: of six tests at once on a busy machine, one waits over 30 s.
        environment |= {"RUST_TEST_THREADS": "2"}
    done = subprocess.run(
        [*CARGO, "--show-output", *NAMES],
        cwd=ROOT,
        env=os.environ | environment | {"PATH": BUILD_PATH},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    # Of the library, of the commands of both programs, and of the service.
    for part in ("unit-", "loader-", "serve", "pod-"):
        prefix = rf"on {re.escape(environment['RTAD_TEST_BUCKET'])}/[\d-]*{part}"
        assert re.search(prefix, done.stdout), f"nothing printed {prefix!r}: {done.stdout}"
    assert "skipped:" not in done.stdout, done.stdout
