#!/usr/bin/env python3
"""Golden snapshots of ribbon filters: an independent writer, from
docs/reference/snapshot-format.md.

    python3 tests/golden/make_golden_ribbon.py tests/golden/v1-ribbon

The output is committed and never regenerated: an existing directory is refused. It contains

    {millibits}/golden/...   a store with the audience `golden`, generation 1
    answers.json             for each store, answers for `non_members` and `near_misses` as a bitmap

Keys are made, not stored. The shards have sizes around every border of the format: lists, one and
two tiers, and keys that share the bytes that choose the line.
"""

from __future__ import annotations

import hashlib
import struct
import sys
from pathlib import Path
from typing import Any, Dict, List

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import ribbon  # noqa: E402
from make_golden import AUDIENCE, shards_per_run, to_json  # noqa: E402
from snapshot_reader import HEADER, KINDS, SHARDS, Snapshot  # noqa: E402

MILLIBITS = [12_000, 13_000, 13_367, 14_000, 15_500, 16_000]
SIZES = {0x0000: 1, 0x0001: 2, 0x0003: 31, 0x0004: 32, 0x0005: 33, 0x0006: 100}
SIZES = {**SIZES, 0x0007: 2999, 0x0008: 3000, 0x0009: 9000, 0x000A: 40, 0x000B: 3100, 0xFFFF: 7}
# Their keys share bytes 2 to 9: one start line and, for most r, one fingerprint, which is not 0.
CROWDED = (0x000A, 0x000B)
NON_MEMBERS, NEAR_MISSES = 20_000, 4096


def golden_keys() -> List[bytes]:
    """The members by shard, numbered in that order."""
    keys = []
    for shard, count in SIZES.items():
        for _ in range(count):
            digest = hashlib.md5(b"ribbon-%d" % len(keys)).digest()
            head = shard.to_bytes(2, "big")
            head += b"\xa5" * 8 if shard in CROWDED else digest[2:10]
            keys.append(head + digest[10:])
    return keys


def non_members() -> List[bytes]:
    """Non-members in the shards of members."""
    shards = list(SIZES)
    return [
        shards[number % len(shards)].to_bytes(2, "big")
        + hashlib.md5(b"other-%d" % number).digest()[2:]
        for number in range(NON_MEMBERS)
    ]


def near_misses(keys: List[bytes]) -> List[bytes]:
    """Members with one bit changed."""
    misses = []
    for number in range(NEAR_MISSES):
        key, bit = bytearray(keys[3 * number % len(keys)]), 5 * number % 128
        key[bit // 8] ^= 1 << bit % 8
        misses.append(bytes(key))
    return misses


def write_store(root: Path, millibits: int, keys: List[bytes]) -> None:
    """Writes a store with one audience at generation 1: chunks, manifest, CURRENT."""
    shards: Dict[int, List[bytes]] = {}
    for key in keys:
        shards.setdefault(int.from_bytes(key[:2], "big"), []).append(key)
    built = {
        shard: ribbon.build_shard(keys, ribbon.bits_of(millibits, 0, shard))
        for shard, keys in shards.items()
    }
    audience = root / AUDIENCE
    (audience / "chunks").mkdir(parents=True)
    (audience / "manifests").mkdir()
    chunks: List[Dict[str, Any]] = []
    run = shards_per_run(len(keys), millibits)
    for begin in range(0, SHARDS, run):
        present = [shard for shard in sorted(shards) if begin <= shard < begin + run]
        if not present:
            continue
        first, count = present[0], present[-1] - present[0] + 1
        numbers = [
            (len(shards[shard]), *built[shard][1:]) if shard in built else (0, 0, 0)
            for shard in range(first, first + count)
        ]
        # All first tiers, then all second tiers, then all lists.
        body = b"".join(built[shard][0][part] for part in range(3) for shard in present)
        held = sum(number[0] for number in numbers)
        head = (b"RTADCHNK", 1, KINDS["ribbon"][0], 2, millibits, first, count, held, len(body))
        data = HEADER.pack(*head, bytes(16))
        for array in range(3):
            data += struct.pack(f"<{count}I", *(number[array] for number in numbers))
        data += bytes(-len(data) % 64) + body
        digest = hashlib.sha256(data).hexdigest()
        (audience / "chunks" / f"{digest}.chunk").write_bytes(data)
        entry = {"digest": digest, "first_shard": first, "shard_count": count}
        chunks.append({**entry, "keys": held, "size_bytes": len(data)})
    rates = (
        ribbon.expected_fpr(parts, ribbon.bits_of(millibits, 0, shard))
        for shard, (parts, _, _) in built.items()
    )
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
                "kind": "ribbon",
                "hashes": 2,
                "millibits_per_key": millibits,
                "target_fpr": 0.0001,
                "expected_fpr": sum(rates) / SHARDS,
                "diverted_keys": sum(diverted for _, diverted, _ in built.values()),
                "listed_keys": sum(listed for _, _, listed in built.values()),
            },
            "build": {
                "tool": "make_golden_ribbon.py",
                "rows": len(keys),
                "duplicates": 0,
                "rejected": 0,
            },
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


def answers(store: Path, millibits: int, keys: List[bytes]) -> str:
    """Answers of the reader for non-members and near misses as a bitmap, lowest bit first."""
    snapshot = Snapshot.open(store, AUDIENCE)
    if not all(snapshot.contains(key) for key in keys):
        raise SystemExit(f"{millibits}: a member is missing")
    asked = non_members() + near_misses(keys)
    bitmap = bytearray(len(asked) // 8)
    for number, key in enumerate(asked):
        bitmap[number // 8] |= snapshot.contains(key) << number % 8
    # Some of them are in shards without lines; the others have the rate of their bits.
    found = sum(snapshot.contains(key) for key in non_members())
    if not found <= 3 + 3 * NON_MEMBERS / 2 ** (millibits // 1000):
        raise SystemExit(f"{millibits}: {found} of {NON_MEMBERS} non-members are members")
    return bitmap.hex()


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: make_golden_ribbon.py DIRECTORY", file=sys.stderr)
        return 2
    root = Path(sys.argv[1])
    if root.exists():
        print(f"{root} exists: golden files are never regenerated", file=sys.stderr)
        return 1
    root.mkdir(parents=True)
    keys = golden_keys()
    bitmaps = {}
    for millibits in MILLIBITS:
        store = root / str(millibits)
        write_store(store, millibits, keys)
        bitmaps[str(millibits)] = answers(store, millibits, keys)
    (root / "answers.json").write_bytes(to_json(bitmaps))
    return 0


if __name__ == "__main__":
    sys.exit(main())
