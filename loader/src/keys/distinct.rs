//! Distinct keys: sorting, deduplication and exclusion of one run of keys.

use rtad_core::device::DeviceKey;
use rtad_core::snapshot::SortedKeys;

use super::record::{key_of, sort_and_keep_largest};

/// Numbers of distinct keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Distinct {
    pub found: u64,
    /// Keys left after the unwanted ones were excluded.
    pub left: u64,
    /// Keys left that are among the carried additions, and among the carried removals.
    pub carried_added: u64,
    pub carried_removed: u64,
    /// Keys left that the live filters contain.
    pub in_live: u64,
}

impl Distinct {
    /// The sum.
    pub fn and(self, other: Self) -> Self {
        Self {
            found: self.found + other.found,
            left: self.left + other.left,
            carried_added: self.carried_added + other.carried_added,
            carried_removed: self.carried_removed + other.carried_removed,
            in_live: self.in_live + other.in_live,
        }
    }
}

/// Filters that keys are looked up in.
pub trait ShardFilters: std::fmt::Debug + Sync {
    /// The number of these keys of one shard that the filters contain.
    fn count(&self, keys: &mut dyn Iterator<Item = DeviceKey>) -> u64;
}

/// Keys to exclude, ascending carried changes to count among the others, and filters to look the
/// others up in.
#[derive(Debug, Clone, Copy, Default)]
pub struct KeyChecks<'a> {
    /// Whether the keys are records with values.
    pub has_values: bool,
    pub unwanted: Option<&'a SortedKeys>,
    pub carried_added: &'a [DeviceKey],
    pub carried_removed: &'a [DeviceKey],
    pub live: Option<&'a dyn ShardFilters>,
}

/// Sorts keys of one shard of a partition in place and moves the distinct wanted ones to the front.
pub fn sort_and_dedup(keys: &mut [u128], partition: usize, checks: KeyChecks<'_>) -> Distinct {
    let found = sort_and_keep_one(keys, checks.has_values);
    let partition = partition as u8;
    if checks.has_values {
        check(keys, found, checks, |record| key_of(*record, partition))
    } else {
        check(keys, found, checks, |key| *key)
    }
}

/// Sorts keys in place and moves the distinct ones to the front: of records with equal keys the one
/// with the largest value. Returns their number.
pub fn sort_and_keep_one(keys: &mut [u128], has_values: bool) -> usize {
    if has_values {
        return sort_and_keep_largest(keys);
    }
    keys.sort_unstable();
    dedup(keys)
}

/// Checks the first `found` records, which are sorted by their keys.
fn check(
    records: &mut [u128],
    found: usize,
    checks: KeyChecks<'_>,
    key_of: impl Fn(&u128) -> u128 + Copy,
) -> Distinct {
    let mut left = found;
    if let Some(unwanted) = checks.unwanted {
        left = 0;
        for index in 0..found {
            let record = records[index];
            if !unwanted.contains(&device_key(&key_of(&record))) {
                records[left] = record;
                left += 1;
            }
        }
    }

    let records = &records[..left];
    let mut keys = records.iter().map(|record| device_key(&key_of(record)));
    Distinct {
        found: found as u64,
        left: left as u64,
        carried_added: count_common(records, key_of, checks.carried_added),
        carried_removed: count_common(records, key_of, checks.carried_removed),
        in_live: checks.live.map_or(0, |live| live.count(&mut keys)),
    }
}

/// The number of common keys of two ascending lists. The second may be longer than the range of
/// the first.
fn count_common(
    records: &[u128],
    key_of: impl Fn(&u128) -> u128 + Copy,
    list: &[DeviceKey],
) -> u64 {
    let (Some(first), Some(last)) = (records.first(), records.last()) else {
        return 0;
    };
    let begin = list.partition_point(|key| number_of(key) < key_of(first));
    let end = list.partition_point(|key| number_of(key) <= key_of(last));

    let mut common = 0;
    for key in &list[begin..end] {
        if records
            .binary_search_by_key(&number_of(key), key_of)
            .is_ok()
        {
            common += 1;
        }
    }
    common
}

/// A key as a number of the same order.
fn number_of(key: &DeviceKey) -> u128 {
    u128::from_be_bytes(*key.as_bytes())
}

/// Moves the distinct ones of sorted keys to the front. Returns their number.
fn dedup(keys: &mut [u128]) -> usize {
    let Some(mut last) = keys.first().copied() else {
        return 0;
    };
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

pub fn device_key(key: &u128) -> DeviceKey {
    DeviceKey::from_bytes(key.to_be_bytes())
}
