//! All keys of a build: gathered by their first byte, in memory as long as they fit and on disk from then on; then given out
//! shard by shard, sorted and each once.
//!
//! ```text
//! parsers ── open segments ──▶ 256 partitions ── when memory is full, the fullest ──▶ 256 spill files
//!                                   │ all fit                                            │ some did not: all go there
//!                              sorted.rs: sorted where they are                     spilled.rs: runs of shards, as many as fit
//! ```
//!
//! The order of the input, its duplicates, the number of threads, the memory and what was spilled leave no trace in what comes
//! out. Does *not* know about filters.

mod budget;
mod dir;
mod memory;
mod sorted;
mod spill;
mod spilled;

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use serde::{Deserialize, Serialize};

use rtad_core::device::{DeviceKey, SHARDS};
use rtad_core::snapshot::SortedKeys;

pub(crate) use budget::{Budget, TooLittle};
pub(crate) use dir::SpillDir;
pub(crate) use memory::KEY_BYTES;
pub(crate) use memory::Slab;
use memory::{Block, Pool, Segment};
pub(crate) use sorted::Sorted;
use spill::Spill;
pub(crate) use spilled::Spilled;

/// One per value of a key's first byte.
pub(crate) const PARTITIONS: usize = 256;
/// Told apart by a key's second byte.
pub(crate) const SHARDS_PER_PARTITION: usize = SHARDS / PARTITIONS;

/// Keys that cannot be put aside on disk, or be read back from there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum SpillError {
    #[error("spill directory {dir}: another build uses it; --spill-dir takes another")]
    InUse { dir: String },
    #[error("spill directory {dir}: could not make a file in it")]
    Create { dir: String, source: io::Error },
    #[error("spill directory {dir}: could not write to it")]
    Write { dir: String, source: io::Error },
    #[error("spill directory {dir}: could not read what was written")]
    Read { dir: String, source: io::Error },
    #[error("spill directory {dir}: keys were lost, as it could not be written to")]
    Lost { dir: String },
    #[error(
        "spill directory {dir}: has {found} bytes free, and the keys of these inputs take about {needed}; \
         --spill-dir takes another directory, and a larger --memory needs less or none"
    )]
    NoRoom { dir: String, needed: u64, found: u64 },
    #[error("spill directory {dir}: what was written has changed")]
    Changed { dir: String },
    #[error(
        "spill directory {dir}: no room left after {written} bytes of keys; \
         --spill-dir takes another directory, and a larger --memory needs less or none"
    )]
    Full { dir: String, written: u64, source: io::Error },
    #[error(
        "the chunk that begins at shard {first_shard:04x} takes more than {most} bytes, which do not fit --memory: \
         give several times as much"
    )]
    ChunkTooLarge { first_shard: u32, most: u64 },
    #[error(
        "shard {shard:04x} has more than {found} distinct keys, which do not fit --memory; it takes some {needed} MiB"
    )]
    ShardTooLarge { shard: u32, found: usize, needed: u64 },
}

/// Keys, each counted once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Distinct {
    pub(crate) found: u64,
    /// Those of them that were wanted.
    pub(crate) left: u64,
}

impl Distinct {
    pub(crate) const fn and(self, other: Self) -> Self {
        Self { found: self.found + other.found, left: self.left + other.left }
    }
}

/// Keys that are to be left out.
pub(crate) type Unwanted<'a> = Option<&'a SortedKeys>;

/// What one thread needs to give out keys. Its memory is used again.
#[derive(Debug)]
pub(crate) struct Worker {
    /// Keys as numbers, which compare in one step and in the same order as byte by byte.
    unit: Vec<u128>,
    block: Block,
}

/// A disk that is asked for less at a time is slower.
const BLOCK_PAGES: usize = 256;

impl Worker {
    /// With room for so many keys from the start; more may be taken by what is in memory.
    pub(crate) fn new(unit_bytes: usize) -> Self {
        Self { unit: vec![0; unit_bytes / KEY_BYTES], block: Block::of(BLOCK_PAGES) }
    }
}

