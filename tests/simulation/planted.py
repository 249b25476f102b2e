#!/usr/bin/env python3
"""Faults that the simulation must find: `make planted`.

    python3 tests/simulation/planted.py           # all of planted/*.patch
    python3 tests/simulation/planted.py NAME ...  # some of them

The first line of a patch names the world that must find it, and the fault. Each patch is applied to
a copy of the committed tree, which is built and run over the seeds from 1 to 200. A line for each: the seed that found it, and the invariant that it violated. The exit code is
1 if one was not found, or does not apply: then the simulation needs work, or the patch.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATCHES = Path(__file__).parent / "planted"
# In the folder of the build, whose dependencies it shares.
COPY = ROOT / "target" / "planted"
SEEDS = 200
BUILD = ["cargo", "build", "--package", "simulation", "--quiet", "--target-dir", COPY / "target"]


def run(*command, cwd=COPY):
    """Runs a command; returns its exit code and its output."""
    done = subprocess.run(
        command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return done.returncode, done.stdout.strip()


def find(patch):
    """Whether the simulation finds a planted fault; and the report of the run."""
    code, output = run("git", "apply", patch)
    if code != 0:
        return False, f"does not apply: {output}"
    try:
        code, output = run(*BUILD)
        if code != 0:
            return False, f"does not build:\n{output}"
        world = patch.read_text().split(":")[0].removeprefix("# ")
        simulation = COPY / "target/debug/simulation"
        code, output = run(simulation, "--world", world, "--seeds", str(SEEDS))
        return code == 1, output
    finally:
        run("git", "checkout", "--quiet", "--", ".")


def main():
    names = sys.argv[1:]
    patches = [PATCHES / f"{name}.patch" for name in names] or sorted(PATCHES.glob("*.patch"))
    if not COPY.exists():
        subprocess.run(["git", "worktree", "add", "--detach", COPY], cwd=ROOT, check=True)
    run("git", "checkout", "--quiet", "--detach", run("git", "rev-parse", "HEAD", cwd=ROOT)[1])

    missed = 0
    for patch in patches:
        is_found, report = find(patch)
        missed += not is_found
        print(f"{'found' if is_found else 'MISSED'}: {patch.stem}\n  {report}", flush=True)
    print(f"{len(patches) - missed} of {len(patches)} found")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
