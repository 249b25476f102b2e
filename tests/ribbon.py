"""Lookup in ribbon filters by the definition in docs/reference/snapshot-format.md, without rtad's
code."""

from __future__ import annotations

import struct
from typing import NamedTuple, Optional, Tuple

U64 = (1 << 64) - 1
LINE_BYTES = 64
# Fingerprint bits -> (slots, threshold bits), without values and with.
PLAIN_SHAPES = {12: (42, 5), 13: (39, 5), 14: (36, 5), 15: (34, 2), 16: (31, 5)}
VALUE_SHAPES = {12: (31, 5), 13: (30, 2), 14: (28, 5), 15: (26, 5), 16: (25, 5)}
VALUE_BITS = 4
SECOND_BITS = 15
MIN_TIER_KEYS, MIN_SECOND_KEYS = 32, 3000


class Hash(NamedTuple):
    """The hash bits of a key."""

    high: int
    low: int

    @staticmethod
    def of(key: bytes) -> Hash:
        low = int.from_bytes(key[8:16], "big")
        return Hash(int.from_bytes(key[2:10], "big"), (low << 16 | low >> 48) & U64)

    def again(self) -> Hash:
        """The hash for the second tier."""
        high, low = self
        return Hash(
            (low >> 16) * 0x9E3779B97F4A7C15 & U64 ^ (high << 32 | high >> 32) & U64,
            high * 0xBF58476D1CE4E5B9 & U64 ^ (low << 20 | low >> 44) & U64,
        )


class Bits(NamedTuple):
    """Bits of a row's sum: of the fingerprint, then of the value, 0 or 4."""

    fingerprint: int
    value: int

    @property
    def shape(self) -> Tuple[int, int]:
        return (VALUE_SHAPES if self.value else PLAIN_SHAPES)[self.fingerprint]

    @property
    def second(self) -> Bits:
        """Those of the second tier."""
        return Bits(SECOND_BITS, self.value)

    @property
    def entry_bytes(self) -> int:
        """Bytes of an entry of the list."""
        return 8 if self.value else 4


class Parts(NamedTuple):
    """A shard's filter: first tier, second tier, list."""

    first: bytes
    second: bytes
    list: bytes


def bits_of(millibits: int, value_bits: int, shard: int) -> Bits:
    """Bits of a shard's rows."""
    longer = (shard * 40_503) % 65_536 < millibits % 1000 * 65_536 // 1000
    return Bits(millibits // 1000 + longer, value_bits)


def tier_lines(keys: int, load: int, bits: Bits) -> int:
    per_line = load * bits.shape[0]
    return max(2, (200 * keys + per_line) // (2 * per_line)) if keys >= MIN_TIER_KEYS else 0


def first_lines(keys: int, bits: Bits) -> int:
    return tier_lines(keys, 98 if keys < MIN_SECOND_KEYS else 100, bits)


def second_lines(diverted: int, bits: Bits) -> int:
    return tier_lines(diverted, 94, bits.second) + 1 if diverted >= MIN_TIER_KEYS else 0


def part_sizes(bits: Bits, keys: int, diverted: int, listed: int) -> Tuple[int, int, int]:
    return (
        LINE_BYTES * first_lines(keys, bits),
        LINE_BYTES * second_lines(diverted, bits),
        bits.entry_bytes * listed,
    )


def start(hash_: Hash, lines: int, bits: Bits) -> Tuple[int, int]:
    """The row's first line, and its fraction of that line."""
    place = hash_.high * (lines - 1)
    return place >> 64, max(1, (place & U64) >> (64 - bits.shape[1]))


def row(hash_: Hash, bits: Bits) -> Tuple[int, int, int]:
    """Bits in the first line, bits in the second, fingerprint."""
    slots = bits.shape[0]
    rest = (hash_.low >> slots | hash_.high >> 16 << (64 - slots)) & U64
    fingerprint = (rest >> slots) % (1 << bits.fingerprint)
    return hash_.low % (1 << slots), rest % (1 << slots), fingerprint


def parity(number: int) -> int:
    return bin(number).count("1") % 2


def look(tier: bytes, hash_: Hash, bits: Bits) -> Tuple[Optional[int], bool]:
    """The value under the row in a tier with lines, 0 without values, None if the fingerprint
    differs; and whether the key may have been diverted."""
    slots, threshold_bits = bits.shape
    line, fraction = start(hash_, len(tier) // LINE_BYTES, bits)
    both = tier[line * LINE_BYTES : (line + 2) * LINE_BYTES]
    one, two = (int.from_bytes(both[at : at + LINE_BYTES], "little") for at in (0, LINE_BYTES))
    c0, c1, fingerprint = row(hash_, bits)
    found = 0
    for column in range(bits.fingerprint + bits.value):
        at = column * slots
        found = found * 2 + (parity(one >> at & c0) ^ parity(two >> at & c1))
    threshold = one >> (512 - threshold_bits)
    is_match = found >> bits.value == fingerprint
    value = found % (1 << bits.value) if is_match else None
    return value, threshold + fraction >= 1 << threshold_bits


def contains(parts: Parts, bits: Bits, key: bytes) -> bool:
    """Whether the key is in the shard's filter, or a false positive."""
    if bits.value:
        return value_of(parts, bits, key) is not None
    hash_ = Hash.of(key)
    for tier, tier_hash, tier_bits in (
        (parts.first, hash_, bits),
        (parts.second, hash_.again(), bits.second),
    ):
        if tier:
            value, may_be_diverted = look(tier, tier_hash, tier_bits)
            if value is not None or not may_be_diverted:
                return value is not None
    return hash_.high >> 32 in struct.unpack(f"<{len(parts.list) // 4}I", parts.list)


def value_of(parts: Parts, bits: Bits, key: bytes) -> Optional[int]:
    """The key's value in a filter with values; None if it is not in the filter."""
    hash_ = Hash.of(key)
    value = None
    if parts.first:
        value, may_be_diverted = look(parts.first, hash_, bits)
        if not may_be_diverted:
            return value
    for entry in struct.unpack(f"<{len(parts.list) // 8}Q", parts.list):
        if entry >> 4 == hash_.high >> 4:
            return entry % 16
    if value is None and parts.second:
        value, _ = look(parts.second, hash_.again(), bits.second)
    return value


def expected_fpr(parts: Parts, bits: Bits) -> float:
    list_bits = 8 * bits.entry_bytes - bits.value
    rate = len(parts.list) / bits.entry_bytes / 2**list_bits
    rate += 2**-bits.fingerprint if parts.first else 0
    if parts.second:
        end = 1 << bits.shape[1]
        starts = range(0, len(parts.first) - LINE_BYTES, LINE_BYTES)
        thresholds = [parts.first[at + 63] >> (8 - bits.shape[1]) for at in starts]
        covered = sum(end if threshold == end - 1 else threshold for threshold in thresholds)
        rate += covered / (len(starts) * end) * 2**-SECOND_BITS
    return rate
