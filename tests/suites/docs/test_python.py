"""Python files name only what exists: some are run once in months, by hand."""

import subprocess
import sys

from suites.testkit.programs import ROOT


def test_names_exist_and_are_used():
    files = subprocess.check_output(["git", "ls-files", "*.py"], cwd=ROOT, text=True).split()
    assert len(files) > 50
    command = [sys.executable, "-m", "pyflakes", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
