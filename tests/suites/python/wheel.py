"""Wheel of the Python package, from the library that `cargo build --workspace` made.

`maturin build` would resolve the features of its own crate alone, and so compile most of the
dependencies again. Here maturin writes the metadata, and the `wheel` package packs. A long test
compares the result with that of `maturin build`.
"""

import shutil
import subprocess
import sys

from suites.testkit.programs import FOLDER, ROOT

SOURCES = ROOT / "python"


def run(*command, **options):
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, **options
    )
    assert done.returncode == 0, f"{command[:5]} ended with {done.returncode}:\n{done.stderr}"
    return done.stdout


def packed(work):
    """Packs the wheel; returns its path."""
    content = work / "content"
    package = shutil.copytree(
        SOURCES / "rtad", content / "rtad", ignore=shutil.ignore_patterns("__pycache__", "*.so")
    )
    run("strip", "--strip-debug", FOLDER / "lib_rtad.so", "-o", package / "_rtad.abi3.so")
    maturin = [sys.executable, "-m", "maturin", "pep517", "write-dist-info"]
    run(*maturin, "--interpreter", sys.executable, "--metadata-directory", content, cwd=SOURCES)
    run(sys.executable, "-m", "wheel", "pack", content, "--dest-dir", work)
    [wheel] = work.glob("*.whl")
    return wheel


def installed(wheel, work):
    """Installs the wheel alone into a new environment; returns the environment's Python."""
    run(sys.executable, "-m", "venv", "--without-pip", work / "venv")
    python = work / "venv/bin/python3"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    run(*pip, "--disable-pip-version-check", "--no-deps", "--no-index", wheel)
    return python
