//! The filter of one shard: bit layout, insertion and lookup. The layout is frozen.
//!
//! A Bloom filter is one byte slice, a ribbon filter three: see `filter/ribbon.rs`. Bloom filters
//! are read according to a [`FilterSpec`]. Bit `b` is bit `b % 8` of byte `b / 8`,
//! which is the same as bit `b % 64` of little-endian word `b / 64`.
//!
//! An md5 is uniform, so two parts of the key serve as hashes. The 16 bits that select the shard
//! are not reused:
//!
//! ```text
//! byte   0  1 │ 2  3  4  5  6  7  8  9 │ 10 11 12 13 14 15
//!        shard│          h1            │
//!             │                  └──────── h2 ───────────┘     both little-endian u64
//! ```
//!
//! * **block512** (m = 512·b bits): block `(h1 · b) >> 64`, one cache line for all probes of a key;
//!   Putze, Sanders and Singler, *Cache-, hash- and space-efficient Bloom filters* (2007). Probe i
//!   of k ≤ 10 is bit `(h2 >> (16 + 9·i)) mod 512` of the block for i < 5, and
//!   `(h1 >> 9·(i - 5)) mod 512` for i ≥ 5. The probes use disjoint bits of the key. The block
//!   depends on the top of h1 and shares hardly any bits with them. Double hashing in so small a
//!   block has only 512 · 256 patterns: among 22 keys, shared patterns alone would give a
//!   false-positive rate of 1 in 6,000.
//!
//! `docs/explanation/performance.md` compares the kinds and chooses the default.

mod kind;
mod ribbon;
mod sizing;

pub use kind::{FilterKind, ParseFilterKindError};
pub(crate) use ribbon::{RibbonBuilder, ShardCounts};
pub use sizing::{FilterSpec, SizingError};

use crate::device::DeviceKey;
use kind::{BLOCK_BITS, BLOCK_BYTES};
use ribbon::TierAnswer;

/// The two hashes of a key.
#[inline]
fn hashes(key: &DeviceKey) -> (u64, u64) {
    let bytes = u128::from_le_bytes(*key.as_bytes());
    ((bytes >> 16) as u64, (bytes >> 64) as u64)
}

/// `hash` scaled to `0..range`, without the bias or the cost of a remainder (Lemire 2019).
#[inline]
fn scale(hash: u64, range: u64) -> u64 {
    ((u128::from(hash) * u128::from(range)) >> 64) as u64
}

/// Byte offset of a key's block.
#[inline]
fn block_start(filter_bytes: usize, key: &DeviceKey) -> usize {
    scale(hashes(key).0, (filter_bytes / BLOCK_BYTES) as u64) as usize * BLOCK_BYTES
}

/// The bits of a key inside its block.
#[inline]
fn block_probes(spec: &FilterSpec, key: &DeviceKey) -> impl Iterator<Item = (usize, u8)> {
    let (h1, h2) = hashes(key);
    // Ten 9-bit fields, lowest first: five from the 48 bits of h2 that do not overlap h1, five from
    // the low end of h1. Extracting them from one u128 took twice as many instructions.
    let mut fields = h2 >> 16;
    (0..spec.hashes()).map(move |i| {
        if i == 5 {
            fields = h1;
        }
        let bit = fields as usize % BLOCK_BITS as usize;
        fields >>= 9;
        (bit / 8, 1 << (bit % 8))
    })
}

/// The filter of one shard in its parts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ShardFilter<'a> {
    /// All of a Bloom filter, or the first tier of a ribbon filter.
    pub(crate) first: &'a [u8],
    pub(crate) second: &'a [u8],
    pub(crate) list: &'a [u8],
}

impl<'a> ShardFilter<'a> {
    /// All bits of a Bloom filter, for its fill.
    pub const fn bloom_bits(&self) -> &'a [u8] {
        self.first
    }

    /// Whether the shard has no keys.
    pub const fn is_empty(&self) -> bool {
        self.first.is_empty() && self.list.is_empty()
    }

    /// Its bytes.
    pub const fn len(&self) -> usize {
        self.first.len() + self.second.len() + self.list.len()
    }
}

/// A Bloom filter.
impl<'a> From<&'a [u8]> for ShardFilter<'a> {
    fn from(bits: &'a [u8]) -> Self {
        Self {
            first: bits,
            ..Self::default()
        }
    }
}

/// The part of a filter that the lookup of one key reads.
#[derive(Debug, Clone, Copy)]
pub struct ProbeTarget<'a> {
    /// A block or two lines; empty if there is none.
    bits: &'a [u8],
    first: &'a u8,
    /// Place of a ribbon filter's row in its line.
    offset: u64,
}

impl ProbeTarget<'_> {
    const EMPTY: Self = Self {
        bits: &[],
        first: &0,
        offset: 0,
    };

    /// Reads a byte of the first cache line of a lookup. A batch touches the targets of many keys
    /// before it tests any, so their cache misses overlap. Returns the byte, so that the read is
    /// not optimized away.
    #[inline]
    pub const fn touch(&self) -> u8 {
        *self.first
    }

    /// Reads a byte of the second line of a ribbon filter.
    #[inline]
    pub fn touch_second(&self) -> u8 {
        self.bits.get(ribbon::LINE_BYTES).copied().unwrap_or(0)
    }
}

