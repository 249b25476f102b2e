//! Filter sizing: bits per key and probes for a false-positive rate (fpr).
//!
//! The fpr of k probes at c bits per key is the mean over j of `(1 - (1 - 1/512)^(j·k))^k`,
//! j ~ Poisson(512/c); Putze, Sanders and Singler 2007, §3.
//!
//! It is solved for c by bisection for every allowed k; the k with the fewest bits wins. c is then
//! rounded up to a thousandth and stored as an integer: shard sizes do not depend on the
//! floating-point library.
//!
//! A ribbon filter has r bits per key, 12 to 16, and some 3 % more. Two r are mixed between shards
//! to meet a rate exactly: with 13,367 millibits, 36.7 % of the shards have 14 bits, the others 13.

use super::kind::{BLOCK_BITS, FilterKind};
use super::ribbon::{self, PartBytes, RowBits, ShardCounts};
use crate::device::SHARDS;

/// A filter's kind, number of hashes and bits per key; the same for all shards of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterSpec {
    kind: FilterKind,
    /// The fingerprint bits of most shards of a ribbon filter, and the end of the range of those
    /// that have one more.
    fingerprint_bits: u8,
    longer: u16,
    /// Bits of a value per key: 0 or [`FilterSpec::VALUE_BITS`].
    value_bits: u8,
    hashes: u32,
    millibits_per_key: u32,
}

/// A filter parameter out of range.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SizingError {
    /// The false-positive rate is out of range.
    #[error(
        "false-positive rate of a {} filter is {found}, expected {min} to {max}", kind.as_str()
    )]
    FprOutOfRange {
        /// The filter's kind.
        kind: FilterKind,
        /// The requested rate.
        found: f64,
        /// The lowest accepted value.
        min: f64,
        /// The highest accepted value.
        max: f64,
    },
    /// The number of hashes is out of the kind's range.
    #[error("hashes of a {} filter is {hashes}, expected {min} to {max}", kind.as_str())]
    HashesOutOfRange {
        /// The filter's kind.
        kind: FilterKind,
        /// The number found.
        hashes: u32,
        /// The kind's lowest value.
        min: u32,
        /// The kind's highest value.
        max: u32,
    },
    /// The thousandths of a bit per key are out of range.
    #[error("millibits per key is {found}, expected {min} to {max}")]
    BitsOutOfRange {
        /// The value found.
        found: u32,
        /// The lowest accepted value.
        min: u32,
        /// The highest accepted value.
        max: u32,
    },
    /// The kind cannot hold values.
    #[error("a {} filter holds no values, expected kind ribbon", kind.as_str())]
    NoValues {
        /// The filter's kind.
        kind: FilterKind,
    },
    /// The bits of a value are another number than those of every filter with values.
    #[error("value bits is {found}, expected {}", FilterSpec::VALUE_BITS)]
    ValueBits {
        /// The number found.
        found: u32,
    },
}

const MIN_FPR: f64 = 1e-7;
/// Lowest rate of a ribbon filter: that of 16 fingerprint bits.
const MIN_RIBBON_FPR: f64 = 1.6e-5;
const MAX_FPR: f64 = 0.1;
/// 1,000 bits per key: enough for block512 at the lowest rate.
const MAX_MILLIBITS: u32 = 1_000_000;

impl FilterSpec {
    /// Bits of a value per key in a filter with values.
    pub const VALUE_BITS: u32 = 4;

    /// The smallest filter of `kind` whose false-positive rate is at most `fpr`, a fraction from
    /// 1e-7 to 0.1; for a ribbon filter from 1.6e-5. A ribbon filter's rate is never above 2.5e-4.
    ///
    /// # Errors
    ///
    /// [`SizingError::FprOutOfRange`].
    pub fn for_fpr(kind: FilterKind, fpr: f64) -> Result<Self, SizingError> {
        let min = if kind == FilterKind::Ribbon {
            MIN_RIBBON_FPR
        } else {
            MIN_FPR
        };

        if !(min..=MAX_FPR).contains(&fpr) {
            return Err(SizingError::FprOutOfRange {
                kind,
                found: fpr,
                min,
                max: MAX_FPR,
            });
        }

        if kind == FilterKind::Ribbon {
            return Ok(Self::from_numbers(
                kind,
                RIBBON_HASHES,
                ribbon_millibits(fpr, 0),
            ));
        }

        let (hashes, bits) = (1..=max_hashes(kind))
            .map(|hashes| (hashes, solve_bits_per_key(hashes, fpr)))
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .expect("every kind allows at least one hash");
        Ok(Self::from_numbers(
            kind,
            hashes,
            (bits * 1000.0).ceil() as u32,
        ))
    }

