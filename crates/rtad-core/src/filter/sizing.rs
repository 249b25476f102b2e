//! Filter sizing: bits per key and probes for a false-positive rate (fpr).
//!
//! The fpr of k probes at c bits per key:
//!
//! * classic: `(1 - e^(-k/c))^k`; Bloom 1970; Mitzenmacher and Upfal, *Probability and Computing*,
//!   5.5.3.
//! * block512: mean over j of `(1 - (1 - 1/512)^(j·k))^k`, j ~ Poisson(512/c); Putze, Sanders and
//!   Singler 2007, §3.
//!
//! Both are solved for c by bisection for every allowed k; the k with the fewest bits wins. c is
//! then rounded up to a thousandth and stored as an integer: shard sizes do not depend on the
//! floating-point library.

use super::kind::{BLOCK_BITS, FilterKind};
use crate::device::SHARDS;

/// A filter's kind, number of hashes and bits per key; the same for all shards of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterSpec {
    kind: FilterKind,
    hashes: u32,
    millibits_per_key: u32,
}

/// A filter parameter out of range.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SizingError {
    /// The false-positive rate is out of range.
    #[error("false-positive rate is {found}, expected {min} to {max}")]
    FprOutOfRange {
        /// The requested rate.
        found: f64,
        /// The lowest accepted value.
        min: f64,
        /// The highest accepted value.
        max: f64,
    },
    /// The number of hashes is out of the kind's range.
    #[error("hashes of a {} filter is {hashes}, expected 1 to {max}", kind.as_str())]
    HashesOutOfRange {
        /// The filter's kind.
        kind: FilterKind,
        /// The number found.
        hashes: u32,
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
}

const MIN_FPR: f64 = 1e-7;
const MAX_FPR: f64 = 0.1;
/// 1,000 bits per key: enough for block512 at the lowest rate.
const MAX_MILLIBITS: u32 = 1_000_000;

impl FilterSpec {
    /// The smallest filter of `kind` whose false-positive rate is `fpr`, a fraction from 1e-7 to
    /// 0.1.
    ///
    /// # Errors
    ///
    /// [`SizingError::FprOutOfRange`].
    pub fn for_fpr(kind: FilterKind, fpr: f64) -> Result<Self, SizingError> {
        if !(MIN_FPR..=MAX_FPR).contains(&fpr) {
            return Err(SizingError::FprOutOfRange { found: fpr, min: MIN_FPR, max: MAX_FPR });
        }
        let (hashes, bits) = (1..=max_hashes(kind))
            .map(|hashes| (hashes, solve_bits_per_key(kind, hashes, fpr)))
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .expect("every kind allows at least one hash");
        Ok(Self { kind, hashes, millibits_per_key: (bits * 1000.0).ceil() as u32 })
    }

    /// A spec with the numbers of a manifest.
    ///
    /// # Errors
    ///
    /// [`SizingError`] for a number out of the kind's range.
    pub fn new(kind: FilterKind, hashes: u32, millibits_per_key: u32) -> Result<Self, SizingError> {
        let max = max_hashes(kind);
        if !(1..=max).contains(&hashes) {
            return Err(SizingError::HashesOutOfRange { kind, hashes, max });
        }
        if !(1000..=MAX_MILLIBITS).contains(&millibits_per_key) {
            return Err(SizingError::BitsOutOfRange {
                found: millibits_per_key,
                min: 1000,
                max: MAX_MILLIBITS,
            });
        }
        Ok(Self { kind, hashes, millibits_per_key })
    }

    /// The filter's kind.
    #[inline]
    pub const fn kind(&self) -> FilterKind {
        self.kind
    }

    /// Probes per key.
    #[inline]
    pub const fn hashes(&self) -> u32 {
        self.hashes
    }

    /// Bits per key in thousandths: the integer that sizes every shard.
    pub const fn millibits_per_key(&self) -> u32 {
        self.millibits_per_key
    }

    /// Bytes of the filter of a shard with exactly `keys` distinct keys; 0 for none.
    ///
    /// classic: rounded up to a 64-bit word. block512: rounded up to a block below eight blocks,
    /// and to the *nearest* block from there on. Rounding up always would give a shard of 300 keys
    /// 4 % more bits and a third fewer false positives than requested; with rounding to nearest,
    /// the mean over the shards meets the target.
    pub const fn filter_bytes(&self, keys: u32) -> u64 {
        let millibits = keys as u64 * self.millibits_per_key as u64;
        match self.kind {
            FilterKind::Classic => millibits.div_ceil(64_000) * 8,
            FilterKind::Block512 => {
                const BLOCK: u64 = BLOCK_BITS as u64 * 1000;
                let blocks = if millibits < 8 * BLOCK {
                    millibits.div_ceil(BLOCK)
                } else {
                    (millibits + BLOCK / 2) / BLOCK
                };
                blocks * BLOCK_BITS as u64 / 8
            }
        }
    }

    /// The number of keys that an audience needs for its filters to meet `fpr`; 0 if any will do.
    ///
    /// The fewer bits a classic filter has, the fewer patterns double hashing gives: keys whose h1
    /// and h2 share their leading bits share a pattern. That adds 0.01 to 0.03 / keys per shard to
    /// the rate (measured, see `docs/explanation/performance.md`): a third of 1e-4 at 300 keys per
    /// shard. With this many keys it adds at most about a twentieth of `fpr`.
    pub fn min_keys(kind: FilterKind, fpr: f64) -> u64 {
        match kind {
            FilterKind::Classic => (SHARDS as f64 * (0.5 / fpr).max(500.0)).ceil() as u64,
            FilterKind::Block512 => 0,
        }
    }

    /// The false-positive rate of `keys` keys in a filter of `bytes` bytes, by the formula.
    pub fn theoretical_fpr(&self, keys: u32, bytes: u64) -> f64 {
        if keys == 0 || bytes == 0 {
            return 0.0;
        }
        fpr_at(self.kind, self.hashes, bytes as f64 * 8.0 / f64::from(keys))
    }
}

/// block512 has ten 9-bit fields to probe with. classic has no limit; no accepted rate needs 30.
const fn max_hashes(kind: FilterKind) -> u32 {
    match kind {
        FilterKind::Classic => 30,
        FilterKind::Block512 => 10,
    }
}

/// The bits per key at which `hashes` probes give `fpr`, by bisection: the rate falls as bits are
/// added.
fn solve_bits_per_key(kind: FilterKind, hashes: u32, fpr: f64) -> f64 {
    let (mut low, mut high) = (1.0, f64::from(MAX_MILLIBITS) / 1000.0);
    while high - low > 1e-6 {
        let middle = f64::midpoint(low, high);
        if fpr_at(kind, hashes, middle) > fpr { low = middle } else { high = middle }
    }
    high
}

fn fpr_at(kind: FilterKind, hashes: u32, bits_per_key: f64) -> f64 {
    let k = f64::from(hashes);
    match kind {
        FilterKind::Classic => (1.0 - (-k / bits_per_key).exp()).powf(k),
        FilterKind::Block512 => {
            let block = f64::from(BLOCK_BITS);
            let mean = block / bits_per_key;
            let clear = (1.0 - 1.0 / block).powf(k);
            // Beyond mean + 12 standard deviations a Poisson term is under 1e-30: negligible.
            let last = (mean + 12.0 * mean.sqrt() + 12.0) as u32;
            let mut probability = (-mean).exp();
            let mut fpr = 0.0;
            for j in 1..=last {
                probability *= mean / f64::from(j);
                fpr += probability * (1.0 - clear.powi(j as i32)).powf(k);
            }
            fpr
        }
    }
}
