//! Distinct keys: sorting, deduplication and exclusion of one run of keys.

use serde::{Deserialize, Serialize};

use rtad_core::device::DeviceKey;
use rtad_core::snapshot::SortedKeys;

/// Numbers of distinct keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Distinct {
    pub(crate) found: u64,
    /// Keys left after the unwanted ones were excluded.
    pub(crate) left: u64,
}

impl Distinct {
    pub(crate) const fn and(self, other: Self) -> Self {
        Self { found: self.found + other.found, left: self.left + other.left }
    }
}

/// Keys to exclude.
pub(crate) type Unwanted<'a> = Option<&'a SortedKeys>;

/// Sorts keys in place and moves the distinct wanted ones to the front.
pub(super) fn sort_and_dedup(keys: &mut [u128], unwanted: Unwanted<'_>) -> Distinct {
    keys.sort_unstable();
    let found = dedup(keys);
    let mut left = found;
    if let Some(unwanted) = unwanted {
        left = 0;
        for index in 0..found {
            let key = keys[index];
            if !unwanted.contains(&device_key(&key)) {
                keys[left] = key;
                left += 1;
            }
        }
    }
    Distinct { found: found as u64, left: left as u64 }
}

/// Moves the distinct ones of sorted keys to the front. Returns their number.
pub(super) fn dedup(keys: &mut [u128]) -> usize {
    let Some(mut last) = keys.first().copied() else { return 0 };
    let mut len = 1;
    for index in 1..keys.len() {
        let key = keys[index];
        if key != last {
            keys[len] = key;
            last = key;
            len += 1;
        }
    }
    len
}

pub(crate) fn device_key(key: &u128) -> DeviceKey {
    DeviceKey::from_bytes(key.to_be_bytes())
}
