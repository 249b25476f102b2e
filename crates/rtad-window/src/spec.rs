//! Slot formats and sizes of a window.

use serde::{Deserialize, Serialize};

/// Slots per bucket.
pub const SLOTS: usize = 16;
/// Most buckets of a region: 256 KiB of the first lane.
const REGION_BUCKETS: u64 = 4096;
/// Part of the slots that `capacity` keys fill.
///
/// Filled once, two buckets of sixteen hold a load of 0.85. Expiry empties buckets unevenly: in the
/// steady state at 0.85 one new key in 300 finds both buckets full, at 0.79 one in 60,000, at 0.75
/// none of 14 million.
pub const LOAD: f64 = 0.75;
/// Largest capacity of a window: 2^32 slots times some.
const MAX_CAPACITY: u64 = 20_000_000_000;
/// Largest count.
const MAX_COUNT: u16 = 10_000;
/// Distinct tick values of a slot; 0 marks an empty slot.
pub const TICKS: u64 = 255;
/// Most ticks of a lifetime: the rest is the time within which a region must be swept.
const MAX_LIFETIME: u16 = 200;

/// Size and precision of a window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowSpec {
    /// Number of keys that the window holds at a time.
    pub capacity: u64,
    /// Highest accepted rate of new keys that are taken for duplicates, at full capacity.
    pub fpr: f64,
    /// Highest count kept per key; 1 keeps no counts.
    pub count: u16,
    /// Keeps whole keys: no false positives, and the keys can be listed.
    pub whole_keys: bool,
    /// Number of ticks that an entry lives, the tick of its first event included.
    pub lifetime: u16,
}

/// Value outside of the accepted range.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SpecError {
    /// Capacity of zero, or too large.
    #[error("capacity: expected 1 to {MAX_CAPACITY}, found {0}")]
    Capacity(u64),
    /// False-positive rate out of range.
    #[error("fpr: expected more than 0 and less than 1, found {0}")]
    Fpr(String),
    /// Rate below that of the widest fingerprint.
    #[error("fpr: expected at least {least:e} (40-bit fingerprints), found {found}")]
    FprTooSmall {
        /// The smallest rate.
        least: f64,
        /// The rate asked for.
        found: String,
    },
    /// Count out of range.
    #[error("count: expected 1 to {MAX_COUNT}, found {0}")]
    Count(u16),
    /// Lifetime out of range.
    #[error("lifetime: expected 1 to {MAX_LIFETIME} ticks, found {0}")]
    Lifetime(u16),
    /// The system has no memory for the table.
    #[error("capacity: no memory for a table of {bytes} bytes: {reason}")]
    Memory {
        /// Size of the table.
        bytes: u64,
        /// The system's words.
        reason: String,
    },
}

/// Content of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// 24-bit fingerprint and tick: 4 bytes.
    Narrow,
    /// 40-bit fingerprint, tick and count: 8 bytes.
    Wide,
    /// Whole key, tick and count: 24 bytes.
    Whole,
}

impl Format {
    /// Number of 32-bit lanes of a slot.
    pub(crate) const fn lanes(self) -> usize {
        match self {
            Self::Narrow => 1,
            Self::Wide => 2,
            Self::Whole => 6,
        }
    }

    /// Part of new keys taken for duplicates when `slots` of the slots of a bucket are in use.
    fn fpr(self, slots: f64) -> f64 {
        match self {
            Self::Narrow => 2.0 * slots * (-24f64).exp2(),
            Self::Wide => 2.0 * slots * (-40f64).exp2(),
            Self::Whole => 0.0,
        }
    }

    /// False-positive rate with `load` of the slots in use.
    pub(crate) fn fpr_at(self, load: f64) -> f64 {
        self.fpr(load * SLOTS as f64)
    }

    /// Bytes of a slot.
    pub const fn slot_bytes(self) -> u64 {
        4 * self.lanes() as u64
    }
}

