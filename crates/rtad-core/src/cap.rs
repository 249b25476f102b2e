//! Unique cap: a lock-free table that admits a limited number of distinct devices.
//!
//! A table of 32-bit fingerprints with open addressing in buckets of one cache line:
//!
//! ```text
//! keyed hash of the device key, 64 bits
//! ├── high bits: home bucket, of ⌈limit · 3/2 / 16⌉
//! └── low 32 bits: fingerprint; 0 is an empty slot, so 0 becomes 1
//!
//! bucket: 16 slots of 4 bytes; a full bucket continues in the next one
//! ```
//!
//! * Slots are filled in the order of the search, and never emptied: a search ends at the first
//!   empty slot.
//! * A new device reserves one of the limit's counts before it takes a slot by compare-and-swap. So
//!   no number of threads exceeds the limit. A thread that finds its own fingerprint in the slot
//!   after all gives its count back.
//! * A table takes 6 bytes per device of the limit, and is two thirds full at most. A search of a
//!   new device then compares 11 fingerprints: 3 in 10⁹ are taken for counted ones.
//! * The hash has a random seed, so senders of ids cannot choose colliding ones.
//!
//! `docs/adr/0029-unique-caps-in-a-table-of-fingerprints.md` compares it with a Bloom filter.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::device::DeviceKey;
use crate::hash::fold;
use crate::random;

/// Bytes of a bucket: a cache line.
const BUCKET_BYTES: usize = 64;
/// Largest limit of a table: 6 GB.
pub const MAX_DEVICES: u64 = 1_000_000_000;

const SLOTS: usize = BUCKET_BYTES / size_of::<u32>();
/// Buckets after the last home, for what its neighbors cannot hold.
const TAIL: usize = 4;
const EMPTY: u32 = 0;
/// Bits of the count. A limit is below 2^30, so a count and one carried over fit.
const COUNT: u64 = u32::MAX as u64;

#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket([AtomicU32; SLOTS]);

/// Devices counted, in the low half, and their limit in the high half: one compare-and-swap decides
/// by both. A line of its own: new devices write it, all others only read their buckets.
#[derive(Debug)]
#[repr(align(128))]
struct CountAndLimit(AtomicU64);

impl CountAndLimit {
    fn new(count: u64, limit: u64) -> Self {
        Self(AtomicU64::new(count | limit << 32))
    }

    /// The count, and the limit.
    fn load(&self) -> (u64, u64) {
        Self::parts(self.0.load(Relaxed))
    }

    const fn parts(word: u64) -> (u64, u64) {
        (word & COUNT, word >> 32)
    }

    fn raise_limit(&self, devices: u64) {
        self.0.fetch_add(devices << 32, Relaxed);
    }

    /// Takes what the limit leaves over, up to a number; returns how much.
    fn lower_limit(&self, most: u64) -> u64 {
        let lowered = |word| {
            let (count, limit) = Self::parts(word);
            let left = limit.saturating_sub(count).min(most);
            word - (left << 32)
        };
        let before = self.0.update(Relaxed, Relaxed, lowered);
        let (count, limit) = Self::parts(before);
        limit.saturating_sub(count).min(most)
    }

    /// Sets the limit to 0; returns what was left of it.
    fn close(&self) -> u64 {
        let (count, limit) = Self::parts(self.0.fetch_and(COUNT, Relaxed));
        limit.saturating_sub(count)
    }

    /// Adds a device, unless the limit is reached.
    fn reserve(&self) -> bool {
        let one_more = |word| {
            let (count, limit) = Self::parts(word);
            (count < limit).then_some(word + 1)
        };
        self.0.try_update(Relaxed, Relaxed, one_more).is_ok()
    }

    /// Takes a device back.
    fn give_back(&self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Seed of a table's hash. `Debug` hides it: with it, fingerprints can be computed from ids.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CapSeed([u64; 2]);

impl CapSeed {
    /// A random seed.
    pub fn random() -> Self {
        Self([0; 2].map(|_: u64| random::number()))
    }

    #[inline]
    fn hash(self, key: &DeviceKey) -> u64 {
        let key = u128::from_le_bytes(*key.as_bytes());
        let [first, second] = self.0;
        let mixed = fold(key as u64 ^ first, (key >> 64) as u64 ^ second);
        // The halves of one product share bits; the bucket and the fingerprint must not.
        fold(mixed ^ second, 0x9e37_79b9_7f4a_7c15)
    }
}

impl std::fmt::Debug for CapSeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CapSeed(hidden)")
    }
}

/// A table's answer about a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// Counted before.
    Before,
    /// Counted now.
    Now,
    /// Not counted: the limit is reached.
    Full,
}

/// A device that is about to be counted.
#[derive(Debug)]
pub struct Sought<'a> {
    table: &'a CapTable,
    home: usize,
    fingerprint: u32,
    /// The first slot of the home bucket. Used, so that the compiler keeps the early read.
    first: u32,
}

impl Sought<'_> {
    /// Counts the device unless it was counted before or the limit is reached.
    ///
    /// While the last counts are reserved, a device may be refused although one of them is given
    /// back afterwards.
    #[inline]
    pub fn count(self) -> Counted {
        // Slots are never emptied: what was found stays.
        if self.first == self.fingerprint {
            return Counted::Before;
        }
        self.table.count_at(self.home, self.fingerprint)
    }
}

