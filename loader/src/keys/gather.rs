//! Gathering: partitions of keys, filled by all parsers and spilled when memory is full.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use rtad_core::device::DeviceKey;

use super::budget::Budget;
use super::dir::SpillDir;
use super::distinct::KeyChecks;
use super::error::SpillError;
use super::memory::{KEY_BYTES, KeyBytes, Pool, Segment, Slab};
use super::partition::PARTITIONS;
use super::record::record;
use super::sorted::Sorted;
use super::spill::Spill;
use super::spilled::Spilled;

/// Keys of all parsers, by partition.
pub struct Keys<'m, 'd> {
    pool: Pool<'m>,
    segment_bytes: usize,
    full: Vec<Mutex<Vec<Segment<'m>>>>,
    /// Number of segments per partition in `full`.
    counts: Vec<AtomicUsize>,
    spill: Spill<'d>,
}

impl<'m, 'd> Keys<'m, 'd> {
    pub fn new(slab: &'m mut Slab, budget: &Budget, dir: &'d SpillDir) -> Self {
        let segment_bytes = budget.segment();
        Self {
            pool: Pool::new(slab, segment_bytes / KEY_BYTES),
            segment_bytes,
            full: (0..PARTITIONS).map(|_| Mutex::default()).collect(),
            counts: (0..PARTITIONS).map(|_| AtomicUsize::default()).collect(),
            spill: Spill::new(dir),
        }
    }

    /// Takes a full segment and returns an empty one, with no capacity if spilling failed.
    fn exchange(&self, partition: usize, segment: Segment<'m>) -> Segment<'m> {
        self.add(partition, segment);
        loop {
            if let Some(segment) = self.pool.take() {
                return segment;
            }
            if self.spill.has_failed() {
                return Segment::default();
            }
            self.spill_fullest();
        }
    }

    fn add(&self, partition: usize, segment: Segment<'m>) {
        if !segment.keys().is_empty() {
            self.full[partition].lock().push(segment);
            self.counts[partition].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Spills the partition with most segments, to keep writes large for any key distribution.
    fn spill_fullest(&self) {
        let mut fullest = 0;
        let mut most_segments = 0;
        for (partition, count) in self.counts.iter().enumerate() {
            let segments = count.load(Ordering::Relaxed);
            if segments > most_segments {
                fullest = partition;
                most_segments = segments;
            }
        }

        if most_segments == 0 || !self.spill_partition(fullest) {
            // Other threads are writing and will return their segments.
            self.pool.wait();
        }
    }

    /// Returns false if the partition had nothing to spill.
    fn spill_partition(&self, partition: usize) -> bool {
        let segments = self.spill.write(partition, || {
            let taken = std::mem::take(&mut *self.full[partition].lock());
            self.counts[partition].fetch_sub(taken.len(), Ordering::Relaxed);
            taken
        });
        let has_any = !segments.is_empty();
        self.pool.give_back(segments);
        has_any
    }

    /// Returns the first spill failure, if any.
    pub fn check(&self) -> Result<(), SpillError> {
        self.spill.take_failure().map_or(Ok(()), Err)
    }

    /// Whether nothing was spilled and the keys can be sorted and built into chunks in memory.
    /// `chunk_bytes` gives the chunk size for the key counts of all partitions.
    pub fn fit(&self, budget: &Budget, chunk_bytes: impl Fn(&[u64]) -> u64) -> bool {
        let keys = self.partition_keys();
        let largest = keys.iter().max().copied().unwrap_or(0) * KEY_BYTES as u64;
        !self.spill.is_used() && budget.fits(self.held_bytes(), largest, chunk_bytes(&keys))
    }

    pub fn held_bytes(&self) -> u64 {
        (self.pool.touched() * self.segment_bytes) as u64
    }

    fn partition_keys(&self) -> Vec<u64> {
        let mut counts = Vec::with_capacity(PARTITIONS);
        for segments in &self.full {
            let mut keys = 0;
            for segment in &*segments.lock() {
                keys += segment.keys().len() as u64;
            }
            counts.push(keys);
        }
        counts
    }

    /// All keys, sorted in place and deduplicated.
    pub fn into_sorted(
        self,
        threads: usize,
        checks: KeyChecks<'_>,
        done: impl Fn(u64) + Sync,
    ) -> Sorted<'m> {
        let mut partitions = Vec::with_capacity(PARTITIONS);
        for segments in self.full {
            partitions.push(segments.into_inner());
        }
        Sorted::sort(partitions, threads, checks, done)
    }

    /// All keys, moved to disk. Their memory is free afterwards.
    pub fn into_spilled(self) -> Result<Spilled<'d>, SpillError> {
        for partition in 0..PARTITIONS {
            self.spill_partition(partition);
        }
        let dir = self.spill.dir;
        let files = self.spill.finish()?;
        Ok(Spilled::new(dir, files))
    }
}

/// One parser's open segments, filled without contention.
pub struct Filler<'k, 'm> {
    keys: &'k Keys<'m, 'k>,
    open: Vec<Segment<'m>>,
}

impl<'k, 'm> Filler<'k, 'm> {
    pub fn new(keys: &'k Keys<'m, 'k>) -> Self {
        Self {
            keys,
            open: (0..PARTITIONS).map(|_| Segment::default()).collect(),
        }
    }

    /// Adds keys, with the value of each or without any.
    pub fn take(&mut self, keys: &[DeviceKey], values: &[u8]) {
        if values.is_empty() {
            for key in keys {
                self.push(key, key.as_bytes());
            }
            return;
        }

        assert_eq!(keys.len(), values.len(), "each key has a value");
        for (key, value) in keys.iter().zip(values) {
            self.push(key, &record(key, *value));
        }
    }

    #[inline]
    fn push(&mut self, key: &DeviceKey, record: &KeyBytes) {
        let partition = usize::from(key.as_bytes()[0]);
        let segment = &mut self.open[partition];
        if !segment.push(record) {
            *segment = self.keys.exchange(partition, std::mem::take(segment));
            segment.push(record);
        }
    }

    /// Adds the open segments to the shared keys.
    pub fn flush(&mut self) {
        for (partition, segment) in self.open.iter_mut().enumerate() {
            self.keys.add(partition, std::mem::take(segment));
        }
    }

    /// Whether spilling has failed.
    pub fn is_closed(&self) -> bool {
        self.keys.spill.has_failed()
    }
}
