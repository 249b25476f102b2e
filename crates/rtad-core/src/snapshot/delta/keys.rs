//! Sorted device keys that can be asked: an exact set, in as many bytes as its keys have.
//!
//! Keys are md5s, so their first bits spread them evenly: a table of where each value of those bits
//! begins leaves some four keys to look at, one cache line. A hash table of the same keys takes
//! twice the memory and has to be built key by key.

use crate::device::DeviceKey;

/// Keys to look at per question, on average.
const BUCKET_KEYS: usize = 4;
/// A table of more than 2²⁴ places (64 MiB) would miss every cache itself.
const MAX_BITS: u32 = 24;
/// Buckets above this are halved, not walked: keys that somebody chose to begin alike.
const MAX_WALK: usize = 16;

/// Distinct keys, ascending. About 17 bytes a key.
#[derive(Debug)]
pub struct SortedKeys {
    keys: Box<[DeviceKey]>,
    /// Where the keys of each value of the first bits begin, and where the last end. Empty if there
    /// are no keys.
    starts: Box<[u32]>,
    shift: u32,
}

impl SortedKeys {
    /// Takes keys that are in order; `None` if they are not.
    pub(super) fn new(keys: Vec<DeviceKey>) -> Option<Self> {
        keys.is_sorted_by(|a, b| a < b).then(|| Self::of(keys))
    }

    /// Takes keys in any order, also more than once.
    pub fn sort(mut keys: Vec<DeviceKey>) -> Self {
        keys.sort_unstable_by_key(number);
        keys.dedup();
        Self::of(keys)
    }

    fn of(keys: Vec<DeviceKey>) -> Self {
        if keys.is_empty() {
            return Self { keys: Box::default(), starts: Box::default(), shift: 0 };
        }
        let bits = (keys.len() / BUCKET_KEYS).max(1).ilog2().min(MAX_BITS);
        let shift = 128 - bits;
        let mut starts = Vec::with_capacity((1 << bits) + 1);
        for (place, key) in keys.iter().enumerate() {
            let place = u32::try_from(place).expect("a delta has fewer than 2³² keys");
            starts.resize((bucket(key, shift) + 1).max(starts.len()), place);
        }
        let end = u32::try_from(keys.len()).expect("a delta has fewer than 2³² keys");
        starts.resize((1 << bits) + 1, end);
        Self { keys: keys.into_boxed_slice(), starts: starts.into_boxed_slice(), shift }
    }

    /// Bytes that it takes in memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        (size_of_val(&*self.keys) + size_of_val(&*self.starts)) as u64
    }

    /// Whether the key is one of them. Two reads: of the table, and of one cache line of keys or
    /// two.
    #[inline]
    pub fn contains(&self, key: &DeviceKey) -> bool {
        if self.keys.is_empty() {
            return false;
        }
        let bucket = bucket(key, self.shift);
        let keys = &self.keys[self.starts[bucket] as usize..self.starts[bucket + 1] as usize];
        if keys.len() > MAX_WALK { keys.binary_search(key).is_ok() } else { keys.contains(key) }
    }
}

impl std::ops::Deref for SortedKeys {
    type Target = [DeviceKey];

    fn deref(&self) -> &[DeviceKey] {
        &self.keys
    }
}

/// As numbers, keys compare in one step and in the same order as byte by byte.
fn number(key: &DeviceKey) -> u128 {
    u128::from_be_bytes(*key.as_bytes())
}

#[inline]
fn bucket(key: &DeviceKey, shift: u32) -> usize {
    // Of 128 bits all are shifted out: one bucket.
    number(key).checked_shr(shift).unwrap_or(0) as usize
}

/// Keys of `from` that are not in `other`, in their order.
pub(super) fn without(from: &[DeviceKey], other: &SortedKeys) -> Vec<DeviceKey> {
    from.iter().filter(|key| !other.contains(key)).copied().collect()
}

/// The keys of both, in order.
pub(super) fn union(a: &[DeviceKey], b: &[DeviceKey]) -> Vec<DeviceKey> {
    let mut all = Vec::with_capacity(a.len() + b.len());
    let (mut left, mut right) = (a.iter().copied().peekable(), b.iter().copied().peekable());
    loop {
        let next = match (left.peek(), right.peek()) {
            (Some(a), Some(b)) if a < b => left.next(),
            (Some(a), Some(b)) if a == b => {
                left.next();
                right.next()
            }
            (_, Some(_)) => right.next(),
            _ => left.next(),
        };
        match next {
            Some(key) => all.push(key),
            None => return all,
        }
    }
}
