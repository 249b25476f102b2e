"""Fixture: rtad with a store built by the loader, in which the IMEI of the published example
requests is a member of `example`."""

import hashlib
from pathlib import Path

import pytest

from suites.testkit.process import Rtad
from suites.testkit.programs import loader

HERE = Path(__file__).parent
# The published example requests have this id.
IMEI = "868049039501257"


def md5(raw):
    return hashlib.md5(raw.encode()).hexdigest()


@pytest.fixture(scope="package")
def served(tmp_path_factory):
    work = tmp_path_factory.mktemp("platforms")
    store = work / "store"
    (work / "example.csv").write_text(f"imei\n{IMEI}\n")
    to = ["--store", store, "--audience", "example", "--quiet", "--format", "csv"]
    loader("build", *to, "--column", "imei=imei", work / "example.csv")
    with Rtad("--config", HERE / "rtad.toml", "--store", store, log=work / "log") as rtad:
        rtad.wait_for("decision port listens")
        yield rtad
