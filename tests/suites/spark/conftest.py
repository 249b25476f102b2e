"""The Python package, for drivers and executors."""

import pytest

from suites.python import wheel


@pytest.fixture(scope="session")
def package(tmp_path_factory):
    """A folder for PYTHONPATH that has the package."""
    work = tmp_path_factory.mktemp("package")
    wheel.packed(work)
    return work / "content"
