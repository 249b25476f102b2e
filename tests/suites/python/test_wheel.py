"""The wheel itself: contents, types, and a Python without other packages."""

import subprocess
import sys
import zipfile

import pytest

from suites.python import guide, wheel
from suites.testkit.programs import ROOT

BARE = """
import sys
import rtad

known, unknown = "868049039501257", "868049039501258"
assert rtad.key("imei", known).hex() == "8d3ebd3654fb46a2832296669cf1b536"
rtad.build(sys.argv[1], "users", [known], kind="imei")
audience = rtad.Audience.open(sys.argv[1], "users")
found = audience.contains([known, unknown, None, "0", "imei"], "imei")
assert found.to_pylist() == [True, False, None, None, None], found.to_pylist()
assert (found.blank, found.malformed, found[-5]) == (3, 0, True)
assert not {"numpy", "pyarrow"} & sys.modules.keys()
"""


def names(path):
    with zipfile.ZipFile(path) as archive:
        return sorted(archive.namelist())


def test_package_needs_no_other(built, tmp_path):
    wheel.run(built.python, "-c", BARE, tmp_path / "store")


def test_wheel_is_for_every_python_from_3_11_and_has_types(built):
    assert "-cp311-abi3-linux_" in built.wheel.name
    assert {"rtad/py.typed", "rtad/_rtad.pyi", "rtad/_rtad.abi3.so"} <= set(names(built.wheel))


def test_stubs_match_the_compiled_part(built):
    [site] = built.python.parents[1].glob("lib/python*/site-packages")
    command = [sys.executable, "-m", "mypy.stubtest", "rtad", "--ignore-disjoint-bases"]
    done = subprocess.run(
        command, cwd=site, env={"PYTHONPATH": str(site)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_sources_have_no_type_errors():
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", ROOT / "target/mypy"]
    done = subprocess.run([*command, "rtad"], cwd=ROOT / "python", capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.long
def test_maturin_builds_the_same_wheel_and_it_runs_the_guide(built, tmp_path):
    command = [sys.executable, "-m", "maturin", "build", "--profile", "dev", "--out", tmp_path]
    wheel.run(*command, "--interpreter", sys.executable, cwd=ROOT / "python")
    [made] = tmp_path.glob("*.whl")
    # maturin adds an inventory of the crates.
    inventory = "/sboms/"
    found = [name for name in names(made) if inventory not in name]
    assert found == names(built.wheel)
    # The platform may differ: maturin may promise an older C library.
    assert made.name.rpartition("-")[0] == built.wheel.name.rpartition("-")[0]
    assert "rtad.Column" in guide.run_in_new_environment(made, tmp_path)