impl Default for ProbeTarget<'_> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl FilterSpec {
    /// Sets the key's bits. `filter` must have the length that [`FilterSpec::filter_bytes`] gives
    /// for the shard's key count.
    ///
    /// # Panics
    ///
    /// If `filter` is empty: a shard without keys has no filter to insert into. If it is a ribbon
    /// filter, which is built from all its keys at once.
    #[inline]
    pub fn insert(&self, filter: &mut [u8], key: &DeviceKey) {
        match self.kind() {
            FilterKind::Block512 => {
                let start = block_start(filter.len(), key);
                let block = &mut filter[start..start + BLOCK_BYTES];
                for (byte, mask) in block_probes(self, key) {
                    block[byte] |= mask;
                }
            }
            FilterKind::Ribbon => panic!("no key can be added to a ribbon filter"),
        }
    }

    /// Computes which bytes a lookup of the key reads first, without reading them. `first` is the
    /// first part of the key's shard.
    #[inline]
    pub(crate) fn probe_target<'a>(&self, first: &'a [u8], key: &DeviceKey) -> ProbeTarget<'a> {
        if first.is_empty() {
            return ProbeTarget::EMPTY;
        }
        match self.kind() {
            FilterKind::Block512 => {
                let start = block_start(first.len(), key);
                let block = &first[start..start + BLOCK_BYTES];
                ProbeTarget {
                    bits: block,
                    first: &block[0],
                    offset: 0,
                }
            }
            FilterKind::Ribbon => {
                let (lines, offset) = ribbon::locate(first, key);
                ProbeTarget {
                    bits: lines,
                    first: lines.first().unwrap_or(&0),
                    offset,
                }
            }
        }
    }

    /// Whether the key may be in the set: always true for an inserted key, true for any other with
    /// the filter's false-positive rate. An empty filter contains nothing.
    #[inline]
    pub fn contains<'a>(&self, filter: impl Into<ShardFilter<'a>>, key: &DeviceKey) -> bool {
        let filter = filter.into();
        let rest = || (filter.second, filter.list);
        self.contains_at(&self.probe_target(filter.first, key), key, rest)
    }

    /// The same as [`FilterSpec::contains`] for a target computed earlier for the same key. `rest`
    /// gives the second and the third part of the filter; one key of a hundred needs them.
    ///
    /// A Bloom filter stops at the first clear bit: the branch lets the processor speculate past
    /// the memory read; a test of all bits at once would wait for it.
    ///
    /// The target is not copied: a copy reads in one piece what was just written in several, and so
    /// waits for all reads of memory before it.
    #[inline]
    pub(crate) fn contains_at<'a>(
        &self,
        target: &ProbeTarget<'_>,
        key: &DeviceKey,
        rest: impl FnOnce() -> (&'a [u8], &'a [u8]),
    ) -> bool {
        let bits = target.bits;
        match self.kind() {
            FilterKind::Ribbon if self.value_bits() > 0 => {
                self.value_at(target, key, rest).is_some()
            }
            FilterKind::Ribbon => {
                let fingerprint_bits = self.fingerprint_bits(key.shard());
                match ribbon::lookup_at(fingerprint_bits, bits, target.offset, key) {
                    TierAnswer::No => false,
                    TierAnswer::Yes => true,
                    TierAnswer::MaybeDiverted => {
                        let (second, list) = rest();
                        ribbon::is_in_overflow(second, list, key)
                    }
                }
            }
            FilterKind::Block512 if bits.is_empty() => false,
            FilterKind::Block512 => {
                block_probes(self, key).all(|(byte, mask)| bits[byte] & mask != 0)
            }
        }
    }

    /// The value of a key; `None` if it is not in the set, or the filter holds no values. Right for
    /// an inserted key, noise for a false positive. For the rest see [`FilterSpec::contains_at`].
    #[inline(never)]
    pub(crate) fn value_at<'a>(
        &self,
        target: &ProbeTarget<'_>,
        key: &DeviceKey,
        rest: impl FnOnce() -> (&'a [u8], &'a [u8]),
    ) -> Option<u8> {
        if self.value_bits() == 0 {
            return None;
        }
        ribbon::value_of(
            self.row_bits(key.shard()),
            target.bits,
            target.offset,
            key,
            rest,
        )
    }

    /// The value of a key; `None` if it is not in the set, or the filter holds no values. Right for
    /// an inserted key, noise for a false positive.
    pub fn value<'a>(&self, filter: impl Into<ShardFilter<'a>>, key: &DeviceKey) -> Option<u8> {
        let filter = filter.into();
        let rest = || (filter.second, filter.list);
        self.value_at(&self.probe_target(filter.first, key), key, rest)
    }

    /// The false-positive rate computed from a shard's filter. A Bloom filter's follows from its
    /// fill: the mean of `fill^k` over its blocks. A ribbon filter's follows from its
    /// thresholds.
    pub fn expected_fpr<'a>(&self, shard: u16, filter: impl Into<ShardFilter<'a>>) -> f64 {
        let ShardFilter {
            first,
            second,
            list,
        } = filter.into();
        if self.kind() == FilterKind::Ribbon {
            return ribbon::expected_fpr(self.row_bits(shard), first, second, list);
        }
        if first.is_empty() {
            return 0.0;
        }
        let blocks = first.chunks_exact(BLOCK_BYTES);
        let count = blocks.len() as f64;
        blocks
            .map(|block| fill_ratio(block).powi(self.hashes() as i32))
            .sum::<f64>()
            / count
    }
}

/// The fraction of a Bloom filter's bits that are set; 0 for an empty one.
pub fn fill_ratio(filter: &[u8]) -> f64 {
    if filter.is_empty() {
        return 0.0;
    }
    let (words, rest) = filter.as_chunks::<8>();
    let ones: u64 = words
        .iter()
        .map(|word| u64::from(u64::from_le_bytes(*word).count_ones()))
        .sum();
    let ones = ones
        + rest
            .iter()
            .map(|byte| u64::from(byte.count_ones()))
            .sum::<u64>();
    ones as f64 / (filter.len() as f64 * 8.0)
}

#[cfg(test)]
mod tests;
