"""What every suite has: the programs, the environment's PATH, an S3 server, and an end on
SIGTERM."""

import os
import signal
import sys

import pytest

from suites.testkit import programs, s3

# The virtual environment has kubectl and hadolint; HAProxy is where Debian has it.
os.environ["PATH"] = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}:/usr/sbin"


def pytest_configure():
    # As Ctrl-C does it: fixtures end what they have started.
    signal.signal(signal.SIGTERM, lambda *_: pytest.exit("terminated", returncode=143))


def pytest_collection_finish(session):
    if session.items and not session.config.option.collectonly:
        missing = [str(one) for one in (programs.RTAD, programs.LOADER) if not one.exists()]
        if missing:
            pytest.exit(f"{', '.join(missing)}: not built: `make test` builds them", returncode=1)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory):
    """The environment of an S3 server's clients."""
    with s3.server(tmp_path_factory.mktemp("s3")) as env:
        yield env
