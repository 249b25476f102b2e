//! The ribbon filter of one shard: layout and lookup. The layout is frozen.
//!
//! A static filter near the theoretical limit: the solution of one linear equation per key. It
//! takes 1.03 times the information-theoretic minimum where a Bloom filter takes 1.44 times, and
//! reads two adjacent cache lines per key. Members cannot be added to it.
//!
//! * **Idea.** A key has a row of random bits over the slots of two adjacent lines, and a
//!   fingerprint of r bits. Every slot holds r bits, such that the sum (xor) of the slots under a
//!   member's row is its fingerprint. A non-member's sum is right with probability 2⁻ʳ. Dillinger
//!   and Walzer, *Ribbon filter: practically smaller than Bloom and Xor* (2021).
//! * **No failure, no seeds.** With one slot per key, about 1 % of the keys cannot be placed.
//!   They are *diverted* to a second, smaller tier of the same kind, and a threshold in the line
//!   where a row starts says which rows may have been diverted. Dillinger, Hübschle-Schneider,
//!   Sanders and Walzer, *Fast succinct retrieval and approximate membership using ribbon* (BuRR,
//!   2022). Keys that the second tier diverts are a sorted list of 32-bit hashes, as are all keys
//!   of a shard of fewer than [`MIN_TIER_KEYS`].
//! * **A line** has 64 bytes: r columns of [`Shape::SLOTS`] bits, one bit per slot, then the
//!   threshold. A column's bits under a row are a mask and a parity.
//!
//! * **Values.** A line may have four more columns: their sums are a number per member, 0 to 15.
//!   See `ribbon/value.rs`.
//!
//! `docs/reference/snapshot-format.md` specifies the layout bit by bit.

mod build;
mod shape;
mod value;

pub(crate) use build::RibbonBuilder;
pub use shape::RowBits;
pub use value::value_of;

use crate::device::DeviceKey;
use shape::{Shape, Tier, ValueShape, slots, with_any_shape, with_shape};

pub const LINE_BYTES: usize = 64;
/// Fingerprint bits of a first tier.
pub const BITS: std::ops::RangeInclusive<u32> = 12..=16;
/// The second tier's: with a hundredth of the keys it may be wasteful.
const SECOND_BITS: u32 = 15;
/// Minimum keys of a tier with lines: the list takes fewer keys.
const MIN_TIER_KEYS: u32 = 32;
/// Minimum keys of a second tier: a list of fewer keys is smaller.
const MIN_SECOND_KEYS: u32 = 3000;
/// Keys per 100 slots: of a first tier before a list, before a second tier, and of a second tier.
const LOADS: [u64; 3] = [98, 100, 94];
const LIST_ENTRY_BYTES: usize = 4;
/// A hash, a row, and a pivot with room for unused slots: vectors grow to twice their need.
pub const CONSTRUCTION_BYTES_PER_KEY: u64 = 96;

/// Lines of a tier; 0 if it has too few keys.
fn lines(keys: u32, load: u64, bits: RowBits) -> u64 {
    if keys < MIN_TIER_KEYS {
        return 0;
    }
    // Rounded to the nearest, half up.
    let per_line = load * slots(bits);
    ((200 * u64::from(keys) + per_line) / (2 * per_line)).max(2)
}

fn first_lines(keys: u32, bits: RowBits) -> u64 {
    lines(keys, LOADS[usize::from(keys >= MIN_SECOND_KEYS)], bits)
}

fn second_lines(diverted: u32, bits: RowBits) -> u64 {
    match lines(diverted, LOADS[2], second_bits(bits)) {
        0 => 0,
        lines => lines + 1,
    }
}

const fn second_bits(first: RowBits) -> RowBits {
    RowBits {
        fingerprint: SECOND_BITS,
        ..first
    }
}

/// Bytes of an entry of the list: one with a value has the hash bits that tell keys apart.
const fn list_entry_bytes(bits: RowBits) -> usize {
    if bits.value == 0 {
        LIST_ENTRY_BYTES
    } else {
        value::LIST_ENTRY_BYTES
    }
}

/// Sizes of the parts of a shard's filter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PartBytes {
    /// The first tier's lines, or all of a Bloom filter.
    pub(crate) first: u64,
    pub(crate) second: u64,
    pub(crate) list: u64,
}

/// Numbers that size a shard's filter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ShardCounts {
    /// Distinct keys.
    pub(crate) keys: u32,
    /// Keys of the second tier, or of the list if they are few.
    pub(crate) diverted: u32,
    /// Entries of the list.
    pub(crate) listed: u32,
}

impl ShardCounts {
    /// The highest possible `diverted` for `keys`.
    pub(crate) const fn max_diverted(self) -> u32 {
        if self.keys < MIN_SECOND_KEYS {
            0
        } else {
            self.keys
        }
    }
}

pub fn part_bytes(bits: RowBits, counts: ShardCounts) -> PartBytes {
    PartBytes {
        first: first_lines(counts.keys, bits) * LINE_BYTES as u64,
        second: second_lines(counts.diverted, bits) * LINE_BYTES as u64,
        list: u64::from(counts.listed) * list_entry_bytes(bits) as u64,
    }
}