/// Gives out keys shard by shard. Used by many threads.
pub(crate) trait ShardKeys: Sync {
    /// Calls `each` with every shard of `shards` that has keys, in order, and its keys, sorted and each once, as numbers. Stops
    /// early if it says so. Returns how many there were before the unwanted were left out, and after.
    fn shards(
        &self,
        shards: Range<usize>,
        worker: &mut Worker,
        each: &mut dyn FnMut(u16, &[u128]) -> bool,
    ) -> Result<Distinct, SpillError>;

    /// As many keys as these shards have at most.
    fn most_keys(&self, shard: usize) -> u64;
}

/// Keys as they come, of all parsers.
pub(crate) struct Keys<'m, 'd> {
    pool: Pool<'m>,
    segment_bytes: usize,
    full: Vec<Mutex<Vec<Segment<'m>>>>,
    /// How many segments each partition has in `full`.
    counts: Vec<AtomicUsize>,
    spill: Spill<'d>,
}

impl<'m, 'd> Keys<'m, 'd> {
    pub(crate) fn new(slab: &'m mut Slab, budget: &Budget, dir: &'d SpillDir) -> Self {
        let segment_bytes = budget.segment();
        Self {
            pool: Pool::new(slab, segment_bytes / KEY_BYTES),
            segment_bytes,
            full: (0..PARTITIONS).map(|_| Mutex::default()).collect(),
            counts: (0..PARTITIONS).map(|_| AtomicUsize::default()).collect(),
            spill: Spill::new(dir),
        }
    }

    fn partition(&self, partition: usize) -> MutexGuard<'_, Vec<Segment<'m>>> {
        self.full[partition].lock().expect("nothing panics under this lock")
    }

