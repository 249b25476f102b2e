"""Generator of random ids, one per line, faster than a build reads them.

    python3 random_ids.py md5|idfa COUNT SEED

The same arguments give the same ids: 128 bits of SFC64. The probability of a duplicate among
1.5 billion is 3e-21.
"""

import os
import sys

import numpy

ROWS = 1 << 12
LAYOUT = {"md5": [32], "idfa": [8, 4, 4, 4, 12]}


def main(kind: str, count: int, seed: int) -> None:
    digits = "0123456789abcdef" if kind == "md5" else "0123456789ABCDEF"
    # Two hex digits at once.
    pairs = numpy.array(
        [ord(high) | ord(low) << 8 for high in digits for low in digits], dtype="<u2"
    )
    random = numpy.random.Generator(numpy.random.SFC64(seed))
    groups = LAYOUT[kind]
    width = sum(groups) + len(groups)
    lines = numpy.full((ROWS, width), ord("-"), dtype=numpy.uint8)
    lines[:, -1] = ord("\n")
    while count > 0:
        hexed = (
            pairs[numpy.frombuffer(random.bytes(16 * ROWS), dtype=numpy.uint8)]
            .view(numpy.uint8)
            .reshape(ROWS, 32)
        )
        column = begin = 0
        for length in groups:
            lines[:, column : column + length] = hexed[:, begin : begin + length]
            column, begin = column + length + 1, begin + length
        block = memoryview(lines).cast("B")[: width * min(count, ROWS)]
        while block:
            block = block[os.write(1, block) :]
        count -= ROWS


main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
