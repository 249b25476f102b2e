#!/usr/bin/env python3
"""Test runner of `make test`: a line for each suite, and the totals in the last one.

    python3 tests/run.py              # Rust tests and tests/suites, on dev builds
    python3 tests/run.py --long       # the long tests too, on release builds: `make test-all`

All suites run, even after failures. The output of a failed suite is printed. The exit code is 1
after any failure.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
PYTHON = ROOT / ".venv/bin/python3"
# With the profile and features of `cargo test`, so that no suite rebuilds.
BUILD = ["cargo", "build", "--workspace", "--bins", "--tests", "--quiet"]
BUILD_RELEASE = ["cargo", "build", "--workspace", "--release", "--quiet"]
RUST = ["cargo", "test", "--workspace", "--no-fail-fast"]
# Every interleaving of the locks of event windows.
MODELS = ["cargo", "test", "-p", "rtad-window", "--features", "model", "--test", "interleavings"]
# Suites mostly wait, so three run at a time, the longest first.
AT_ONCE = 3
FIRST = ["console", "fleet", "k8s", "monitoring", "openapi", "stores", "streams"]
NO_TESTS = 5

TARGET = re.compile(r"\s+(?:Running (unittests )?(\S+) \(.*/([^/]+)-[0-9a-f]+\)|Doc-tests (\S+))$")
RESULT = re.compile(
    r"test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored;.* in ([\d.]+)s$"
)

totals = {"passed": 0, "failed": 0, "skipped": 0}


def report(suite, seconds, passed=0, failed=0, skipped=0, output=""):
    """Adds to the totals and prints the line of a suite."""
    counts = {"passed": passed, "failed": failed, "skipped": skipped}
    for name, count in counts.items():
        totals[name] += count
    if failed:
        print(output, flush=True)
    results = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    print(f"{suite}: {results or 'done'} in {seconds:.0f} s", flush=True)


def step(name, *command):
    """Runs a preparation step; returns whether it succeeded."""
    began = time.monotonic()
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    report(name, time.monotonic() - began, failed=int(done.returncode != 0), output=done.stdout)
    return done.returncode == 0


def rust(command):
    """Runs Rust tests; prints a line for each target with tests."""
    began, name, output, failed_before = time.monotonic(), "cargo", [], totals["failed"]
    cargo = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    for line in cargo.stdout:
        output.append(line)
        if found := TARGET.match(line):
            is_unit, path, program, documented = found.groups()
            name = f"{documented} docs" if documented else program
            name, output = f"{name} {path}" if is_unit else name, [line]
        elif found := RESULT.match(line):
            passed, failed, ignored = (int(count) for count in found.groups()[:3])
            if passed or failed or ignored:
                report(f"rust: {name}", float(found[4]), passed, failed, ignored, "".join(output))
            output = []
    # A killed test program prints no result.
    silent = cargo.wait() != 0 and totals["failed"] == failed_before
    report("rust", time.monotonic() - began, failed=int(silent), output="".join(output))


def suites():
    """Names of all suites."""
    names = {path.parent.name for path in ROOT.glob("tests/suites/*/test_*.py")}
    return sorted(names, key=lambda name: (name not in FIRST, name))


def suite(name, *flags):
    """Runs a suite in its own process; returns None if no test was selected."""
    began = time.monotonic()
    programs = ROOT / "target" / ("release" if "long" in flags else "debug")
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        command = [PYTHON, "-m", "pytest", f"tests/suites/{name}", f"--junitxml={report.name}"]
        done = subprocess.run(
            [*command, "--quiet", *flags],
            cwd=ROOT,
            env=os.environ | {"TEST_PROGRAMS": str(programs)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        written = Path(report.name).read_text()
    if done.returncode == NO_TESTS:
        return None
    found = ElementTree.fromstring(written).find("testsuite").attrib if written else {}
    tests, skipped = int(found.get("tests", 0)), int(found.get("skipped", 0))
    failed = int(found.get("failures", 0)) + int(found.get("errors", 0))
    passed = max(0, tests - failed - skipped)
    if done.returncode != 0:
        failed = max(1, failed)
    return name, time.monotonic() - began, passed, failed, skipped, done.stdout


def main():
    is_long = sys.argv[1:] == ["--long"]
    if sys.argv[1:] and not is_long:
        sys.exit(__doc__)
    step("setup", "bash", "tests/setup.sh", "test", *(["long"] if is_long else []))
    if step("build", *BUILD):
        rust(RUST)
        rust(MODELS)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for done in as_completed([pool.submit(suite, name) for name in suites()]):
                if result := done.result():
                    report(*result)
    if is_long and step("release build", *BUILD_RELEASE):
        for name in suites():
            # Long tests print their measurements.
            if result := suite(name, "-m", "long", "-rP"):
                print(result[-1])
                report(f"{name}, long", *result[1:-1])
    skipped = f", {totals['skipped']} skipped" if totals["skipped"] else ""
    print(f"{totals['passed']} passed, {totals['failed']} failed{skipped}")
    sys.exit(bool(totals["failed"]))


if __name__ == "__main__":
    main()