    /// The smallest filter with a value per key whose false-positive rate is at most `fpr`: see
    /// [`FilterSpec::for_fpr`].
    ///
    /// # Errors
    ///
    /// [`SizingError::NoValues`] for another kind than ribbon, [`SizingError::FprOutOfRange`].
    pub fn with_values_for_fpr(kind: FilterKind, fpr: f64) -> Result<Self, SizingError> {
        let spec = Self::for_fpr(kind, fpr)?.with_value_bits(Self::VALUE_BITS)?;
        Self::from_numbers(kind, spec.hashes, ribbon_millibits(fpr, Self::VALUE_BITS))
            .with_value_bits(Self::VALUE_BITS)
    }

    /// The same filter with a value of so many bits per key.
    ///
    /// # Errors
    ///
    /// [`SizingError::NoValues`] for another kind than ribbon, [`SizingError::ValueBits`] for
    /// another number than [`FilterSpec::VALUE_BITS`].
    pub fn with_value_bits(mut self, bits: u32) -> Result<Self, SizingError> {
        if self.kind != FilterKind::Ribbon {
            return Err(SizingError::NoValues { kind: self.kind });
        }
        if bits != Self::VALUE_BITS {
            return Err(SizingError::ValueBits { found: bits });
        }
        self.value_bits = bits as u8;
        Ok(self)
    }

    /// A spec with the numbers of a manifest.
    ///
    /// # Errors
    ///
    /// [`SizingError`] for a number out of the kind's range.
    pub fn new(kind: FilterKind, hashes: u32, millibits_per_key: u32) -> Result<Self, SizingError> {
        let max = max_hashes(kind);
        let min = if kind == FilterKind::Ribbon {
            RIBBON_HASHES
        } else {
            1
        };

        if !(min..=max).contains(&hashes) {
            return Err(SizingError::HashesOutOfRange {
                kind,
                hashes,
                min,
                max,
            });
        }

        let (min, max) = match kind {
            FilterKind::Ribbon => (1000 * ribbon::BITS.start(), 1000 * ribbon::BITS.end()),
            _ => (1000, MAX_MILLIBITS),
        };

        if !(min..=max).contains(&millibits_per_key) {
            return Err(SizingError::BitsOutOfRange {
                found: millibits_per_key,
                min,
                max,
            });
        }

        Ok(Self::from_numbers(kind, hashes, millibits_per_key))
    }

    fn from_numbers(kind: FilterKind, hashes: u32, millibits_per_key: u32) -> Self {
        let (fingerprint_bits, longer) = match kind {
            // A thousandth below 1 of 65,536 fits 16 bits.
            FilterKind::Ribbon => {
                let longer = (millibits_per_key % 1000) * SHARDS as u32 / 1000;
                ((millibits_per_key / 1000) as u8, longer as u16)
            }
            _ => (0, 0),
        };
        Self {
            kind,
            fingerprint_bits,
            longer,
            value_bits: 0,
            hashes,
            millibits_per_key,
        }
    }

    /// Fingerprint bits of a shard of a ribbon filter. Multiplication by an odd constant spreads
    /// the longer ones evenly over the shards.
    #[inline]
    pub(super) fn fingerprint_bits(&self, shard: u16) -> u32 {
        u32::from(self.fingerprint_bits) + u32::from(shard.wrapping_mul(40_503) < self.longer)
    }

    /// The bits of a row's sum in a shard of a ribbon filter.
    #[inline]
    pub(super) fn row_bits(&self, shard: u16) -> RowBits {
        RowBits {
            fingerprint: self.fingerprint_bits(shard),
            value: self.value_bits.into(),
        }
    }

    /// Bits of the value of each key; 0 if the filter holds no values.
    #[inline]
    pub const fn value_bits(&self) -> u32 {
        self.value_bits as u32
    }

    /// The filter's kind.
    #[inline]
    pub const fn kind(&self) -> FilterKind {
        self.kind
    }

    /// Probes per key; for a ribbon filter the lines of its row, which are two.
    #[inline]
    pub const fn hashes(&self) -> u32 {
        self.hashes
    }

    /// The integer that sizes every shard, in thousandths of a bit: bits per key of a Bloom filter,
    /// the mean number of fingerprint bits of a ribbon filter.
    pub const fn millibits_per_key(&self) -> u32 {
        self.millibits_per_key
    }

