"""Paths of the repository and of the programs under test: `target/debug`, or TEST_PROGRAMS."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FOLDER = Path(os.environ.get("TEST_PROGRAMS", ROOT / "target/debug")).resolve()
RTAD, LOADER, WRITER = FOLDER / "rtad", FOLDER / "rtad-loader", FOLDER / "rtad-writer"
LOAD = FOLDER / "load"
# The PATH of the build, before conftest.py adds to it. With another one, cargo builds pyo3 again.
BUILD_PATH = os.environ["PATH"]


def loader(*words, given=None, env=None):
    """Runs `rtad-loader` with `given` as stdin; returns stdout. Asserts success."""
    command = [str(word) for word in (LOADER, *words)]
    done = subprocess.run(command, input=given, env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{command} ended with {done.returncode}: {done.stderr}"
    return done.stdout


def synth(count, *flags):
    """Synthetic device ids."""
    return loader("synth", "--count", count, *flags).split()
