//! The Bloom filter of one shard: a frozen specification and the few lines that carry it out.
//!
//! A filter is nothing but bytes; it owns none. A [`FilterSpec`] says how to read them. Bit `b` is
//! bit `b % 8` of byte `b / 8`, which is the same as bit `b % 64` of little-endian word `b / 64`.
//!
//! Two halves of the key are hashes already, as an md5 is uniform, and the shard's own 16 bits are
//! never used again:
//!
//! ```text
//! byte   0  1 │ 2  3  4  5  6  7  8  9 │ 10 11 12 13 14 15
//!        shard│          h1            │
//!             │                  └──────── h2 ───────────┘     both little-endian u64
//! ```
//!
//! * **classic** (m bits): probe i of k is bit `((h1 + i·(h2|1) mod 2⁶⁴) · m) >> 64`; Kirsch and
//!   Mitzenmacher, *Less hashing, same performance* (2006), show that two hashes make as good a
//!   filter as k, if it is large: see [`FilterSpec::min_keys`]. Each probe is a cache line.
//! * **block512** (m = 512·b bits): block `(h1 · b) >> 64`, so one cache line holds all probes of a
//!   key; Putze, Sanders and Singler, *Cache-, hash- and space-efficient Bloom filters* (2007).
//!   Probe i of k ≤ 10 is bit `(h2 >> (16 + 9·i)) mod 512` of the block for i < 5, and
//!   `(h1 >> 9·(i - 5)) mod 512` for i ≥ 5. The probes share no bits with each other and, as the
//!   block is chosen by the top of h1, hardly any with the block. Double hashing inside so small a
//!   block would not do: it knows only 512 · 256 patterns, and two of 22 keys that share one are a
//!   false positive of 1 in 6,000.
//!
//! Measured side by side in `docs/explanation/performance.md`, where the default is chosen.

mod sizing;

pub use sizing::{FilterSpec, SizingError};

use crate::device::DeviceKey;

/// Bits of a block of [`FilterKind::Block512`]: one cache line.
const BLOCK_BITS: u32 = 512;
const BLOCK_BYTES: usize = 64;

/// How the bits of a filter are chosen. A manifest names the kind, so that another can be added
/// without a new format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum FilterKind {
    /// One filter over the whole shard: the smallest.
    Classic,
    /// One cache line per key: the fastest, and as fast for members as for others.
    Block512,
}

impl FilterKind {
    /// The name in manifests, reports and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Block512 => "block512",
        }
    }
}

impl std::str::FromStr for FilterKind {
    type Err = ParseFilterKindError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "classic" => Ok(Self::Classic),
            "block512" => Ok(Self::Block512),
            _ => Err(ParseFilterKindError),
        }
    }
}

/// The name of a filter kind that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown filter kind; the kinds are block512, classic")]
#[non_exhaustive]
pub struct ParseFilterKindError;

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

/// The classic filter's bit for each probe.
#[inline]
fn classic_probes(
    spec: &FilterSpec,
    filter_bytes: usize,
    key: &DeviceKey,
) -> impl Iterator<Item = (usize, u8)> {
    let bits = filter_bytes as u64 * 8;
    let (h1, h2) = hashes(key);
    let step = h2 | 1;
    (0..u64::from(spec.hashes())).map(move |i| {
        let bit = scale(h1.wrapping_add(i.wrapping_mul(step)), bits);
        ((bit / 8) as usize, 1 << (bit % 8))
    })
}

/// Where a key's block starts, in bytes.
#[inline]
fn block_start(filter_bytes: usize, key: &DeviceKey) -> usize {
    scale(hashes(key).0, (filter_bytes / BLOCK_BYTES) as u64) as usize * BLOCK_BYTES
}

/// The bits of a key inside its block.
#[inline]
fn block_probes(spec: &FilterSpec, key: &DeviceKey) -> impl Iterator<Item = (usize, u8)> {
    let (h1, h2) = hashes(key);
    // Ten 9-bit fields, lowest first: five from the 48 bits of h2 that h1 has no part in, five from
    // the low end of h1. One shift each: picking them from 128 bits took twice as many
    // instructions.
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

/// The part of a filter that the answer to one key is read from.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// A block, or all of a classic filter; empty if the filter is.
    bits: &'a [u8],
    first: &'a u8,
}

