#!/usr/bin/env python3
"""Test runner of `make test`: a line for each suite, and the totals in the last one.

    python3 tests/run.py              # Rust tests and tests/suites, on dev builds: `make test`
    python3 tests/run.py --long       # the long tests too, on release builds: `make test-all`
    python3 tests/run.py --check      # formatting, layers, and Rust tests that need no
                                      # server and no installation: `make check`

The build lints our code, and checks its documentation: see tests/linted_rustc.sh.
All suites run, even after failures. The output of a failed suite is printed. The exit code is 1
after any failure.

Random tests take their seed from TEST_SEED. It is 1, and with --long a new one, which is printed.
"""

import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
PYTHON = ROOT / ".venv/bin/python3"
# With the profile and features of `cargo test`, so that no suite rebuilds. Benchmarks are built for
# their lints, which takes 35 s of CPU time: `make check` leaves them out.
BUILD = ["cargo", "build", "--workspace", "--all-targets", "--quiet"]
BUILD_CHECK = "cargo build --workspace --lib --bins --tests --examples --quiet".split()
# Without the Python package, whose long test builds it with maturin.
BUILD_RELEASE = "cargo build --workspace --exclude rtad-python --release --quiet".split()
RUST = ["cargo", "test", "--workspace", "--no-fail-fast"]
FORMAT = ["cargo", "fmt", "--all", "--check"]
LAYERS = ["python3", "tests/layers.py"]
# cargo runs its programs one after the other: without suites beside them, these kinds run at once.
# `cli` and `ledger_model` take the longest.
RUST_KINDS = [
    *(["--test", name] for name in ("l*", "c*", "s*", "[!cls]*")),
    ["--lib", "--bins"],
    ["--doc"],
]
# The Rust tests and the suites wait in part, so four run at a time, the longest first, and cargo
# runs more tests at a time than there are processors: six took two thirds of the time of two.
AT_ONCE = 4
RUST_THREADS = max(6, os.cpu_count() or 1)
# Without suites beside them, twice as many take four fifths of the time.
RUST_THREADS_ALONE = 2 * RUST_THREADS
LONGEST = "console stores monitoring k8s fleet streams docs python openapi".split()
NO_TESTS = 5
# Sizes of random tests in a long run.
LONG = {
    "EVENTS": "10000000",
    "KILLS": "100",
    "LEDGER_SCHEDULES": "3000",
    "MUTANTS": "1000000",
    "OWNER_KILLS": "15",
    "OWNER_STOPS": "5",
    "RACES": "400",
    "SEEDS": "10000",
}

TARGET = re.compile(r"\s+(?:Running (unittests )?(\S+) \(.*/([^/]+)-[0-9a-f]+\)|Doc-tests (\S+))$")
RESULT = re.compile(
    r"test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored;"
    r" \d+ measured; (\d+) filtered out;.* in ([\d.]+)s$"
)

totals = {"passed": 0, "failed": 0, "skipped": 0, "not run": 0}
printing = threading.Lock()


def report(suite, seconds, passed=0, failed=0, skipped=0, left_out=0, output=""):
    """Adds to the totals and prints the line of a suite."""
    counts = {"passed": passed, "failed": failed, "skipped": skipped, "not run": left_out}
    results = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    with printing:
        for name, count in counts.items():
            totals[name] += count
        if failed:
            print(output, flush=True)
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
            counts = [int(count) for count in found.groups()[:4]]
            if any(counts):
                report(f"rust: {name}", float(found[5]), *counts, "".join(output))
            output = []
    # A killed test program prints no result.
    silent = cargo.wait() != 0 and totals["failed"] == failed_before
    report("rust", time.monotonic() - began, failed=int(silent), output="".join(output))


def suites():
    """Names of all suites, the longest first."""
    names = {path.parent.name for path in ROOT.glob("tests/suites/*/test_*.py")}
    order = {name: index for index, name in enumerate(LONGEST)}
    return sorted(names, key=lambda name: (order.get(name, len(order)), name))


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
    return name, time.monotonic() - began, passed, failed, skipped, 0, done.stdout


def check():
    """Runs what needs no server and no installation."""
    step("formatting", *FORMAT)
    step("layers", *LAYERS)
    if step("build", *BUILD_CHECK):
        with ThreadPoolExecutor() as pool:
            list(pool.map(rust, ([*RUST, *kind] for kind in RUST_KINDS)))
    print("Not run: tests/suites, and the lints of benchmarks. `make test` runs them.")


def test(is_long):
    """Runs all tests. Tools are installed during the build."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        groups = ["test", *(["long", "dist"] if is_long else [])]
        installed = pool.submit(step, "setup", "bash", "tests/setup.sh", *groups)
        is_built = step("build", *BUILD)
        installed.result()
        if is_built:
            tests = [pool.submit(rust, RUST), *(pool.submit(suite, name) for name in suites())]
            for done in as_completed(tests):
                if result := done.result():
                    report(*result)
    # The lints keep the compiler from optimizing as a release does.
    del os.environ["RUSTC_WORKSPACE_WRAPPER"]
    if is_long and step("release build", *BUILD_RELEASE):
        for name in suites():
            # Long tests print their measurements.
            if result := suite(name, "-m", "long", "-rP"):
                print(result[-1])
                report(f"{name}, long", *result[1:-1])


def main():
    mode = sys.argv[1:]
    if mode not in ([], ["--long"], ["--check"]):
        sys.exit(__doc__)
    is_long = mode == ["--long"]
    seed = os.environ.setdefault("TEST_SEED", str(random.getrandbits(32) if is_long else 1))
    os.environ["PROPTEST_RNG_SEED"] = seed
    threads = RUST_THREADS_ALONE if mode == ["--check"] else RUST_THREADS
    os.environ.setdefault("RUST_TEST_THREADS", str(threads))
    os.environ["RUSTC_WORKSPACE_WRAPPER"] = str(ROOT / "tests/linted_rustc.sh")
    if is_long:
        for name, count in LONG.items():
            os.environ.setdefault(name, count)
        print(f"TEST_SEED={seed}", flush=True)
    if mode == ["--check"]:
        check()
    else:
        test(is_long)
    rest = ", ".join(f"{totals[name]} {name}" for name in ("skipped", "not run") if totals[name])
    print(f"{totals['passed']} passed, {totals['failed']} failed{rest and ', ' + rest}")
    sys.exit(bool(totals["failed"]))


if __name__ == "__main__":
    main()