    /// Bytes of the filter of a shard with exactly `keys` distinct keys; 0 for none. Exact for a
    /// Bloom filter. The size of a ribbon filter depends on the keys: this is one that random keys
    /// do not exceed.
    ///
    /// block512: rounded up to a block below eight blocks, and to the *nearest* block from there
    /// on. Rounding up always would give a shard of 300 keys
    /// 4 % more bits and a third fewer false positives than requested; with rounding to nearest,
    /// the mean over the shards meets the target.
    pub fn filter_bytes(&self, keys: u32) -> u64 {
        let millibits = u64::from(keys) * u64::from(self.millibits_per_key);
        match self.kind {
            FilterKind::Block512 => {
                const BLOCK: u64 = BLOCK_BITS as u64 * 1000;
                let blocks = if millibits < 8 * BLOCK {
                    millibits.div_ceil(BLOCK)
                } else {
                    (millibits + BLOCK / 2) / BLOCK
                };
                blocks * u64::from(BLOCK_BITS) / 8
            }
            FilterKind::Ribbon => {
                let fingerprint = self.millibits_per_key.div_ceil(1000);
                ribbon::max_bytes(
                    keys,
                    RowBits {
                        fingerprint,
                        value: self.value_bits(),
                    },
                )
            }
        }
    }

    /// Bytes that the construction of such a filter takes besides filter and keys: of a ribbon
    /// filter its hashes and rows.
    pub const fn construction_bytes(&self, keys: u32) -> u64 {
        match self.kind {
            FilterKind::Ribbon => keys as u64 * ribbon::CONSTRUCTION_BYTES_PER_KEY,
            _ => 0,
        }
    }

    /// Sizes of the parts of a shard's filter.
    pub(crate) fn part_bytes(&self, shard: u16, counts: ShardCounts) -> PartBytes {
        match self.kind {
            FilterKind::Ribbon => ribbon::part_bytes(self.row_bits(shard), counts),
            _ => PartBytes {
                first: self.filter_bytes(counts.keys),
                ..PartBytes::default()
            },
        }
    }
}

/// Lines of a row of a ribbon filter.
const RIBBON_HASHES: u32 = 2;

/// The rate of a ribbon filter in which shards of two numbers of bits are mixed.
fn ribbon_fpr(millibits: u32, value: u32) -> f64 {
    let bits = millibits / 1000;
    let longer = f64::from(millibits % 1000) / 1000.0;
    let nominal = |fingerprint| ribbon::nominal_fpr(RowBits { fingerprint, value });
    let [short, long] = [bits, bits + 1].map(nominal);
    short + (long - short) * longer
}

/// The fewest thousandths of a fingerprint bit at which the rate is at most `fpr`.
fn ribbon_millibits(fpr: f64, value_bits: u32) -> u32 {
    let range = 1000 * ribbon::BITS.start()..1000 * ribbon::BITS.end();
    range
        .clone()
        .find(|millibits| ribbon_fpr(*millibits, value_bits) <= fpr)
        .unwrap_or(range.end)
}

/// block512 has ten 9-bit fields to probe with.
const fn max_hashes(kind: FilterKind) -> u32 {
    match kind {
        FilterKind::Block512 => 10,
        FilterKind::Ribbon => RIBBON_HASHES,
    }
}

/// The bits per key at which `hashes` probes of block512 give `fpr`, by bisection: the rate falls
/// as bits are added.
fn solve_bits_per_key(hashes: u32, fpr: f64) -> f64 {
    let mut low = 1.0;
    let mut high = f64::from(MAX_MILLIBITS) / 1000.0;
    while high - low > 1e-6 {
        let middle = f64::midpoint(low, high);
        if fpr_at(hashes, middle) > fpr {
            low = middle
        } else {
            high = middle
        }
    }
    high
}

/// The rate of block512.
fn fpr_at(hashes: u32, bits_per_key: f64) -> f64 {
    let k = f64::from(hashes);
    let block = f64::from(BLOCK_BITS);
    let mean = block / bits_per_key;
    let clear = (1.0 - 1.0 / block).powf(k);
    // A Poisson term beyond mean + 12 standard deviations is under 1e-30: negligible.
    let last = (mean + 12.0 * mean.sqrt() + 12.0) as u32;
    let mut probability = (-mean).exp();
    let mut fpr = 0.0;
    for j in 1..=last {
        probability *= mean / f64::from(j);
        fpr += probability * (1.0 - clear.powi(j as i32)).powf(k);
    }
    fpr
}