    /// Takes a segment that is full, and gives one that is empty; one without room if keys could not be spilled.
    fn exchange(&self, partition: usize, segment: Segment<'m>) -> Segment<'m> {
        self.hand_over(partition, segment);
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

    fn hand_over(&self, partition: usize, segment: Segment<'m>) {
        if !segment.keys().is_empty() {
            self.partition(partition).push(segment);
            self.counts[partition].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The fullest: so each write is large, whatever the keys are.
    fn spill_fullest(&self) {
        let count = |partition: &usize| self.counts[*partition].load(Ordering::Relaxed);
        let fullest = (0..PARTITIONS).max_by_key(count).expect("there are partitions");
        if count(&fullest) == 0 || !self.spill_partition(fullest) {
            // Other threads are writing, and will give their segments back.
            self.pool.wait();
        }
    }

    /// Whether there was anything to spill.
    fn spill_partition(&self, partition: usize) -> bool {
        let segments = self.spill.write(partition, || {
            let segments = std::mem::take(&mut *self.partition(partition));
            self.counts[partition].fetch_sub(segments.len(), Ordering::Relaxed);
            segments
        });
        let has_any = !segments.is_empty();
        self.pool.give_back(segments);
        has_any
    }

    /// Takes up what another build left on disk: so many bytes of each partition.
    pub(crate) fn resume(&self, lengths: &[u64]) -> Result<(), SpillError> {
        self.spill.resume(lengths)
    }

    /// Writes all that were handed over to disk, durably. Returns how many bytes of each partition are there.
    pub(crate) fn sync(&self) -> Result<Vec<u64>, SpillError> {
        for partition in 0..PARTITIONS {
            self.spill_partition(partition);
        }
        self.spill.sync()
    }

    pub(crate) fn are_spilled(&self) -> bool {
        self.spill.is_used()
    }

    /// Whether keys were lost because they could not be spilled.
    pub(crate) fn check(&self) -> Result<(), SpillError> {
        self.spill.take_failure().map_or(Ok(()), Err)
    }

    /// Whether nothing was spilled, and what is here can be sorted and built into chunks where it is. `chunk_bytes` says how
    /// large a chunk the keys of a run of partitions make.
    pub(crate) fn fit(&self, budget: &Budget, chunk_bytes: impl Fn(&[u64]) -> u64) -> bool {
        let keys = self.partition_keys();
        let largest = keys.iter().max().copied().unwrap_or(0) * KEY_BYTES as u64;
        !self.spill.is_used() && budget.fits(self.held_bytes(), largest, chunk_bytes(&keys))
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        (self.pool.touched() * self.segment_bytes) as u64
    }

    fn partition_keys(&self) -> Vec<u64> {
        let count = |partition| {
            self.partition(partition).iter().map(|segment| segment.keys().len() as u64).sum()
        };
        (0..PARTITIONS).map(count).collect()
    }

    /// All of them where they are, sorted and each once.
    pub(crate) fn into_sorted(
        self,
        threads: usize,
        unwanted: Unwanted<'_>,
        done: impl Fn(u64) + Sync,
    ) -> Sorted<'m> {
        let unlocked =
            |segments: Mutex<_>| segments.into_inner().expect("nothing panics under this lock");
        Sorted::sort(self.full.into_iter().map(unlocked).collect(), threads, unwanted, done)
    }

    /// All of them on disk; their memory is free then.
    pub(crate) fn into_spilled(self) -> Result<Spilled<'d>, SpillError> {
        for partition in 0..PARTITIONS {
            self.spill_partition(partition);
        }
        let dir = self.spill.dir;
        let files = self.spill.finish()?;
        Ok(Spilled::new(dir, files))
    }
}

/// One parser's way to the keys: its open segments, which no other thread waits for.
pub(crate) struct Filler<'k, 'm> {
    keys: &'k Keys<'m, 'k>,
    open: Mutex<Vec<Segment<'m>>>,
}

impl<'k, 'm> Filler<'k, 'm> {
    pub(crate) fn new(keys: &'k Keys<'m, 'k>) -> Self {
        Self { keys, open: Mutex::new((0..PARTITIONS).map(|_| Segment::default()).collect()) }
    }

    pub(crate) fn take(&self, keys: &[DeviceKey]) {
        let mut open = self.open();
        for key in keys {
            let key = key.as_bytes();
            let segment = &mut open[usize::from(key[0])];
            if !segment.push(key) {
                *segment = self.keys.exchange(usize::from(key[0]), std::mem::take(segment));
                segment.push(key);
            }
        }
    }

    /// Hands over what is in open segments.
    pub(crate) fn flush(&self) {
        for (partition, segment) in self.open().iter_mut().enumerate() {
            self.keys.hand_over(partition, std::mem::take(segment));
        }
    }

    /// Whether keys cannot be put aside any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.keys.spill.has_failed()
    }

    fn open(&self) -> MutexGuard<'_, Vec<Segment<'m>>> {
        self.open.lock().expect("nothing panics under this lock")
    }
}

/// The next of a queue that several threads take from.
pub(crate) fn next<T>(queue: &Mutex<impl Iterator<Item = T>>) -> Option<T> {
    queue.lock().expect("nothing panics under this lock").next()
}

/// Sorts keys in place and moves those that are wanted to the front, each once.
fn sort_and_dedup(keys: &mut [u128], unwanted: Unwanted<'_>) -> Distinct {
    keys.sort_unstable();
    let found = dedup(keys);
    let mut left = found;
    if let Some(unwanted) = unwanted {
        left = 0;
        for place in 0..found {
            let key = keys[place];
            if !unwanted.contains(&device_key(&key)) {
                keys[left] = key;
                left += 1;
            }
        }
    }
    Distinct { found: found as u64, left: left as u64 }
}

/// Of sorted keys: each once, at the front. Returns how many.
fn dedup(keys: &mut [u128]) -> usize {
    let Some(mut last) = keys.first().copied() else { return 0 };
    let mut len = 1;
    for place in 1..keys.len() {
        let key = keys[place];
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

/// Which shard of its partition a key is of.
fn local_shard(key: u128) -> usize {
    (key >> 112) as usize % SHARDS_PER_PARTITION
}

/// Where the keys of each shard begin, and the last end, if they lie one after the other.
fn starts(counts: impl Iterator<Item = usize>) -> [usize; SHARDS_PER_PARTITION + 1] {
    let mut starts = [0; SHARDS_PER_PARTITION + 1];
    let mut sum = 0;
    for (place, count) in starts[1..].iter_mut().zip(counts) {
        sum += count;
        *place = sum;
    }
    starts
}

#[cfg(test)]
mod tests;
