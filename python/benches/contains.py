#!/usr/bin/env python3
"""Lookups per second of `Audience.contains` on one core.

    python3 python/benches/contains.py [MEMBERS [IDS]]

Half of the ids are members. The ids are digests as fixed-size binary, the same as hex strings, and
IMEIs as strings, which are hashed. Each column is looked up five times; the median of the CPU times
counts, so that other work on the machine matters less.
"""

import os
import statistics
import sys
import tempfile
import time

import numpy
import pyarrow

import rtad

ROUNDS = 5


def main():
    members = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000_000
    random = numpy.random.default_rng(1)
    digests = random.integers(0, 256, (members + count // 2, 16), numpy.uint8)
    imeis = [f"{868_049_039_000_000 + number:015}" for number in range(count)]
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as store:
        rtad.build(store, "bench", digests[:members], memory="2GiB")
        audience = rtad.Audience.open(store, "bench")
    asked = numpy.concatenate([digests[: count // 2], digests[members:]])
    asked = asked[random.permutation(len(asked))]
    hexes = [digest.tobytes().hex() for digest in asked]
    binary = pyarrow.FixedSizeBinaryArray.from_buffers(
        pyarrow.binary(16), count, [None, pyarrow.py_buffer(asked)]
    )
    print(f"{members:,} members, {audience.info['memory_bytes'] / 2**20:.0f} MiB; {count:,} ids")
    for name, kind, column in [
        ("digests, fixed-size binary", "md5", binary),
        ("digests, array of NumPy", "md5", asked),
        ("hex strings", "md5", pyarrow.array(hexes)),
        ("IMEIs, strings", "imei", pyarrow.array(imeis)),
    ]:
        taken = []
        for _ in range(ROUNDS):
            began = time.process_time()
            found = audience.contains(column, kind)
            taken.append(time.process_time() - began)
        assert len(found) == count and found.null_count == 0
        print(f"{name:30} {count / statistics.median(taken) / 1e6:6.1f} million ids/s")


if __name__ == "__main__":
    main()
