//! All keys of a build, in memory: scattered by first byte as they come, sorted and made distinct at the end.
//!
//! Kept in segments of a fixed size that are never copied to grow, so 16 bytes per key is all there is,
//! besides one half-filled segment per partition and thread (about 4 MiB a thread) and, while sorting, one
//! partition per thread. The order of the input, its duplicates and the number of threads leave no trace in
//! what comes out.
//!
//! Does *not* know about filters, nor about disks: what does not fit memory does not fit this module.

use std::sync::Mutex;

use rtad::device::DeviceKey;

use crate::input::KeySink;

/// One per value of a key's first byte: 256 neighbouring shards.
pub(crate) const PARTITIONS: usize = 256;
const SEGMENT_KEYS: usize = 2048;

/// Keys, each counted once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Distinct {
    pub(crate) found: u64,
    /// Those of them that were wanted.
    pub(crate) left: u64,
}

impl Distinct {
    const fn and(self, other: Self) -> Self {
        Self { found: self.found + other.found, left: self.left + other.left }
    }
}

/// The keys that begin with one byte.
#[derive(Debug, Default)]
pub(crate) struct Partition {
    segments: Vec<Vec<DeviceKey>>,
}

impl Partition {
    #[inline]
    fn push(&mut self, key: DeviceKey) {
        match self.segments.last_mut() {
            Some(segment) if segment.len() < SEGMENT_KEYS => segment.push(key),
            _ => {
                let mut segment = Vec::with_capacity(SEGMENT_KEYS);
                segment.push(key);
                self.segments.push(segment);
            }
        }
    }

    /// Sorts and removes what came twice, and what is not wanted, by way of `scratch`. Returns how many there were, each once, and
    /// how many are left.
    fn sort_and_dedup(
        &mut self,
        scratch: &mut Vec<DeviceKey>,
        is_wanted: impl Fn(&DeviceKey) -> bool,
    ) -> Distinct {
        scratch.clear();
        scratch.reserve_exact(self.len());
        for segment in &self.segments {
            scratch.extend_from_slice(segment);
        }
        // As numbers, keys compare in one step and in the same order as byte by byte.
        scratch.sort_unstable_by_key(|key| u128::from_be_bytes(*key.as_bytes()));
        scratch.dedup();
        let found = scratch.len() as u64;
        scratch.retain(is_wanted);
        // Back into the same memory: freeing it in pieces and taking it in one would need both at once.
        let mut sorted = scratch.chunks(SEGMENT_KEYS);
        self.segments.retain_mut(|segment| {
            segment.clear();
            sorted.next().inspect(|keys| segment.extend_from_slice(keys)).is_some()
        });
        Distinct { found, left: scratch.len() as u64 }
    }

    /// How many keys it holds.
    pub(crate) fn len(&self) -> usize {
        self.segments.iter().map(Vec::len).sum()
    }

    /// Moves the keys to the end of `keys`, in their order.
    pub(crate) fn drain_into(&mut self, keys: &mut Vec<DeviceKey>) {
        for segment in self.segments.drain(..) {
            keys.extend_from_slice(&segment);
        }
    }
}

/// One parser's keys. Filled without a lock; merged at the end.
#[derive(Debug)]
pub(crate) struct Partitions {
    partitions: Vec<Partition>,
}

impl Default for Partitions {
    fn default() -> Self {
        Self { partitions: (0..PARTITIONS).map(|_| Partition::default()).collect() }
    }
}

impl KeySink for Partitions {
    fn take(&mut self, keys: &[DeviceKey]) {
        for key in keys {
            self.partitions[usize::from(key.as_bytes()[0])].push(*key);
        }
    }
}

impl Partitions {
    /// All parsers' keys together. Moves segments, not keys.
    pub(crate) fn merge(all: Vec<Self>) -> Self {
        let mut merged = Self::default();
        for other in all {
            for (into, mut from) in merged.partitions.iter_mut().zip(other.partitions) {
                into.segments.append(&mut from.segments);
            }
        }
        merged
    }

    /// Sorts each partition and removes what came twice, and what is not wanted.
    pub(crate) fn sort_and_dedup(
        &mut self,
        threads: usize,
        is_wanted: impl Fn(&DeviceKey) -> bool + Sync,
        done: impl Fn(u64) + Sync,
    ) -> Distinct {
        let queue = Mutex::new(self.partitions.iter_mut());
        let work = || {
            let (mut scratch, mut distinct) = (Vec::new(), Distinct::default());
            while let Some(partition) = next(&queue) {
                let keys = partition.sort_and_dedup(&mut scratch, &is_wanted);
                done(keys.left);
                distinct = distinct.and(keys);
            }
            distinct
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, Distinct>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).fold(Distinct::default(), Distinct::and)
        })
    }

    /// Runs of `count` neighbouring partitions, which divides their number.
    pub(crate) fn groups(&mut self, count: usize) -> impl Iterator<Item = &mut [Partition]> + Send {
        self.partitions.chunks_mut(count)
    }
}

/// The next of a queue that several threads take from.
pub(crate) fn next<T>(queue: &Mutex<impl Iterator<Item = T>>) -> Option<T> {
    queue.lock().expect("nothing panics under this lock").next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u64) -> DeviceKey {
        DeviceKey::of_canonical(&n.to_le_bytes())
    }

    #[test]
    fn keys_come_out_sorted_and_once() {
        let mut parsers = [Partitions::default(), Partitions::default(), Partitions::default()];
        let keys: Vec<_> = (0..100_000).map(|n| key(n % 70_000)).collect();
        for (n, keys) in keys.chunks(999).enumerate() {
            parsers[n % 3].take(keys);
        }
        // One partition far beyond a segment, with the same key in all parsers.
        for parser in &mut parsers {
            parser.take(&[key(7); 5000]);
        }
        let mut merged = Partitions::merge(parsers.into());
        let unwanted = key(11);
        let distinct = merged.sort_and_dedup(3, |key| *key != unwanted, |_| {});
        assert_eq!(distinct, Distinct { found: 70_000, left: 69_999 });
        let mut found = Vec::new();
        for group in merged.groups(16) {
            group.iter_mut().for_each(|partition| partition.drain_into(&mut found));
        }
        let mut expected = keys;
        expected.sort();
        expected.dedup();
        expected.retain(|key| *key != unwanted);
        assert!(found == expected);
    }
}
