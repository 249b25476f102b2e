"""Markdown pages: extracting and running their fenced commands."""

import os
import re
import subprocess

from .programs import FOLDER, ROOT


def blocks(page, heading=None):
    """The ```sh blocks of a page, or of one of its sections, in order."""
    text = (ROOT / page).read_text()
    if heading is not None:
        level = heading.split(" ")[0]
        part = re.search(rf"^{re.escape(heading)}\n(.*?)(?=^{level} |\Z)", text, re.M | re.S)
        assert part, f"{page} has no {heading}"
        text = part[1]
    # Blocks in list items are indented.
    return re.findall(r"^ *```sh\n(.*?)^ *```$", text, re.M | re.S)


def with_programs(folder, *names):
    """An environment with these built programs first in PATH."""
    there = folder / "bin"
    there.mkdir()
    for name in names:
        (there / name).symlink_to(FOLDER / name)
    return os.environ | {"PATH": f"{there}:{os.environ['PATH']}"}


def run(command, **more):
    """Runs a command with bash; returns its output. Asserts success."""
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, **more)
    assert done.returncode == 0, f"{command} ended with {done.returncode}: {done.stderr}"
    return done.stdout