/// Sizes of a table, derived from a spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) format: Format,
    pub(crate) regions: usize,
    /// Buckets of a region; at least two.
    pub(crate) buckets: usize,
}

impl Layout {
    pub(crate) const fn slots(&self) -> u64 {
        self.regions as u64 * self.buckets as u64 * SLOTS as u64
    }
}

impl WindowSpec {
    /// Checks every value.
    ///
    /// # Errors
    ///
    /// The first value out of range.
    pub fn validate(&self) -> Result<(), SpecError> {
        if !(1..=MAX_CAPACITY).contains(&self.capacity) {
            return Err(SpecError::Capacity(self.capacity));
        }
        if !(self.fpr > 0.0 && self.fpr < 1.0) {
            return Err(SpecError::Fpr(self.fpr.to_string()));
        }
        let least = Format::Wide.fpr_at(LOAD);
        if self.fpr < least && !self.whole_keys {
            return Err(SpecError::FprTooSmall {
                least,
                found: self.fpr.to_string(),
            });
        }
        if !(1..=MAX_COUNT).contains(&self.count) {
            return Err(SpecError::Count(self.count));
        }
        if !(1..=MAX_LIFETIME).contains(&self.lifetime) {
            return Err(SpecError::Lifetime(self.lifetime));
        }
        Ok(())
    }

    /// The smallest format that has the precision.
    pub fn format(&self) -> Format {
        if self.whole_keys {
            Format::Whole
        } else if self.count == 1 && Format::Narrow.fpr_at(LOAD) <= self.fpr {
            Format::Narrow
        } else {
            Format::Wide
        }
    }

    pub(crate) fn layout(&self) -> Layout {
        let slots = (self.capacity as f64 / LOAD).ceil() as u64;
        // Two buckets at least, and some room for the uneven filling of a small table.
        let buckets = slots.div_ceil(SLOTS as u64).max(2);
        let regions = buckets.div_ceil(REGION_BUCKETS);
        Layout {
            format: self.format(),
            regions: regions as usize,
            buckets: buckets.div_ceil(regions) as usize,
        }
    }

    /// Memory of the table in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let layout = self.layout();
        layout.slots() * layout.format.slot_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: WindowSpec = WindowSpec {
        capacity: 1_000_000,
        fpr: 2e-6,
        count: 1,
        whole_keys: false,
        lifetime: 129,
    };

    #[test]
    fn format_is_the_smallest_with_the_precision() {
        assert_eq!(SPEC.format(), Format::Narrow);
        assert_eq!(WindowSpec { fpr: 1e-6, ..SPEC }.format(), Format::Wide);
        assert_eq!(WindowSpec { count: 2, ..SPEC }.format(), Format::Wide);
        assert_eq!(
            WindowSpec {
                whole_keys: true,
                ..SPEC
            }
            .format(),
            Format::Whole
        );
    }

    #[test]
    fn memory_follows_the_load() {
        let bits = SPEC.memory_bytes() as f64 * 8.0 / SPEC.capacity as f64;
        assert!((42.6..42.8).contains(&bits), "{bits}");
    }

    #[test]
    fn values_out_of_range_are_named() {
        let refused = |spec: WindowSpec| spec.validate().unwrap_err().to_string();
        assert!(
            refused(WindowSpec {
                capacity: 0,
                ..SPEC
            })
            .starts_with("capacity")
        );
        assert!(refused(WindowSpec { fpr: 1e-12, ..SPEC }).contains("at least 2.18"));
        assert!(
            refused(WindowSpec {
                fpr: f64::NAN,
                ..SPEC
            })
            .starts_with("fpr")
        );
        assert!(refused(WindowSpec { count: 0, ..SPEC }).starts_with("count"));
        assert!(
            refused(WindowSpec {
                lifetime: 255,
                ..SPEC
            })
            .starts_with("lifetime")
        );
        WindowSpec {
            fpr: 1e-12,
            whole_keys: true,
            ..SPEC
        }
        .validate()
        .unwrap();
    }
}
