"""Full-size builds: no false negatives, fpr within 10 % of its target, memory at most 10 % over
--memory, and the same bytes for any memory, threads and order. Prints speeds, asserts none.

FULL_SIZE sets the maximum number of ids: 100 million take about five minutes, 1500000000 an hour
and 35 GB in TMPDIR.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from suites.testkit.programs import LOADER, ROOT

pytestmark = pytest.mark.long

MOST = int(os.environ.get("FULL_SIZE", 100_000_000))
SIZES = [count for count in (10**7, 10**8, 10**9, 1_500_000_000) if count <= MOST]
MIB = 1 << 20


@pytest.fixture(scope="module")
def work():
    # Not tmp_path, which would keep gigabytes after a failure.
    with tempfile.TemporaryDirectory() as work:
        yield Path(work)


@contextlib.contextmanager
def ids(kind, count, seed, shuffled=False):
    """A pipe of random ids."""
    script = Path(__file__).with_name("random_ids.py")
    command = f"'{sys.executable}' '{script}' {kind} {count} {seed}"
    if shuffled:
        command += f" | shuf --random-source='{LOADER}'"
    with subprocess.Popen(["bash", "-c", command], stdout=subprocess.PIPE) as source:
        yield source.stdout


def run(command, stdin=None, **more):
    command = [str(word) for word in command]
    done = subprocess.run(command, stdin=stdin, stdout=subprocess.PIPE, text=True, **more)
    assert done.returncode == 0, command
    return done.stdout


def build(store, kind, count, *flags, shuffled=False):
    """Builds random ids; returns the names of the chunks."""
    to = ["--store", store, "--audience", "ids", "--id-kind", kind, "--json"]
    with ids(kind, count, 0, shuffled) as source:
        built = json.loads(run([LOADER, "build", *to, *flags, "-"], stdin=source))
    stages = built["stages"]
    assert built["keys"] == count, built
    assert stages["peak_memory_bytes"] <= stages["memory_bytes"] * 1.1, stages
    print(
        f"{count} ids ({kind} {' '.join(flags)}): "
        f"{count / built['total_seconds'] / 1e6:.1f} million ids/s; "
        f"read {stages['read_seconds']:.1f} s, sorted {stages['sort_seconds']:.1f} s, "
        f"chunks {stages['chunk_seconds']:.1f} s; "
        f"peak {stages['peak_memory_bytes'] / MIB:.0f} of {stages['memory_bytes'] / MIB:.0f} MiB, "
        f"{stages['spilled_bytes'] / 1e9:.1f} GB on disk; {built['size_bytes'] / count:.2f} bytes an id"
    )
    return sorted(path.name for path in (store / "ids/chunks").iterdir())


def measured(most_bytes, *words):
    """Runs rtad-loader with a memory limit; returns its output, prints time and memory."""
    begun = time.monotonic()
    process = subprocess.Popen([LOADER, *map(str, words)], stdout=subprocess.PIPE, text=True)
    output = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, words
    wall, peak = time.monotonic() - begun, used.ru_maxrss << 10
    assert peak <= most_bytes, (words, peak, most_bytes)
    cpu = f"{used.ru_utime:.1f} + {used.ru_stime:.1f} s"
    print(f"{words[0]}: {wall:.1f} s, CPU {cpu}, peak {peak / MIB:.0f} MiB")
    return output


def test_same_set_gives_the_same_chunks(work):
    flags = [
        "--memory 96MiB --threads 1",
        "--memory 96MiB --threads 2",
        "--memory 512MiB --threads 8",
    ]

    def chunks(*flags, shuffled=False):
        with tempfile.TemporaryDirectory(dir=work) as store:
            return build(Path(store), "md5", 10**7, *flags, shuffled=shuffled)

    expected = chunks("--memory", "4GiB")
    for some in flags:
        assert chunks(*some.split()) == expected, some
    assert chunks("--memory", "128MiB", shuffled=True) == expected


@pytest.fixture(scope="module")
def largest(work):
    """The store of the largest build."""
    for count in SIZES:
        store = work / f"md5-{count}"
        build(store, "md5", count, "--memory", "1GiB")
        if count != SIZES[-1]:
            run(["rm", "-r", store])
    return store


def test_commands_stay_within_their_memory(largest, work):
    """Only verify loads the snapshot into memory."""
    to = ["--store", largest, "--audience", "ids"]
    size = int(run(["du", "-sb", largest]).split()[0])
    measured(3 << 27, "inspect", *to, "--json")
    whole = size * 6 // 5 + (1 << 28)
    measured(whole, "verify", *to, "--json")

    os.mkfifo(work / "ids")
    with ids("md5", SIZES[-1], 0) as source:
        feeding = threading.Thread(target=feed, args=(source, work / "ids"), daemon=True)
        feeding.start()
        verified = json.loads(measured(whole, "verify", *to, "--json", "--against", work / "ids"))
        feeding.join()
    against, target = verified["against"], verified["target_fpr"]
    assert against["checked"] == SIZES[-1] and against["false_negatives"] == 0, against
    assert abs(verified["measured_fpr"] / target - 1) < 0.1, verified
    rate = f"measured fpr {verified['measured_fpr']:.3e} of {target}"
    print(f"verified: {SIZES[-1]} ids, no false negative, {rate}")

    with ids("md5", 1000, 1) as source:
        run([LOADER, "append", *to, "--quiet", "-"], stdin=source)
    run(["rm", "-r", largest])


def feed(source, fifo):
    subprocess.run(["cat"], stdin=source, stdout=open(fifo, "wb"))


def test_idfas_are_built(work):
    build(work / "idfa", "idfa", MOST // 3, "--memory", "1GiB")


def test_pod_of_100_million_keys_fetches_only_changed_chunks():
    """Runs the large Rust test."""
    command = ["cargo", "test", "--release", "--quiet", "--test", "service", "sync_deltas"]
    print(run([*command, "--", "--ignored", "--nocapture"], cwd=ROOT))