/// A size that the filter of `keys` random keys does not exceed.
///
/// The largest share of diverted keys seen in shards of 3,000 keys was 4 %, each of which takes
/// 16 bits; below, that of listed keys was 10 % in shards of 40.
pub fn max_bytes(keys: u32, bits: RowBits) -> u64 {
    let count = u64::from(keys);
    let entry_bytes = list_entry_bytes(bits) as u64;
    let rest = match keys {
        0..MIN_TIER_KEYS => count * entry_bytes,
        MIN_TIER_KEYS..MIN_SECOND_KEYS => (count / 6 + 12) * entry_bytes,
        _ => count / 10 + 2 * LINE_BYTES as u64,
    };
    first_lines(keys, bits) * LINE_BYTES as u64 + rest
}

/// The expected false-positive rate of a large shard, for the choice of r: the first tier's, and
/// the second tier's for the share of non-members that it is asked about. That is 1.6 %, and 5.5 %
/// with the coarse thresholds of 15 bits; with values 2 %, and 3.7 % with those of 13 bits.
pub fn nominal_fpr(bits: RowBits) -> f64 {
    let asked = match (bits.fingerprint, bits.value) {
        (15, 0) => 0.055,
        (16, 0) => 0.02,
        (_, 0) => 0.016,
        (13, _) => 0.037,
        (16, _) => 0.022,
        _ => 0.02,
    };
    2_f64.powi(-(bits.fingerprint as i32)) + asked * 2_f64.powi(-(SECOND_BITS as i32))
}

/// The hash bits of a key: 112 in all. The 16 bits that select the shard are not reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Hash {
    /// Bytes 2 to 9, big-endian: the order of sorted keys is the order of lines.
    high: u64,
    /// Bytes 10 to 15, then bytes 8 and 9 again.
    low: u64,
}

impl Hash {
    #[inline]
    fn of(key: &DeviceKey) -> Self {
        let bytes = u128::from_be_bytes(*key.as_bytes());
        Self {
            high: (bytes >> 48) as u64,
            low: (bytes as u64).rotate_left(16),
        }
    }

    /// Other bits of the same key, for the second tier.
    fn again(self) -> Self {
        let Self { high, low } = self;
        Self {
            high: (low >> 16).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ high.rotate_left(32),
            low: high.wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ low.rotate_left(20),
        }
    }

    /// The line where the row starts, among `starts`, and the offset in that line as a fraction of
    /// 2⁶⁴.
    #[inline]
    fn start(self, starts: usize) -> (usize, u64) {
        let offset = u128::from(self.high) * starts as u128;
        ((offset >> 64) as usize, offset as u64)
    }

    /// The row: its bits in the first line, and, in one word, its bits in the second line and the
    /// fingerprint above them.
    #[inline]
    fn row<T: Tier>(self) -> (u64, u64) {
        let rest = self.low >> T::SLOTS | (self.high >> 16) << (64 - T::SLOTS);
        (self.low & T::MASK, rest & ((1 << (T::SLOTS + T::BITS)) - 1))
    }

    /// The list's entry.
    const fn list_entry(self) -> u32 {
        (self.high >> 32) as u32
    }
}

/// The part of a threshold's range where a row's start lies; at least 1, so that a diverted row
/// always raises the threshold above 0.
#[inline]
fn fraction<T: Tier>(offset: u64) -> u64 {
    (offset >> (64 - T::THRESHOLD_BITS)).max(1)
}

/// A tier's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TierAnswer {
    /// Not a member.
    No,
    /// A member, or a false positive.
    Yes,
    /// It may have been diverted.
    MaybeDiverted,
}

type Line = [u8; LINE_BYTES];

#[inline]
fn word(line: &Line, byte: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| line[byte + i]))
}

/// Column `j` in the low bits; bits above it belong to the next.
#[inline]
fn column<T: Tier>(line: &Line, j: usize) -> u64 {
    let bit = j * T::SLOTS;
    let byte = if bit / 8 < LINE_BYTES - 8 {
        bit / 8
    } else {
        LINE_BYTES - 8
    };
    word(line, byte) >> (bit - byte * 8)
}

#[inline]
fn threshold<T: Tier>(line: &Line) -> u64 {
    word(line, LINE_BYTES - 8) >> (64 - T::THRESHOLD_BITS)
}

/// The parities of eight words, the first in the highest of eight bits.
///
/// Halves are folded and merged until each word is one byte. That needs no instruction of newer
/// processors, and is 3 to 5 % slower per lookup than eight population counts with one.
#[inline]
fn parities(words: [u64; 8]) -> u64 {
    let merge = |low: u64, high: u64, width: u32, mask: u64| {
        (low ^ low >> width) & mask | (high ^ high << width) & !mask
    };
    let [a, b, c, d] = std::array::from_fn(|i| merge(words[i], words[i + 4], 32, 0xffff_ffff));
    let [a, b] = [(a, c), (b, d)].map(|(a, c)| merge(a, c, 16, 0x0000_ffff_0000_ffff));
    let bytes = merge(a, b, 8, 0x00ff_00ff_00ff_00ff);
    let bytes = bytes ^ bytes >> 4;
    let bytes = bytes ^ bytes >> 2;
    let bytes = (bytes ^ bytes >> 1) & 0x0101_0101_0101_0101;
    // Bit 8k moves to bit 63 - k.
    bytes.wrapping_mul(0x8040_2010_0804_0201) >> 56
}

