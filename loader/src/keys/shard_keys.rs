//! Shard keys: the interface through which gathered keys are read, from memory or from disk.

use std::ops::Range;

use parking_lot::Mutex;
use rtad_core::memory::Region;

use super::distinct::Distinct;
use super::error::SpillError;
use super::memory::{KEY_BYTES, block};

/// One thread's reusable buffers for reading keys.
#[derive(Debug)]
pub struct Worker {
    /// Keys as numbers: compared in one step, in the same order as byte by byte.
    pub unit: Vec<u128>,
    pub block: Region,
}

impl Worker {
    /// Reserves `unit_bytes` for keys. Keys in memory may need more later.
    pub fn new(unit_bytes: usize) -> Self {
        Self {
            unit: vec![0; unit_bytes / KEY_BYTES],
            block: block(),
        }
    }
}

/// Gives out keys shard by shard. Used by many threads.
pub trait ShardKeys: Sync {
    /// Calls `each` in shard order with every non-empty shard of `shards` and its keys or records,
    /// sorted by key and distinct, until it returns false. Returns the number of keys before and
    /// after exclusion.
    fn shards(
        &self,
        shards: Range<usize>,
        worker: &mut Worker,
        each: &mut dyn FnMut(u16, &[u128]) -> bool,
    ) -> Result<Distinct, SpillError>;

    /// Upper bound of a shard's number of keys.
    fn most_keys(&self, shard: usize) -> u64;
}

/// The next item of a queue shared by several threads.
pub fn next<T>(queue: &Mutex<impl Iterator<Item = T>>) -> Option<T> {
    queue.lock().next()
}
