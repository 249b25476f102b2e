//! Exact set of device keys: a sorted list with an index on the first bits.
//!
//! Keys are md5s, so their first bits are uniform. The index has the offset of each value of those
//! bits and leaves about four keys to compare: one cache line. A hash table takes twice the memory
//! and is built key by key.

use std::cmp::Ordering;

use crate::device::DeviceKey;

/// Keys compared per lookup, on average.
const BUCKET_KEYS: usize = 4;
/// An index of more than 2²⁴ entries (64 MiB) would miss every cache itself.
const MAX_BITS: u32 = 24;
/// Larger buckets are searched by bisection: an attacker may choose keys with the same first bits.
const MAX_LINEAR: usize = 16;

/// Distinct keys, ascending. About 17 bytes per key.
#[derive(Debug)]
pub struct SortedKeys {
    keys: Box<[DeviceKey]>,
    /// Start of the keys with each value of the first bits, and the end of the last. Empty if there
    /// are no keys.
    starts: Box<[u32]>,
    shift: u32,
}

impl SortedKeys {
    /// A set of ascending keys; `None` if they are not ascending.
    pub(super) fn new(keys: Vec<DeviceKey>) -> Option<Self> {
        keys.is_sorted_by(|a, b| a < b).then(|| Self::of(keys))
    }

    /// A set of keys in any order, with or without duplicates.
    pub fn sort(mut keys: Vec<DeviceKey>) -> Self {
        keys.sort_unstable_by_key(number);
        keys.dedup();
        Self::of(keys)
    }

    fn of(keys: Vec<DeviceKey>) -> Self {
        if keys.is_empty() {
            return Self {
                keys: Box::default(),
                starts: Box::default(),
                shift: 0,
            };
        }

        let bits = (keys.len() / BUCKET_KEYS).max(1).ilog2().min(MAX_BITS);
        let shift = 128 - bits;
        let mut starts = Vec::with_capacity((1 << bits) + 1);
        for (index, key) in keys.iter().enumerate() {
            let index = u32::try_from(index).expect("a delta has fewer than 2³² keys");
            starts.resize((bucket(key, shift) + 1).max(starts.len()), index);
        }

        let end = u32::try_from(keys.len()).expect("a delta has fewer than 2³² keys");
        starts.resize((1 << bits) + 1, end);
        Self {
            keys: keys.into_boxed_slice(),
            starts: starts.into_boxed_slice(),
            shift,
        }
    }

    /// Size in memory, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        (size_of_val(&*self.keys) + size_of_val(&*self.starts)) as u64
    }

    /// Whether the key is in the set. Reads the index and one or two cache lines of keys.
    #[inline]
    pub fn contains(&self, key: &DeviceKey) -> bool {
        if self.keys.is_empty() {
            return false;
        }
        let keys = &self.keys[self.range(key)];
        if keys.len() > MAX_LINEAR {
            keys.binary_search(key).is_ok()
        } else {
            keys.contains(key)
        }
    }

    /// The index of a key in the list.
    pub(super) fn find(&self, key: &DeviceKey) -> Option<usize> {
        if self.keys.is_empty() {
            return None;
        }
        let range = self.range(key);
        Some(range.start + self.keys[range.clone()].binary_search(key).ok()?)
    }

    /// The indexes of the keys with the same first bits.
    #[inline]
    fn range(&self, key: &DeviceKey) -> std::ops::Range<usize> {
        let bucket = bucket(key, self.shift);
        self.starts[bucket] as usize..self.starts[bucket + 1] as usize
    }
}

impl std::ops::Deref for SortedKeys {
    type Target = [DeviceKey];

    fn deref(&self) -> &[DeviceKey] {
        &self.keys
    }
}

/// The key as a number: compares in one step, in byte order.
fn number(key: &DeviceKey) -> u128 {
    u128::from_be_bytes(*key.as_bytes())
}

#[inline]
fn bucket(key: &DeviceKey, shift: u32) -> usize {
    // A shift by all 128 bits: one bucket.
    number(key).checked_shr(shift).unwrap_or(0) as usize
}

/// The entries of two ascending lists, by key; of those with the same key the newer one.
pub fn overlaid<T: Copy>(
    older: impl Iterator<Item = (DeviceKey, T)>,
    newer: impl Iterator<Item = (DeviceKey, T)>,
) -> Vec<(DeviceKey, T)> {
    let mut older = older.peekable();
    let mut newer = newer.peekable();
    let mut all = Vec::with_capacity(older.size_hint().0 + newer.size_hint().0);
    loop {
        let order = match (older.peek(), newer.peek()) {
            (None, None) => return all,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((older, _)), Some((newer, _))) => older.cmp(newer),
        };
        let replaced = if order.is_le() { older.next() } else { None };
        let next = if order.is_ge() {
            newer.next()
        } else {
            replaced
        };
        all.extend(next);
    }
}
