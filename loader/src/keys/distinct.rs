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
    /// Keys left that are among the carried additions, and among the carried removals.
    pub(crate) carried_added: u64,
    pub(crate) carried_removed: u64,
    /// Keys left that the live filters contain.
    pub(crate) in_live: u64,
}

impl Distinct {
    /// The sum. Saturates: the numbers may be from a damaged journal.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            found: self.found.saturating_add(other.found),
            left: self.left.saturating_add(other.left),
            carried_added: self.carried_added.saturating_add(other.carried_added),
            carried_removed: self.carried_removed.saturating_add(other.carried_removed),
            in_live: self.in_live.saturating_add(other.in_live),
        }
    }
}

/// Filters that keys are looked up in.
pub(crate) trait ShardFilters: std::fmt::Debug + Sync {
    /// The number of these keys of one shard that the filters contain.
    fn count(&self, keys: &mut dyn Iterator<Item = DeviceKey>) -> u64;
}

/// Keys to exclude, ascending carried changes to count among the others, and filters to look the
/// others up in.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct KeyChecks<'a> {
    pub(crate) unwanted: Option<&'a SortedKeys>,
    pub(crate) carried_added: &'a [DeviceKey],
    pub(crate) carried_removed: &'a [DeviceKey],
    pub(crate) live: Option<&'a dyn ShardFilters>,
}

/// Sorts keys of one shard in place and moves the distinct wanted ones to the front.
pub(super) fn sort_and_dedup(keys: &mut [u128], checks: KeyChecks<'_>) -> Distinct {
    keys.sort_unstable();
    let found = dedup(keys);
    let mut left = found;
    if let Some(unwanted) = checks.unwanted {
        left = 0;
        for index in 0..found {
            let key = keys[index];
            if !unwanted.contains(&device_key(&key)) {
                keys[left] = key;
                left += 1;
            }
        }
    }
    let count = |list| count_common(&keys[..left], list);
    Distinct {
        found: found as u64,
        left: left as u64,
        carried_added: count(checks.carried_added),
        carried_removed: count(checks.carried_removed),
        in_live: checks.live.map_or(0, |live| live.count(&mut keys[..left].iter().map(device_key))),
    }
}

/// The number of common keys of two ascending lists. The second may be longer than the range of
/// the first.
fn count_common(keys: &[u128], list: &[DeviceKey]) -> u64 {
    let (Some(first), Some(last)) = (keys.first(), keys.last()) else { return 0 };
    let number = |key: &DeviceKey| u128::from_be_bytes(*key.as_bytes());
    let begin = list.partition_point(|key| number(key) < *first);
    let end = list.partition_point(|key| number(key) <= *last);
    let is_common = |key: &&DeviceKey| keys.binary_search(&number(key)).is_ok();
    list[begin..end].iter().filter(is_common).count() as u64
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
