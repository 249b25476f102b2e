#!/usr/bin/env python3
"""Golden snapshots of a format version: an independent writer, from
docs/reference/snapshot-format.md.

    python3 tests/golden/make_golden.py tests/golden/v1

The output is committed and never regenerated: an existing directory is refused. It contains

    keys.txt              the members, 32 hex digits per line, not ordered by shard
    probes.json           bit positions of single keys in filters of many sizes, in hash order
    answers.json          for each kind, answers for `near_misses` as a bitmap
    {kind}/golden/...     a store with the audience `golden`, generation 1, for each kind of filter

The keys are in few shards, for small files: both ends of the shard space, neighbors with and
without empty shards between, neighbors across a chunk border, a shard with one key, and shards
whose number of blocks is rounded.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any, Dict, List

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from snapshot_reader import HEADER, KINDS, SHARDS, Snapshot, bit_positions, filter_size_bytes  # noqa: E402

AUDIENCE = "golden"
KEYS_OF_SHARD = {
    **{0x0000: 3, 0x0001: 1, 0x0005: 12},  # 2 to 4 are empty
    **{
        0x1001: 184,
        0x1002: 185,
        0x1003: 310,
    },  # 7.97, 8.01 and 13.42 blocks: rounded up, down and down
    **{0x2FFF: 2, 0x3000: 4},  # neighbors in two chunks
    **{0xFFFE: 5, 0xFFFF: 7},
}
FILTERS = {"block512": (10, 22_170)}  # hashes, millibits per key, for 1 in 10,000
TARGET_FPR = 0.0001
NEAR_MISSES = 4096
PROBE_SIZES = {"block512": [64, 192, 832, 64_000]}


def golden_keys() -> List[bytes]:
    """The members: chosen shards, the rest from md5, not ordered by shard."""
    shards = [shard for shard, count in KEYS_OF_SHARD.items() for _ in range(count)]
    keys = [
        shard.to_bytes(2, "big") + hashlib.md5(b"golden-%d" % number).digest()[2:]
        for number, shard in enumerate(shards)
    ]
    return sorted(keys, key=lambda key: key[2:])


def near_misses(keys: List[bytes]) -> List[bytes]:
    """Non-members that differ from a member in one probed bit."""
    misses = []
    for number in range(NEAR_MISSES):
        key, bit = bytearray(keys[number % len(keys)]), (5 * number + number // len(keys)) % 128
        key[bit // 8] ^= 1 << bit % 8
        misses.append(bytes(key))
    return misses


def build_filter(kind: str, hashes: int, keys: List[bytes], size_bytes: int) -> bytes:
    bits = bytearray(size_bytes)
    for key in keys:
        for bit in bit_positions(kind, hashes, key, size_bytes):
            bits[bit // 8] |= 1 << bit % 8
    return bytes(bits)


def filter_fpr(kind: str, hashes: int, bits: bytes) -> float:
    """False-positive rate by the fill of the filter; for blocks, the mean over blocks."""
    step = 64 if kind == "block512" else len(bits)
    parts = [bits[at : at + step] for at in range(0, len(bits), step)]
    return sum((ones(part) / (8 * step)) ** hashes for part in parts) / len(parts)


def ones(bits: bytes) -> int:
    return bin(int.from_bytes(bits, "big")).count("1")


def shards_per_run(keys: int, millibits: int) -> int:
    """The largest power of two from 16 to 4,096 with chunks of at most about 16 MiB."""
    run = 4096
    while run > 16 and keys * millibits * run > (16 << 20) * 8_000 * SHARDS:
        run //= 2
    return run


def write_store(root: Path, kind: str, keys: List[bytes]) -> None:
    """Writes a store with one audience at generation 1: chunks, manifest, CURRENT."""
    hashes, millibits = FILTERS[kind]
    shards: Dict[int, List[bytes]] = {}
    for key in keys:
        shards.setdefault(int.from_bytes(key[:2], "big"), []).append(key)
    filters = {
        shard: build_filter(kind, hashes, keys, filter_size_bytes(kind, len(keys), millibits))
        for shard, keys in shards.items()
    }

    audience = root / AUDIENCE
    (audience / "chunks").mkdir(parents=True)
    (audience / "manifests").mkdir()
    chunks: List[Dict[str, Any]] = []
    run = shards_per_run(len(keys), millibits)
    for start in range(0, SHARDS, run):
        present = [shard for shard in sorted(shards) if start <= shard < start + run]
        if not present:
            continue
        first, count = present[0], present[-1] - present[0] + 1
        counts = [len(shards.get(shard, [])) for shard in range(first, first + count)]
        body = b"".join(filters[shard] for shard in present)
        head = (
            b"RTADCHNK",
            1,
            KINDS[kind][0],
            hashes,
            millibits,
            first,
            count,
            sum(counts),
            len(body),
        )
        data = HEADER.pack(*head, bytes(16)) + b"".join(
            number.to_bytes(4, "little") for number in counts
        )
        data += bytes(-len(data) % 64) + body
        digest = hashlib.sha256(data).hexdigest()
        (audience / "chunks" / f"{digest}.chunk").write_bytes(data)
        entry = {"digest": digest, "first_shard": first, "shard_count": count}
        chunks.append({**entry, "keys": sum(counts), "size_bytes": len(data)})

    fill = [ones(bits) / (8 * len(bits)) for bits in filters.values()]
    manifest = to_json(
        {
            "format": "rtad-snapshot",
            "version": 1,
            "audience": AUDIENCE,
            "generation": 1,
            "created_unix_seconds": 1_763_722_800,
            "keys": len(keys),
            "size_bytes": sum(chunk["size_bytes"] for chunk in chunks),
            "filter": {
                "kind": kind,
                "hashes": hashes,
                "millibits_per_key": millibits,
                "target_fpr": TARGET_FPR,
                "expected_fpr": sum(filter_fpr(kind, hashes, bits) for bits in filters.values())
                / SHARDS,
                "fill_ratio": {"min": min(fill), "mean": sum(fill) / len(fill), "max": max(fill)},
            },
            "build": {"tool": "make_golden.py", "rows": len(keys), "duplicates": 0, "rejected": 0},
            "chunks": chunks,
        }
    )
    (audience / "manifests" / "1.json").write_bytes(manifest)
    current = {"format": "rtad-current", "version": 1, "sequence": 1, "generation": 1}
    reference = {
        "manifest_size_bytes": len(manifest),
        "manifest_sha256": hashlib.sha256(manifest).hexdigest(),
    }
    (audience / "CURRENT").write_bytes(to_json({**current, **reference}))


def probes() -> List[Dict[str, Any]]:
    """Bits of each key for the maximum k, for each kind and size; a smaller k uses the first k."""
    keys = [bytes(16), b"\xff" * 16, bytes(range(16)), b"\xff\xff" + bytes(13) + b"\x80"]
    keys += [hashlib.md5(b"probe-%d" % number).digest() for number in range(20)]
    greatest = {"block512": 10}
    return [
        {
            "kind": kind,
            "size_bytes": size_bytes,
            "bits": {
                key.hex(): bit_positions(kind, greatest[kind], key, size_bytes) for key in keys
            },
        }
        for kind, sizes in PROBE_SIZES.items()
        for size_bytes in sizes
    ]


def answers(root: Path, keys: List[bytes]) -> Dict[str, str]:
    """Answers of the reader for the near misses as a bitmap, lowest bit first."""
    bitmaps = {}
    for kind in FILTERS:
        snapshot = Snapshot.open(root / kind, AUDIENCE)
        if not all(snapshot.contains(key) for key in keys):
            raise SystemExit(f"{kind}: a member is missing")
        bitmap = bytearray(NEAR_MISSES // 8)
        for number, key in enumerate(near_misses(keys)):
            bitmap[number // 8] |= snapshot.contains(key) << number % 8
        bitmaps[kind] = bitmap.hex()
    return bitmaps


def to_json(value: Any) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: make_golden.py DIRECTORY", file=sys.stderr)
        return 2
    root = Path(sys.argv[1])
    if root.exists():
        print(
            f"{root} exists: golden files are never regenerated; a new version gets its own",
            file=sys.stderr,
        )
        return 1
    root.mkdir(parents=True)
    keys = golden_keys()
    (root / "keys.txt").write_text("".join(f"{key.hex()}\n" for key in keys))
    vectors = ",\n".join(json.dumps(probe, separators=(",", ":")) for probe in probes())
    (root / "probes.json").write_text(f"[\n{vectors}\n]\n")
    for kind in FILTERS:
        write_store(root / kind, kind, keys)
    (root / "answers.json").write_bytes(to_json(answers(root, keys)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