/// Devices of one period, up to a limit.
#[derive(Debug)]
pub struct CapTable {
    buckets: Box<[Bucket]>,
    homes: u64,
    seed: CapSeed,
    count: CountAndLimit,
}

impl CapTable {
    /// An empty table with room for so many devices, and a limit of 0. Touches all its memory, 6
    /// bytes per device and 256 bytes: about a third of a second per GB.
    ///
    /// # Panics
    ///
    /// If the capacity is 0 or over [`MAX_DEVICES`].
    pub fn new(capacity: u64, seed: CapSeed) -> Self {
        assert!(
            (1..=MAX_DEVICES).contains(&capacity),
            "a capacity of 1 to {MAX_DEVICES} devices"
        );
        let homes = homes(capacity);
        let buckets = (0..homes as usize + TAIL)
            .map(|_| Bucket::default())
            .collect();
        Self {
            buckets,
            homes,
            seed,
            count: CountAndLimit::new(0, 0),
        }
    }

    /// The table with the count and the limit of one that is dropped. Its devices are counted again
    /// if they come again.
    #[must_use]
    pub fn with_carried(self, count: u64, limit: u64) -> Self {
        Self {
            count: CountAndLimit::new(count, limit),
            ..self
        }
    }

    /// Bytes of a table with this capacity.
    pub const fn bytes_for(capacity: u64) -> u64 {
        (homes(capacity) + TAIL as u64) * BUCKET_BYTES as u64
    }

    /// Most devices that are counted.
    pub fn limit(&self) -> u64 {
        self.count.load().1
    }

    /// Admits so many devices more.
    pub fn raise_limit(&self, devices: u64) {
        self.count.raise_limit(devices);
    }

    /// Lowers the limit by this number or by what is left of it, whichever is less; returns that.
    pub fn lower_limit(&self, most: u64) -> u64 {
        self.count.lower_limit(most)
    }

    /// Whether the table has room for so many devices: five sixths of its slots.
    pub const fn has_room(&self, devices: u64) -> bool {
        devices * 6 <= self.homes * SLOTS as u64 * 5
    }

    /// Sets the limit to 0; returns what was left of it. The count does not grow any more.
    pub fn close(&self) -> u64 {
        self.count.close()
    }

    /// Devices counted so far, including for a moment devices that another thread counts too.
    pub fn count(&self) -> u64 {
        self.count.load().0
    }

    /// Begins to count a device: the wait for the table's memory passes beside other work. Reads
    /// one cache line, and [`Sought::count`] rarely more; never allocates, blocks or exceeds the
    /// limit.
    #[inline]
    pub fn seek(&self, key: &DeviceKey) -> Sought<'_> {
        let (home, fingerprint) = self.locate(key);
        let first = self
            .buckets
            .get(home)
            .map_or(EMPTY, |bucket| bucket.0[0].load(Acquire));
        Sought {
            table: self,
            home,
            fingerprint,
            first,
        }
    }

    #[inline]
    fn count_at(&self, home: usize, fingerprint: u32) -> Counted {
        let mut reserved = false;
        let slots = self
            .buckets
            .get(home..)
            .unwrap_or_default()
            .iter()
            .flat_map(|it| &it.0);
        for slot in slots {
            let found = match slot.load(Acquire) {
                EMPTY => {
                    if !reserved && !self.count.reserve() {
                        return Counted::Full;
                    }
                    reserved = true;
                    match slot.compare_exchange(EMPTY, fingerprint, AcqRel, Acquire) {
                        Ok(_) => return Counted::Now,
                        Err(found) => found,
                    }
                }
                found => found,
            };
            if found == fingerprint {
                if reserved {
                    self.count.give_back();
                }
                return Counted::Before;
            }
        }

        // All buckets up to the end are full, which takes a hash that is not random.
        if reserved {
            self.count.give_back();
        }
        Counted::Full
    }

    /// The answer that [`Sought::count`] would give, without counting.
    pub fn look_up(&self, key: &DeviceKey) -> Counted {
        let (home, fingerprint) = self.locate(key);
        let slots = self.buckets[home..].iter().flat_map(|bucket| &bucket.0);
        let mut searched = slots
            .map(|slot| slot.load(Acquire))
            .take_while(|found| *found != EMPTY);
        if searched.any(|found| found == fingerprint) {
            Counted::Before
        } else if self.is_full() {
            Counted::Full
        } else {
            Counted::Now
        }
    }

    /// Whether the limit is reached.
    #[inline]
    pub fn is_full(&self) -> bool {
        let (count, limit) = self.count.load();
        count >= limit
    }

    #[inline]
    fn locate(&self, key: &DeviceKey) -> (usize, u32) {
        let hash = self.seed.hash(key);
        let home = (u128::from(hash) * u128::from(self.homes)) >> 64;
        (home as usize, (hash as u32).max(EMPTY + 1))
    }
}

/// Home buckets: 3 slots for 2 devices.
const fn homes(capacity: u64) -> u64 {
    (capacity * 3).div_ceil(2 * SLOTS as u64)
}

#[cfg(test)]
mod tests;
