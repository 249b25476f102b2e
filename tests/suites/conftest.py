"""Shared fixtures: built programs, PATH, servers of buckets, and cleanup on SIGTERM."""

import os
import signal
import sys

import pytest

from suites.testkit import azure, gcs, programs, s3

# kubectl and hadolint are in the virtual environment, HAProxy in /usr/sbin.
os.environ["PATH"] = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}:/usr/sbin"


def pytest_configure():
    # Like Ctrl-C: fixtures stop their processes.
    signal.signal(signal.SIGTERM, lambda *_: pytest.exit("terminated", returncode=143))


def pytest_collection_finish(session):
    if session.items and not session.config.option.collectonly:
        needed = (programs.RTAD, programs.LOADER, programs.WRITER)
        missing = [str(one) for one in needed if not one.exists()]
        if missing:
            pytest.exit(f"{', '.join(missing)}: not built: `make test` builds them", returncode=1)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory):
    """The environment of an S3 server's clients."""
    with s3.server(tmp_path_factory.mktemp("s3")) as env:
        yield env


@pytest.fixture
def azure_server(tmp_path):
    """The environment of an Azure Blob Storage server's clients. Each test has its own: ten minutes
    after its start Azurite collects garbage, and answers nothing meanwhile (14 s on an idle
    machine after all tests of a bucket, longer than a read's limit of 30 s on a busy one)."""
    with azure.server(tmp_path) as env:
        yield env


@pytest.fixture(scope="session")
def gcs_server(tmp_path_factory):
    """The environment of a Google Cloud Storage server's clients."""
    with gcs.server(tmp_path_factory.mktemp("gcs")) as env:
        yield env
