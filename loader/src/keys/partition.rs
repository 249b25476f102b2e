//! Partitions of the key space: 256 by a key's first byte, each of 256 shards by its second.

use rtad_core::device::SHARDS;

/// One per value of a key's first byte.
pub const PARTITIONS: usize = 256;
/// One per value of a key's second byte.
pub const SHARDS_PER_PARTITION: usize = SHARDS / PARTITIONS;

/// The index of a key's shard within its partition.
pub fn local_shard(key: u128) -> usize {
    (key >> 112) as usize % SHARDS_PER_PARTITION
}

/// Start offsets of consecutive shards with these key counts, and the end of the last.
pub fn starts(counts: impl Iterator<Item = usize>) -> [usize; SHARDS_PER_PARTITION + 1] {
    let mut starts = [0; SHARDS_PER_PARTITION + 1];
    let mut sum = 0;
    for (start, count) in starts[1..].iter_mut().zip(counts) {
        sum += count;
        *start = sum;
    }
    starts
}
