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
pub const BUCKET_BYTES: usize = 64;
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
    fn new(limit: u64) -> Self {
        Self(AtomicU64::new(limit << 32))
    }

    /// The count, and the limit.
    fn load(&self) -> (u64, u64) {
        Self::parts(self.0.load(Relaxed))
    }

    const fn parts(word: u64) -> (u64, u64) {
        (word & COUNT, word >> 32)
    }

    fn set_limit(&self, limit: u64) {
        self.0
            .update(Relaxed, Relaxed, |word| word & COUNT | limit << 32);
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

    fn set_count(&mut self, count: u64) {
        let word = self.0.get_mut();
        *word = *word & !COUNT | count;
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

    /// A seed that was exported.
    pub const fn from_words(words: [u64; 2]) -> Self {
        Self(words)
    }

    /// The seed, for an export.
    pub const fn words(self) -> [u64; 2] {
        self.0
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
    sized_for: u64,
    carried: u64,
    count: CountAndLimit,
}

impl CapTable {
    /// An empty table. Touches all its memory, 6 bytes per device and 256 bytes: about a third of a
    /// second per GB.
    ///
    /// # Panics
    ///
    /// If the limit is 0 or over [`MAX_DEVICES`].
    pub fn new(limit: u64, seed: CapSeed) -> Self {
        assert!(
            (1..=MAX_DEVICES).contains(&limit),
            "a limit of 1 to {MAX_DEVICES} devices"
        );
        let homes = homes(limit);
        let buckets = (0..homes as usize + TAIL)
            .map(|_| Bucket::default())
            .collect();
        let count = CountAndLimit::new(limit);
        Self {
            buckets,
            homes,
            seed,
            sized_for: limit,
            carried: 0,
            count,
        }
    }

    /// The table with a number of devices that were counted before, in a table that was dropped.
    /// They are counted again if they come again.
    #[must_use]
    pub fn with_carried(mut self, devices: u64) -> Self {
        let own = self.count() - self.carried;
        self.carried = devices;
        self.count.set_count(devices + own);
        self
    }

    /// Bytes of a table with this limit.
    pub const fn bytes_for(limit: u64) -> u64 {
        (homes(limit) + TAIL as u64) * BUCKET_BYTES as u64
    }

    /// Most devices that are counted.
    pub fn limit(&self) -> u64 {
        self.count.load().1
    }

    /// Changes the limit. A limit under the count admits no new device. Returns false, and changes
    /// nothing, if the table has no room for so many: up to five sixths of its slots are used.
    pub fn set_limit(&self, limit: u64) -> bool {
        let has_room = self.has_room(limit);
        if has_room {
            self.count.set_limit(limit);
        }
        has_room
    }

    /// Whether [`Self::set_limit`] accepts a limit.
    pub const fn has_room(&self, limit: u64) -> bool {
        limit * 6 <= self.homes * SLOTS as u64 * 5
    }

    /// Sets the limit to 0; returns what was left of it. The count does not grow any more.
    pub fn close(&self) -> u64 {
        self.count.close()
    }

    /// The limit that the table was made for.
    pub const fn sized_for(&self) -> u64 {
        self.sized_for
    }

    /// Devices that were counted in a table that was dropped.
    pub const fn carried(&self) -> u64 {
        self.carried
    }

    /// Devices counted so far, including for a moment devices that another thread counts too.
    pub fn count(&self) -> u64 {
        self.count.load().0
    }

    /// Its seed.
    pub const fn seed(&self) -> CapSeed {
        self.seed
    }

    /// Number of its buckets.
    pub const fn buckets(&self) -> usize {
        self.buckets.len()
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

    /// The table's contents, bucket by bucket from the last to the first, while devices are
    /// counted.
    ///
    /// A device in a later slot is read before the slots that it had found taken. So whatever is
    /// read later, each device that was read is found again.
    pub fn export(&self) -> impl ExactSizeIterator<Item = [u8; BUCKET_BYTES]> {
        self.buckets.iter().rev().map(|bucket| {
            let mut bytes = [0; BUCKET_BYTES];
            let words = bytes.as_chunks_mut::<4>().0.iter_mut();
            for (word, slot) in words.zip(&bucket.0).rev() {
                *word = slot.load(Acquire).to_le_bytes();
            }
            bytes
        })
    }

    /// Fills an empty table with an export of one of the same size and seed. Buckets that are
    /// missing stay empty. Counts the devices anew.
    pub fn import(&mut self, export: impl Iterator<Item = [u8; BUCKET_BYTES]>) {
        let mut count = self.carried;
        for (bucket, bytes) in self.buckets.iter_mut().rev().zip(export) {
            for (slot, word) in bucket.0.iter_mut().zip(bytes.as_chunks().0) {
                let fingerprint = u32::from_le_bytes(*word);
                *slot.get_mut() = fingerprint;
                count += u64::from(fingerprint != EMPTY);
            }
        }
        self.count.set_count(count);
    }
}

/// Home buckets: 3 slots for 2 devices.
const fn homes(limit: u64) -> u64 {
    (limit * 3).div_ceil(2 * SLOTS as u64)
}

#[cfg(test)]
mod tests;
