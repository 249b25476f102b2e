"""Rust tests of stores with a bucket in RTAD_TEST_BUCKET, without which they skip buckets."""

import itertools
import os
import subprocess

import pytest

from suites.testkit.programs import BUILD_PATH, ROOT

# Of the whole workspace, as built by `make test`: a single package would rebuild its dependencies
# with other features.
CARGO = ["cargo", "test", "--quiet", "--workspace"]
# All modules with tests over every kind of store.
STORE_TESTS = (
    "appending",
    "collecting",
    "concurrent_appends",
    "conditional_puts_are_refused_after_a_change",
    "deleting",
    "early_chunks",
    "faults",
    "lists_of_several_pages_are_complete",
    "only_folders_with_valid_names_are_audiences",
    "publishing",
    "signing",
)

# The model of appends never uses a bucket.
LIBRARY = ("--lib", ["--skip", "::model::", *(f"tests::{name}" for name in STORE_TESTS)])
COMMANDS = ("--test cli", ["remote::", "in_a_bucket"])
SERVICE = ("--test service", ["remote_stores::"])
# What these do beside the library's tests, servers do alike.
CHANGES = ("--test cli", ["appending::", "windows_store::"])


@pytest.mark.parametrize(
    ("server", "tests"),
    [
        *itertools.product(
            ["s3_server", "azure_server", "gcs_server"], [LIBRARY, COMMANDS, SERVICE]
        ),
        ("s3_server", CHANGES),
    ],
)
def test_rust_tests_pass_in_a_bucket(request, server, tests):
    target, filters = tests
    environment = request.getfixturevalue(server)
    if server == "azure_server":
        # Azurite has one thread: of six tests at once on a busy machine, one waits over 30 s.
        environment |= {"RUST_TEST_THREADS": "2"}
    done = subprocess.run(
        [*CARGO, *target.split(), "--", "--show-output", *filters],
        cwd=ROOT,
        env=os.environ | environment | {"PATH": BUILD_PATH},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    ran = f"on {environment['RTAD_TEST_BUCKET']}/"
    assert ran in done.stdout, f"nothing printed {ran!r}: {done.stdout}"
    assert "skipped:" not in done.stdout, done.stdout