/// Looks up a row in its two lines. The first eight columns reject most non-members.
#[inline]
fn lookup<T: Tier>(lines: &[Line; 2], hash: Hash, offset: u64) -> TierAnswer {
    let [first, second] = lines;
    let (c0, rest) = hash.row::<T>();
    let c1 = rest & T::MASK;
    let fingerprint = rest >> T::SLOTS;
    let under = |j: usize| {
        if j < T::BITS {
            column::<T>(first, j) & c0 ^ column::<T>(second, j) & c1
        } else {
            0
        }
    };
    if parities(std::array::from_fn(under)) == fingerprint >> (T::BITS - 8)
        && parities(std::array::from_fn(|j| under(j + 8))) == fingerprint << (16 - T::BITS) & 0xff
    {
        return TierAnswer::Yes;
    }
    if threshold::<T>(first) + fraction::<T>(offset) < T::THRESHOLD_END {
        TierAnswer::No
    } else {
        TierAnswer::MaybeDiverted
    }
}

/// The two lines of a key's row in the lines of a first tier, as 128 bytes, and the row's offset in
/// the first.
///
/// No bytes if the tier has fewer than two lines, as if the key were diverted.
#[inline]
pub fn locate<'a>(lines: &'a [u8], key: &DeviceKey) -> (&'a [u8], u64) {
    let starts = (lines.len() / LINE_BYTES).saturating_sub(1);
    let (line, offset) = Hash::of(key).start(starts);
    let start = line * LINE_BYTES;
    (
        lines.get(start..start + 2 * LINE_BYTES).unwrap_or_default(),
        offset,
    )
}

/// Looks up a key in the two lines that [`locate`] found.
#[inline]
pub fn lookup_at(bits: u32, lines: &[u8], offset: u64, key: &DeviceKey) -> TierAnswer {
    let Some(lines) = lines.as_chunks().0.first_chunk() else {
        return TierAnswer::MaybeDiverted;
    };
    let hash = Hash::of(key);
    with_shape!(bits, lookup(lines, hash, offset))
}

/// Looks up a key that the first tier may have diverted, in the second tier and the list. Safe for
/// any bytes.
#[cold]
pub fn is_in_overflow(second: &[u8], list: &[u8], key: &DeviceKey) -> bool {
    let hash = Hash::of(key);
    if !second.is_empty() {
        let again = hash.again();
        let lines: &[Line] = second.as_chunks().0;
        let (line, offset) = again.start(lines.len().saturating_sub(1));
        let answer = lines
            .get(line..)
            .and_then(|lines| lines.first_chunk())
            .map_or(TierAnswer::MaybeDiverted, |lines| {
                with_shape!(SECOND_BITS, lookup(lines, again, offset))
            });
        if answer != TierAnswer::MaybeDiverted {
            return answer == TierAnswer::Yes;
        }
    }

    let entries: &[[u8; LIST_ENTRY_BYTES]] = list.as_chunks().0;
    entries
        .binary_search_by_key(&hash.list_entry(), |entry| u32::from_le_bytes(*entry))
        .is_ok()
}

/// The false-positive rate of a shard by its thresholds: 2⁻ʳ, the second tier's for the part of the
/// lines that thresholds cover, and the list's.
pub fn expected_fpr(bits: RowBits, first: &[u8], second: &[u8], list: &[u8]) -> f64 {
    fn covered<T: Tier>(lines: &[Line]) -> f64 {
        let covered = |line: &Line| match threshold::<T>(line) {
            // The lowest fraction of a row is 1.
            threshold if threshold + 1 == T::THRESHOLD_END => T::THRESHOLD_END,
            threshold => threshold,
        };
        let starts = &lines[..lines.len().saturating_sub(1)];
        let sum: u64 = starts.iter().map(covered).sum();
        sum as f64 / (starts.len().max(1) as u64 * T::THRESHOLD_END) as f64
    }

    let lines: &[Line] = first.as_chunks().0;
    let entry_hash_bits = 8 * list_entry_bytes(bits) as i32 - bits.value as i32;
    let mut rate = (list.len() / list_entry_bytes(bits)) as f64 / 2_f64.powi(entry_hash_bits);
    if !lines.is_empty() {
        rate += 2_f64.powi(-(bits.fingerprint as i32));
    }
    if !second.is_empty() {
        let covered = with_any_shape!(bits, covered(lines));
        rate += covered * 2_f64.powi(-(SECOND_BITS as i32));
    }

    rate
}

#[cfg(test)]
mod tests;
