//! Keys in memory: each partition is sorted in a scratch buffer and copied back to its segments.

use std::ops::Range;

use parking_lot::Mutex;

use super::distinct::{Distinct, KeyChecks, sort_and_dedup};
use super::error::SpillError;
use super::memory::{KEY_BYTES, Segment};
use super::partition::{PARTITIONS, SHARDS_PER_PARTITION, starts};
use super::shard_keys::{ShardKeys, Worker, next};

/// Keys in memory, sorted and distinct.
pub struct Sorted<'m> {
    partitions: Vec<Partition<'m>>,
    distinct: Distinct,
}

struct Partition<'m> {
    segments: Vec<Segment<'m>>,
    /// Number of keys per shard.
    shards: [u32; SHARDS_PER_PARTITION],
}

impl<'m> Sorted<'m> {
    pub fn sort(
        partitions: Vec<Vec<Segment<'m>>>,
        threads: usize,
        checks: KeyChecks<'_>,
        done: impl Fn(u64) + Sync,
    ) -> Self {
        let mut sorted = Vec::with_capacity(partitions.len());
        for segments in partitions {
            sorted.push(Partition {
                segments,
                shards: [0; SHARDS_PER_PARTITION],
            });
        }

        let queue = Mutex::new(sorted.iter_mut().enumerate());
        let mut distinct = Distinct::default();
        std::thread::scope(|scope| {
            let mut workers = Vec::with_capacity(threads);
            for _ in 0..threads {
                workers.push(scope.spawn(|| sort_queued(&queue, checks, &done)));
            }
            for worker in workers {
                match worker.join() {
                    Ok(keys) => distinct = distinct.and(keys),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
        });

        Self {
            partitions: sorted,
            distinct,
        }
    }

    pub const fn distinct(&self) -> Distinct {
        self.distinct
    }

    /// Bytes of the largest partition.
    pub fn largest_partition_bytes(&self) -> u64 {
        let keys =
            |partition: &Partition<'_>| partition.shards.iter().map(|keys| u64::from(*keys)).sum();
        self.partitions.iter().map(keys).max().unwrap_or(0) * KEY_BYTES as u64
    }
}

/// Sorts partitions of a queue, with their indexes, until it is empty.
fn sort_queued<'p, 'm: 'p>(
    queue: &Mutex<impl Iterator<Item = (usize, &'p mut Partition<'m>)>>,
    checks: KeyChecks<'_>,
    done: &impl Fn(u64),
) -> Distinct {
    let mut scratch = Vec::new();
    let mut distinct = Distinct::default();
    while let Some((index, partition)) = next(queue) {
        let keys = partition.sort(index, &mut scratch, checks);
        done(keys.left);
        distinct = distinct.and(keys);
    }
    distinct
}

impl Partition<'_> {
    fn keys(&self) -> impl Iterator<Item = u128> {
        self.segments
            .iter()
            .flat_map(|segment| segment.keys())
            .map(|key| u128::from_be_bytes(*key))
    }

    /// Sorts, deduplicates and excludes unwanted keys.
    fn sort(&mut self, index: usize, scratch: &mut Vec<u128>, checks: KeyChecks<'_>) -> Distinct {
        let mut counts = [0; SHARDS_PER_PARTITION];
        for key in self.segments.iter().flat_map(|segment| segment.keys()) {
            counts[usize::from(key[1])] += 1;
        }

        // Group by shard first: each sort is then short and in cache.
        let starts = starts(counts.into_iter());
        let mut offsets = starts;
        if scratch.len() < starts[SHARDS_PER_PARTITION] {
            // Free the old buffer before allocating: both together exceed the budget.
            *scratch = Vec::new();
            *scratch = vec![0; starts[SHARDS_PER_PARTITION]];
        }
        for key in self.segments.iter().flat_map(|segment| segment.keys()) {
            let offset = &mut offsets[usize::from(key[1])];
            scratch[*offset] = u128::from_be_bytes(*key);
            *offset += 1;
        }

        let mut distinct = Distinct::default();
        for (shard, bounds) in starts.windows(2).enumerate() {
            let keys = sort_and_dedup(&mut scratch[bounds[0]..bounds[1]], index, checks);
            self.shards[shard] =
                u32::try_from(keys.left).expect("a shard holds fewer than 2³² keys");
            distinct = distinct.and(keys);
        }

        let shards = starts.iter().zip(self.shards);
        let mut sorted = shards
            .flat_map(|(start, keys)| &scratch[*start..*start + keys as usize])
            .map(|key| key.to_be_bytes());
        for segment in &mut self.segments {
            segment.refill(&mut sorted);
        }
        self.segments.retain(|segment| !segment.keys().is_empty());
        distinct
    }
}

impl ShardKeys for Sorted<'_> {
    fn shards(
        &self,
        shards: Range<usize>,
        worker: &mut Worker,
        each: &mut dyn FnMut(u16, &[u128]) -> bool,
    ) -> Result<Distinct, SpillError> {
        let mut left = 0;
        for index in shards.start / SHARDS_PER_PARTITION..PARTITIONS {
            let first = index * SHARDS_PER_PARTITION;
            if first >= shards.end {
                break;
            }

            let partition = &self.partitions[index];
            worker.unit.clear();
            worker
                .unit
                .reserve_exact(partition.shards.iter().map(|keys| *keys as usize).sum());
            worker.unit.extend(partition.keys());

            let starts = starts(partition.shards.iter().map(|keys| *keys as usize));
            for (shard, bounds) in (first..).zip(starts.windows(2)) {
                let keys = &worker.unit[bounds[0]..bounds[1]];
                if shards.contains(&shard) && !keys.is_empty() {
                    left += keys.len() as u64;
                    if !each(shard as u16, keys) {
                        return Ok(Distinct::default());
                    }
                }
            }
        }
        // `distinct()` has the other numbers.
        Ok(Distinct {
            found: left,
            left,
            ..Distinct::default()
        })
    }

    fn most_keys(&self, shard: usize) -> u64 {
        u64::from(
            self.partitions[shard / SHARDS_PER_PARTITION].shards[shard % SHARDS_PER_PARTITION],
        )
    }
}
