"""The wheel, an environment with nothing else, and the module of that environment."""

import importlib
import sys
from types import SimpleNamespace

import pytest

from suites.python import wheel
from suites.testkit.programs import loader, synth

MEMBERS = 20_000


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """The wheel, and the Python of a new environment that has it."""
    work = tmp_path_factory.mktemp("wheel")
    packed = wheel.packed(work)
    return SimpleNamespace(wheel=packed, python=wheel.installed(packed, work))


@pytest.fixture(scope="session")
def rtad(built):
    """The package of the new environment, with the libraries of the tests beside it."""
    [site] = built.python.parents[1].glob("lib/python*/site-packages")
    sys.path.insert(0, str(site))
    module = importlib.import_module("rtad")
    assert module.__file__.startswith(str(site))
    return module


@pytest.fixture(scope="session")
def members(tmp_path_factory):
    """Ids of a store that the loader built, with a delta and tombstones."""
    folder = tmp_path_factory.mktemp("store")
    store, ids = folder / "store", synth(MEMBERS)
    added, removed, entombed = synth(100, "--offset", MEMBERS), ids[:100], ids[100:150]
    target = ("--store", store, "--audience", "users", "--quiet")
    loader("build", *target, "-", given="\n".join(ids))
    loader("append", *target, "-", given="\n".join(added))
    loader("remove", *target, "-", given="\n".join(removed))
    loader("remove", *target, "--tombstone", "-", given="\n".join(entombed))
    return SimpleNamespace(store=str(store), ids=ids, added=added, removed=removed + entombed)