impl Place<'_> {
    const NOWHERE: Self = Self { bits: &[], first: &0 };

    /// Reads the first byte that [`FilterSpec::contains_at`] will read. A batch touches the places
    /// of many keys, one right after the other, before it tests any: so the processor waits for
    /// their memory together instead of in turn. Never a bad idea, only sometimes an idle one; the
    /// byte is returned so that the read is not optimised away.
    #[inline]
    pub const fn touch(&self) -> u8 {
        *self.first
    }
}

impl Default for Place<'_> {
    fn default() -> Self {
        Self::NOWHERE
    }
}

impl FilterSpec {
    /// Sets the key's bits. `filter` has the length that [`FilterSpec::filter_bytes`] gives for the
    /// shard's key count.
    ///
    /// # Panics
    ///
    /// If `filter` is empty: a shard without keys has no filter to insert into.
    #[inline]
    pub fn insert(&self, filter: &mut [u8], key: &DeviceKey) {
        match self.kind() {
            FilterKind::Classic => {
                for (byte, mask) in classic_probes(self, filter.len(), key) {
                    filter[byte] |= mask;
                }
            }
            FilterKind::Block512 => {
                let start = block_start(filter.len(), key);
                let block = &mut filter[start..start + BLOCK_BYTES];
                for (byte, mask) in block_probes(self, key) {
                    block[byte] |= mask;
                }
            }
        }
    }

    /// Where in a filter the answer to a key lies: nothing is read yet. An empty filter has nothing
    /// to read.
    #[inline]
    pub fn place<'a>(&self, filter: &'a [u8], key: &DeviceKey) -> Place<'a> {
        if filter.is_empty() {
            return Place::NOWHERE;
        }
        match self.kind() {
            FilterKind::Classic => {
                let first =
                    classic_probes(self, filter.len(), key).next().map_or(0, |(byte, _)| byte);
                Place { bits: filter, first: &filter[first] }
            }
            FilterKind::Block512 => {
                let start = block_start(filter.len(), key);
                let block = &filter[start..start + BLOCK_BYTES];
                Place { bits: block, first: &block[0] }
            }
        }
    }

    /// Whether the key may be in the set: always true of a key that was inserted, true of another
    /// with the probability that the filter was sized for. An empty filter holds nothing.
    #[inline]
    pub fn contains(&self, filter: &[u8], key: &DeviceKey) -> bool {
        self.contains_at(self.place(filter, key), key)
    }

    /// The same of a place that was found before, for the same key.
    ///
    /// Stops at the first clear bit, on purpose: the branch lets the processor run ahead of the
    /// memory read, which a test of all bits at once would wait for.
    #[inline]
    pub fn contains_at(&self, place: Place<'_>, key: &DeviceKey) -> bool {
        let bits = place.bits;
        if bits.is_empty() {
            return false;
        }
        match self.kind() {
            FilterKind::Classic => {
                classic_probes(self, bits.len(), key).all(|(byte, mask)| bits[byte] & mask != 0)
            }
            FilterKind::Block512 => {
                block_probes(self, key).all(|(byte, mask)| bits[byte] & mask != 0)
            }
        }
    }

    /// The false-positive rate of a filter as it stands, from its fill: the mean of `fill^k`, over
    /// its blocks if it has any.
    pub fn expected_fpr(&self, filter: &[u8]) -> f64 {
        if filter.is_empty() {
            return 0.0;
        }
        let unit = match self.kind() {
            FilterKind::Classic => filter.len(),
            FilterKind::Block512 => BLOCK_BYTES,
        };
        let units = filter.chunks_exact(unit);
        let count = units.len() as f64;
        units.map(|unit| fill_ratio(unit).powi(self.hashes() as i32)).sum::<f64>() / count
    }
}

/// The fraction of bits that are set; 0 of nothing.
pub fn fill_ratio(filter: &[u8]) -> f64 {
    if filter.is_empty() {
        return 0.0;
    }
    let (words, rest) = filter.as_chunks::<8>();
    let ones: u64 =
        words.iter().map(|word| u64::from(u64::from_le_bytes(*word).count_ones())).sum();
    let ones = ones + rest.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>();
    ones as f64 / (filter.len() as f64 * 8.0)
}

#[cfg(test)]
mod tests;
