#!/usr/bin/env python3
"""Independent reader of rtad snapshots, written only from docs/reference/snapshot-format.md.

It shares no code with rtad, so equal answers verify the page. It favors clarity over speed: plain
integers, one file at a time, checks in the order of the page.

    python3 tests/snapshot_reader.py STORE AUDIENCE            keys from stdin, 1 or 0 to stdout
    python3 tests/snapshot_reader.py STORE AUDIENCE --check    verify everything, print totals

A key is a line of 32 hex digits. With --public-key KEY, the record must be signed by this minisign
key.

Exit code 0: the snapshot is valid. 1: the snapshot or a key is invalid; the reason is on stderr.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import struct
import sys
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

sys.path.insert(0, str(Path(__file__).resolve().parent))

import minisign  # noqa: E402
import ribbon  # noqa: E402

RECORD_MAX_BYTES = 64 << 10
SIGNATURE_MAX_BYTES = 4096
KEPT_MAX = 64
RECORD = re.compile(r"[0-9]{20}\.json")
MANIFEST_MAX_BYTES = 4 << 20
SHARDS = 65_536
DELTAS_MAX = 12
DELTA_KEYS_MAX = 1 << 25
DELTA_HEADER = struct.Struct("<8s2I6Q")
HEADER = struct.Struct("<8s6I2QI12s")
# Name -> (number in the header, lowest and highest k, lowest and highest millibits, counts per
# shard, bytes of the smallest body).
KINDS = {
    "block512": (2, 1, 10, 1_000, 1_000_000, 1, 8),
    "ribbon": (3, 2, 2, 12_000, 16_000, 3, 4),
}
U64_MAX = (1 << 64) - 1
AUDIENCE = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
DIGEST = re.compile(r"[0-9a-f]{64}")


class SnapshotError(Exception):
    """Invalid field: file, field, found and expected value."""

    def __init__(self, file: str, field: str, found: object, expected: object) -> None:
        super().__init__(f"{file}: {field} is {str(found)[:100]}, expected {expected}")
        self.file, self.field, self.found, self.expected = file, field, found, expected


def filter_size_bytes(kind: str, keys: int, millibits_per_key: int) -> int:
    """Bytes of a shard's filter; 0 for a shard without keys."""
    need = keys * millibits_per_key
    if need < 8 * 512_000:
        return 64 * -(-need // 512_000)
    return 64 * ((need + 256_000) // 512_000)


def body_start(kind: str, shard_count: int) -> int:
    """Offset of a chunk's body: after header, counts, and zeros up to a multiple of 64."""
    return -(-(HEADER.size + 4 * KINDS[kind][5] * shard_count) // 64) * 64


def bit_positions(kind: str, hashes: int, key: bytes, size_bytes: int) -> List[int]:
    """Bits that `key` sets in a filter of `size_bytes` (> 0); bits may repeat."""
    h1, h2 = struct.unpack("<Q", key[2:10])[0], struct.unpack("<Q", key[8:16])[0]
    block = 512 * (h1 * (size_bytes // 64) >> 64)
    parts = [h2 >> (16 + 9 * i) if i < 5 else h1 >> (9 * (i - 5)) for i in range(hashes)]
    return [block + part % 512 for part in parts]


class Fields:
    """A JSON object; its fields are taken and checked one by one, leftover fields are errors."""

    def __init__(self, file: str, prefix: str, value: Any) -> None:
        if not isinstance(value, dict):
            raise SnapshotError(file, prefix or "content", type(value).__name__, "an object")
        self.file, self.prefix, self.rest = file, f"{prefix}." if prefix else "", dict(value)

    def fail(self, field: str, found: object, expected: object) -> SnapshotError:
        return SnapshotError(self.file, self.prefix + field, found, expected)

    def take(self, field: str) -> Any:
        if field not in self.rest:
            raise self.fail(field, "absent", "a value")
        return self.rest.pop(field)

    def integer(self, field: str, low: int = 0, high: int = U64_MAX) -> int:
        value = self.take(field)
        if type(value) is not int or not low <= value <= high:
            raise self.fail(field, value, f"an integer from {low} to {high}")
        return value

    def fraction(self, field: str) -> float:
        value = self.take(field)
        if type(value) not in (int, float) or not 0 <= value <= 1:
            raise self.fail(field, value, "a number from 0 to 1")
        return float(value)

    def text(self, field: str, pattern: Optional[re.Pattern[str]] = None) -> str:
        value = self.take(field)
        if not isinstance(value, str) or (pattern and not pattern.fullmatch(value)):
            raise self.fail(field, value, pattern.pattern if pattern else "a string")
        return value

    def exactly(self, field: str, expected: object) -> None:
        value = self.take(field)
        if type(value) is not type(expected) or value != expected:
            raise self.fail(field, value, expected)

    def object(self, field: str) -> Fields:
        return Fields(self.file, self.prefix + field, self.take(field))

    def end(self) -> None:
        for field in self.rest:
            raise self.fail(field, "present", "no such field in version 1")


def read_capped(path: Path, file: str, max_bytes: int) -> bytes:
    """The file's bytes, at most `max_bytes`; checks the size before reading."""
    try:
        with path.open("rb") as stream:
            size_bytes = os.fstat(stream.fileno()).st_size
            if size_bytes > max_bytes:
                raise SnapshotError(file, "size", size_bytes, f"at most {max_bytes}")
            return stream.read()
    except OSError as cause:
        raise SnapshotError(file, "file", cause.strerror or cause, "a readable file") from cause


def read_json(file: str, data: bytes, file_format: str) -> Fields:
    """The top object of a JSON file, after checking `format` and `version`."""

    def constant(name: str) -> float:
        raise ValueError(f"{name} is not JSON")

    def unique(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
        if len({name for name, _ in pairs}) != len(pairs):
            raise ValueError("a field stands twice")
        return dict(pairs)

    try:
        value = json.loads(data.decode("utf-8"), parse_constant=constant, object_pairs_hook=unique)
    except (ValueError, RecursionError) as cause:
        raise SnapshotError(file, "content", cause, "JSON in UTF-8") from cause
    fields = Fields(file, "", value)
    fields.exactly("format", file_format)
    fields.exactly("version", 1)
    return fields


@dataclass(frozen=True)
class DeltaEntry:
    """Entry of one delta in a record or a manifest."""

    first: int
    last: int
    added: int
    removed: int
    has_values: bool
    sha256: str

    @property
    def size_bytes(self) -> int:
        keys = 16 * (self.added + self.removed)
        return DELTA_HEADER.size + keys + (self.added if self.has_values else 0)

    @staticmethod
    def parse(fields: Fields, newest: int) -> DeltaEntry:
        last = fields.integer("last", 1, newest)
        first = fields.integer("first", 1, last)
        has_values = fields.take("values") if "values" in fields.rest else False
        if type(has_values) is not bool:
            raise fields.fail("values", has_values, "a bool")
        added = fields.integer("added", 1 if has_values else 0, DELTA_KEYS_MAX)
        removed = fields.integer("removed", 0 if added else 1, DELTA_KEYS_MAX - added)
        sha256 = fields.text("sha256", DIGEST)
        entry = DeltaEntry(first, last, added, removed, has_values, sha256)
        fields.end()
        return entry

    @staticmethod
    def optional(fields: Fields, name: str, newest: int) -> Optional[DeltaEntry]:
        return DeltaEntry.parse(fields.object(name), newest) if name in fields.rest else None

    @staticmethod
    def all(fields: Fields, name: str, newest: int) -> List[DeltaEntry]:
        """An optional array, ordered by `last`."""
        if name not in fields.rest:
            return []
        values = fields.take(name)
        if not isinstance(values, list) or len(values) > DELTAS_MAX:
            raise fields.fail(name, type(values).__name__, f"an array of at most {DELTAS_MAX}")
        paths = (f"{fields.prefix}{name}[{index}]" for index in range(len(values)))
        entries = [
            DeltaEntry.parse(Fields(fields.file, *both), newest) for both in zip(paths, values)
        ]
        ends = [entry.last for entry in entries]
        if ends != sorted(set(ends)):
            raise fields.fail(name, ends, "ascending ends")
        return entries


@dataclass(frozen=True)
class Delta:
    """Exact changes."""

    # Keys with their values, None without one.
    added: Dict[bytes, Optional[int]]
    removed: frozenset[bytes]

    @staticmethod
    def parse(file: str, data: bytes, entry: DeltaEntry) -> Delta:
        def same(field: str, found: object, expected: object) -> None:
            if found != expected:
                raise SnapshotError(file, field, found, expected)

        same("size", len(data), entry.size_bytes)
        same("digest", hashlib.sha256(data).hexdigest(), entry.sha256)
        expected = (
            b"RTADDLTA",
            1,
            0,
            entry.first,
            entry.last,
            entry.added,
            entry.removed,
            entry.added if entry.has_values else 0,
            0,
        )
        same("header", DELTA_HEADER.unpack_from(data), expected)
        end = DELTA_HEADER.size + 16 * (entry.added + entry.removed)
        keys = [data[at : at + 16] for at in range(DELTA_HEADER.size, end, 16)]
        lists = keys[: entry.added], keys[entry.added :]
        for one in lists:
            same("order", all(a < b for a, b in zip(one, one[1:])), True)
        same("keys both added and removed", len(set(lists[0]) & set(lists[1])), 0)
        values = [None if value == 255 else value for value in data[end:]] or [None] * entry.added
        same("values", all(value is None or value <= 15 for value in values), True)
        same("a value", any(value is not None for value in values), entry.has_values)
        return Delta(dict(zip(lists[0], values)), frozenset(lists[1]))


@dataclass(frozen=True)
class Generation:
    """A generation, named by its manifest."""

    number: int
    manifest_size_bytes: int
    manifest_sha256: str

    @staticmethod
    def parse(fields: Fields) -> Generation:
        return Generation(
            fields.integer("generation", 1),
            fields.integer("manifest_size_bytes", 0, MANIFEST_MAX_BYTES),
            fields.text("manifest_sha256", DIGEST),
        )

    @staticmethod
    def kept(fields: Fields, live: int) -> List[Generation]:
        """The optional array of the generations besides the live one, in order."""
        values = fields.take("kept") if "kept" in fields.rest else []
        if not isinstance(values, list) or len(values) > KEPT_MAX:
            raise fields.fail("kept", type(values).__name__, f"an array of at most {KEPT_MAX}")
        found = []
        for index, value in enumerate(values):
            entry = Fields(fields.file, f"kept[{index}]", value)
            found.append(Generation.parse(entry))
            entry.end()
        numbers = [entry.number for entry in found]
        if numbers != sorted(set(numbers) - {live}):
            raise fields.fail("kept", numbers, f"ascending generations without {live}")
        return found

    @property
    def file(self) -> str:
        return f"manifests/{self.number}-{self.manifest_sha256}.json"


@dataclass(frozen=True)
class Record:
    """Content of a record."""

    sequence: int
    live: Generation
    kept: List[Generation]
    rolled_back_from: Optional[int]
    deltas: List[DeltaEntry]
    tombstones: Optional[DeltaEntry]
    state: str

    @staticmethod
    def newest(root: Path, public_key: Optional[str] = None) -> Record:
        """Goes forward from the hint, or from the last one of a listing."""
        hinted = 0
        hint = root / "LATEST"
        if hint.exists() and (text := hint.read_text().rstrip()).isdigit():
            hinted = int(text)
        number = hinted
        if not (root / Record.file(number)).exists():
            names = (path.name for path in (root / "records").glob("*.json"))
            numbers = [int(name[:20]) for name in names if RECORD.fullmatch(name)]
            number = max(numbers, default=0)
        while (root / Record.file(number + 1)).exists():
            number += 1
        if not number:
            raise SnapshotError("records", "files", "none", "a record")
        if hinted > number:
            # An older record lacks later erasures.
            raise SnapshotError("LATEST", "number", hinted, f"{number}, the newest record")
        return Record.open(root, number, public_key)

    @staticmethod
    def file(number: int) -> str:
        return f"records/{number:020}.json"

    @staticmethod
    def open(root: Path, number: int, public_key: Optional[str]) -> Record:
        file = Record.file(number)
        data = read_capped(root / file, file, RECORD_MAX_BYTES + 1 + SIGNATURE_MAX_BYTES)
        content, _, signature = data.partition(b"\n")
        if public_key:
            if not signature:
                raise SnapshotError(file, "signature", "absent", "a minisign signature")
            path = f"{root.name}/{file}"
            fault = minisign.check(public_key, content, signature.decode(), path)
            if fault:
                raise SnapshotError(file, "signature", fault, f"one by {public_key}")
        record = Record.parse(file, content)
        if record.sequence != number:
            raise SnapshotError(file, "sequence", record.sequence, number)
        return record

    @staticmethod
    def parse(file: str, data: bytes) -> Record:
        if len(data) > RECORD_MAX_BYTES:
            raise SnapshotError(file, "size", len(data), f"at most {RECORD_MAX_BYTES}")
        fields = read_json(file, data, "rtad-record")
        sequence = fields.integer("sequence", 1)
        # Only writers use it: of two that create a record, each knows its own.
        fields.integer("writer")
        live = Generation.parse(fields)
        generation = live.number
        kept = Generation.kept(fields, generation)
        if "staged" in fields.rest:
            # Some pods serve it; this reader is none of them.
            Record.check_staged(fields.object("staged"), generation, kept)
        rolled_back_from = None
        if "rolled_back_from" in fields.rest:
            rolled_back_from = fields.integer("rolled_back_from", generation + 1)
        for name, low, high in (
            ("no_merge_through", 0, U64_MAX),
            ("published_sequence", 1, sequence),
            ("appended_unix_seconds", 0, U64_MAX),
            ("expires_unix_seconds", 0, U64_MAX),
        ):
            if name in fields.rest:
                fields.integer(name, low, high)
        state = (
            fields.text("state", re.compile("live|disabled|deleted"))
            if "state" in fields.rest
            else "live"
        )
        deltas = DeltaEntry.all(fields, "deltas", sequence)
        tombstones = DeltaEntry.optional(fields, "tombstones", sequence)
        if tombstones and tombstones.added:
            raise fields.fail("tombstones.added", tombstones.added, 0)
        fields.end()
        return Record(sequence, live, kept, rolled_back_from, deltas, tombstones, state)


    @staticmethod
    def check_staged(fields: Fields, live: int, kept: List[Generation]) -> None:
        entry = fields.object("entry")
        staged = Generation.parse(entry)
        entry.end()
        if staged.number <= live or any(other.number == staged.number for other in kept):
            raise fields.fail("entry", staged.number, f"more than {live}, and not kept")
        fields.integer("pods_per_million", 1, 999_999)
        fields.end()


@dataclass(frozen=True)
class Entry:
    """Entry of one chunk in a manifest."""

    digest: str
    first_shard: int
    shard_count: int
    keys: int
    size_bytes: int


@dataclass(frozen=True)
class Manifest:
    """Content of a manifest; informational fields are checked and dropped."""

    kind: str
    hashes: int
    millibits_per_key: int
    value_bits: int
    keys: int
    size_bytes: int
    chunks: List[Entry]

    @staticmethod
    def parse(file: str, data: bytes, audience: str, generation: int) -> Manifest:
        top = read_json(file, data, "rtad-snapshot")
        top.exactly("audience", audience)
        top.exactly("generation", generation)
        if "base_generation" in top.rest:
            # Only writers use the generation that was live before.
            top.integer("base_generation", 0, generation - 1)
        created = top.integer("created_unix_seconds")
        if "expires_unix_seconds" in top.rest:
            # The reader ignores expiry.
            top.integer("expires_unix_seconds", created + 1)
        if "from_window" in top.rest:
            # Only writers use the window that the audience follows.
            top.text("from_window", AUDIENCE)
        keys, size_bytes = top.integer("keys"), top.integer("size_bytes")

        filters = top.object("filter")
        kind = filters.text("kind")
        if kind not in KINDS:
            raise filters.fail("kind", kind, " or ".join(sorted(KINDS)))
        hashes = filters.integer("hashes", *KINDS[kind][1:3])
        millibits = filters.integer("millibits_per_key", *KINDS[kind][3:5])
        value_bits = 0
        if kind == "ribbon" and "value_bits" in filters.rest:
            value_bits = filters.integer("value_bits", ribbon.VALUE_BITS, ribbon.VALUE_BITS)
        filters.fraction("target_fpr")
        filters.fraction("expected_fpr")
        if kind == "ribbon":
            filters.integer("diverted_keys")
            filters.integer("listed_keys")
        else:
            fill = filters.object("fill_ratio")
            for name in ("min", "mean", "max"):
                fill.fraction(name)
            fill.end()

        build = top.object("build")
        build.text("tool")
        for name in ("rows", "duplicates", "rejected"):
            build.integer(name)
        if "overlap" in build.rest:
            build.fraction("overlap")
        if "recent_keys" in build.rest:
            # Only writers use the keys of earlier generations.
            build.take("recent_keys")

        if "lineage" in top.rest:
            # Only people use labels and inputs.
            top.take("lineage")
        if "folded" in top.rest:
            # Only writers use the inputs of the generation.
            folded = top.object("folded")
            folded.integer("through")
            DeltaEntry.all(folded, "deltas", U64_MAX)
            folded.end()

        entries = top.take("chunks")
        if not isinstance(entries, list):
            raise top.fail("chunks", type(entries).__name__, "an array")
        chunks = list(Manifest._entries(file, kind, entries))
        for rest in (filters, build, top):
            rest.end()
        for field, total, parts in (
            ("keys", keys, sum(chunk.keys for chunk in chunks)),
            ("size_bytes", size_bytes, sum(chunk.size_bytes for chunk in chunks)),
        ):
            if total != parts:
                raise top.fail(field, total, f"{parts}, the sum over the chunks")
        return Manifest(kind, hashes, millibits, value_bits, keys, size_bytes, chunks)

    @staticmethod
    def _entries(file: str, kind: str, entries: List[Any]) -> Iterator[Entry]:
        next_shard = 0
        for index, value in enumerate(entries):
            fields = Fields(file, f"chunks[{index}]", value)
            digest = fields.text("digest", DIGEST)
            first = fields.integer("first_shard", next_shard, SHARDS - 1)
            count = fields.integer("shard_count", 1, SHARDS - first)
            keys = fields.integer("keys", 1)
            size_bytes = fields.integer("size_bytes", body_start(kind, count) + KINDS[kind][6])
            yield Entry(digest, first, count, keys, size_bytes)
            fields.end()
            next_shard = first + count


@dataclass(frozen=True)
class Chunk:
    """The filters of a run of neighboring shards, in order: one part each, three of ribbon. The
    parts of a shard without keys are empty."""

    first_shard: int
    filters: List[ribbon.Parts]

    @staticmethod
    def parse(file: str, data: bytes, manifest: Manifest, entry: Entry) -> Chunk:
        def same(field: str, found: object, expected: object) -> None:
            if found != expected:
                raise SnapshotError(file, field, found, expected)

        same("size", len(data), entry.size_bytes)
        header = HEADER.unpack_from(data)
        magic, version, kind, hashes, millibits, first, count, keys, body_bytes = header[:9]
        value_bits, reserved = header[9:]
        same("magic", magic, b"RTADCHNK")
        same("version", version, 1)
        same("filter kind", kind, KINDS[manifest.kind][0])
        same("hashes", hashes, manifest.hashes)
        same("millibits per key", millibits, manifest.millibits_per_key)
        same("first shard", first, entry.first_shard)
        same("shard count", count, entry.shard_count)
        same("keys", keys, entry.keys)
        same("value bits", value_bits, manifest.value_bits)
        same("reserved", reserved, bytes(12))

        arrays = KINDS[manifest.kind][5]
        counts_end = HEADER.size + 4 * arrays * count
        start = body_start(manifest.kind, count)
        same("body bytes", body_bytes, len(data) - start)
        numbers = struct.unpack_from(f"<{arrays * count}I", data, HEADER.size)
        counts = numbers[:count]
        same("key counts", sum(counts), keys)
        if manifest.kind == "ribbon":
            sizes = []
            for index, n in enumerate(counts):
                diverted, listed = numbers[count + index], numbers[2 * count + index]
                if diverted > (n if n >= ribbon.MIN_SECOND_KEYS else 0):
                    raise SnapshotError(file, "diverted keys", diverted, f"at most those of {n}")
                if listed > n:
                    raise SnapshotError(file, "listed keys", listed, f"at most {n}")
                bits = ribbon.bits_of(millibits, value_bits, first + index)
                sizes.append(ribbon.part_sizes(bits, n, diverted, listed))
        else:
            sizes = [(filter_size_bytes(manifest.kind, n, millibits), 0, 0) for n in counts]
        same("body bytes", body_bytes, sum(sum(parts) for parts in sizes))
        same("padding", data[counts_end:start], bytes(start - counts_end))
        same("digest", hashlib.sha256(data).hexdigest(), entry.digest)

        sections: List[List[bytes]] = []
        at = start
        for part in range(3):
            section = []
            for size in sizes:
                section.append(data[at : at + size[part]])
                at += size[part]
            sections.append(section)
        return Chunk(first, [ribbon.Parts(*parts) for parts in zip(*sections)])


class Snapshot:
    """One generation of one audience, completely read and verified."""

    def __init__(
        self, generation: int, manifest: Manifest, chunks: List[Chunk], layers: List[Delta]
    ) -> None:
        """`layers` take precedence over the filters, in order."""
        self.generation, self.manifest, self.chunks, self.layers = (
            generation,
            manifest,
            chunks,
            layers,
        )
        self._firsts = [chunk.first_shard for chunk in chunks]

    @staticmethod
    def open(store_dir: str | Path, audience: str, public_key: Optional[str] = None) -> Snapshot:
        """Reads the live generation, with its deltas."""
        if not AUDIENCE.fullmatch(audience):
            raise SnapshotError("", "audience", audience, AUDIENCE.pattern)
        root = Path(store_dir) / audience
        record = Record.newest(root, public_key)
        live = record.live

        file = live.file
        data = read_capped(root / file, file, MANIFEST_MAX_BYTES)
        if len(data) != live.manifest_size_bytes:
            raise SnapshotError(file, "size", len(data), live.manifest_size_bytes)
        digest = hashlib.sha256(data).hexdigest()
        if digest != live.manifest_sha256:
            raise SnapshotError(file, "digest", digest, live.manifest_sha256)
        manifest = Manifest.parse(file, data, audience, live.number)

        chunks = []
        for entry in manifest.chunks:
            file = f"chunks/{entry.digest}.chunk"
            data = read_capped(root / file, file, entry.size_bytes)
            chunks.append(Chunk.parse(file, data, manifest, entry))

        named = ([record.tombstones] if record.tombstones else []) + record.deltas[::-1]
        layers = []
        for entry in named:
            file = f"deltas/{entry.last}-{entry.sha256}.delta"
            data = read_capped(root / file, file, entry.size_bytes)
            layers.append(Delta.parse(file, data, entry))
        return Snapshot(live.number, manifest, chunks, layers)

    def parts(self, key: bytes) -> Optional[Tuple[ribbon.Parts, int]]:
        """The filter of the key's shard, and the shard."""
        shard = int.from_bytes(key[:2], "big")
        at = bisect_right(self._firsts, shard) - 1
        if at < 0 or shard - self._firsts[at] >= len(self.chunks[at].filters):
            return None
        return self.chunks[at].filters[shard - self._firsts[at]], shard

    def bits(self, shard: int) -> ribbon.Bits:
        return ribbon.bits_of(self.manifest.millibits_per_key, self.manifest.value_bits, shard)

    def contains(self, key: bytes) -> bool:
        """Whether the 16-byte key is in the snapshot, or a false positive."""
        for delta in self.layers:
            if key in delta.added or key in delta.removed:
                return key in delta.added
        found = self.parts(key)
        if found is None:
            return False
        parts, shard = found
        if self.manifest.kind == "ribbon":
            return ribbon.contains(parts, self.bits(shard), key)
        bits = parts.first
        if not bits:
            return False
        positions = bit_positions(self.manifest.kind, self.manifest.hashes, key, len(bits))
        return all(bits[bit // 8] >> bit % 8 & 1 for bit in positions)

    def value(self, key: bytes) -> Optional[int]:
        """The key's value; None if it is no member, or has none."""
        for delta in self.layers:
            if key in delta.added or key in delta.removed:
                return delta.added.get(key)
        found = self.parts(key) if self.manifest.value_bits else None
        return ribbon.value_of(found[0], self.bits(found[1]), key) if found else None


def main() -> int:
    parser = argparse.ArgumentParser(
        description="read an rtad snapshot by docs/reference/snapshot-format.md"
    )
    parser.add_argument("store", metavar="STORE")
    parser.add_argument("audience", metavar="AUDIENCE")
    parser.add_argument(
        "--check", action="store_true", help="verify everything, print totals and exit"
    )
    parser.add_argument(
        "--values", action="store_true", help="print the value of each key, or -"
    )
    parser.add_argument("--public-key", metavar="KEY", help="the key of the record's signature")
    arguments = parser.parse_args()
    try:
        snapshot = Snapshot.open(arguments.store, arguments.audience, arguments.public_key)
    except SnapshotError as error:
        print(error, file=sys.stderr)
        return 1
    if arguments.check:
        manifest = snapshot.manifest
        print(
            f"{arguments.audience}: generation {snapshot.generation}, {manifest.kind}, {manifest.keys} keys, "
            f"{len(manifest.chunks)} chunks, {manifest.size_bytes} bytes"
        )
        return 0
    for number, line in enumerate(sys.stdin, 1):
        text = line.strip()
        if not re.fullmatch(r"[0-9a-fA-F]{32}", text):
            print(f"line {number}: expected a key of 32 hex digits", file=sys.stderr)
            return 1
        key = bytes.fromhex(text)
        if arguments.values:
            value = snapshot.value(key)
            print("-" if value is None else value)
        else:
            print(int(snapshot.contains(key)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
