#!/usr/bin/env python3
"""`rtad.build` from Arrow beside `rtad-loader build`.

    python3 python/benches/build.py LOADER [IDS]

Both build the same ids: hex strings and digests in Arrow arrays, and a text file of hex strings.
They take turns. The medians of elapsed and of CPU time count.
"""

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy
import pyarrow

import rtad

ROUNDS = 3
BATCH = 1_000_000


def clocks():
    """Elapsed time, and CPU time of this process and of its children that ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return time.perf_counter(), sum(one.ru_utime + one.ru_stime for one in used)


def since(began):
    return [now - then for now, then in zip(clocks(), began)]


def main():
    loader, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20_000_000
    random = numpy.random.default_rng(1)
    taken = {"rtad-loader, lines": [], "rtad.build, hex strings": [], "rtad.build, digests": []}
    with tempfile.TemporaryDirectory() as folder:
        file, hexes, digests = Path(folder, "ids"), [], []
        with file.open("w") as lines:
            for _ in range(count // BATCH):
                made = random.integers(0, 256, (BATCH, 16), numpy.uint8)
                text = [digest.tobytes().hex() for digest in made]
                lines.write("\n".join(text) + "\n")
                hexes.append(pyarrow.array(text))
                buffer = pyarrow.py_buffer(made)
                fixed = pyarrow.binary(16)
                array = pyarrow.FixedSizeBinaryArray.from_buffers(fixed, BATCH, [None, buffer])
                digests.append(array)
        for number in range(ROUNDS):
            stores = [Path(folder, f"{name}-{number}") for name in ("cli", "hex", "binary")]
            command = [loader, "build", "--store", stores[0], "--audience", "bench", "--json", file]
            began = clocks()
            done = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE)
            taken["rtad-loader, lines"].append(since(began))
            for name, store, arrays in zip([*taken][1:], stores[1:], (hexes, digests)):
                began = clocks()
                report = rtad.build(str(store), "bench", iter(arrays))
                taken[name].append(since(began))
                assert report["keys"] == json.loads(done.stdout)["keys"]
    for name, times in taken.items():
        elapsed, cpu = (statistics.median(seconds) for seconds in zip(*times))
        rate = count / elapsed / 1e6
        print(f"{name:26} {rate:6.2f} million ids/s, {cpu / count * 1e9:4.0f} ns of CPU per id")


if __name__ == "__main__":
    main()
