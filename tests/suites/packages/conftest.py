"""Fixture: the artifacts of `make dist`."""

import shutil

import pytest

from suites.packages import clone


@pytest.fixture(scope="session")
def dist(tmp_path_factory):
    """The folder of the artifacts, in a clone of the last commit."""
    folder = tmp_path_factory.mktemp("dist")
    yield clone.make_dist(folder / "a")
    shutil.rmtree(folder)
