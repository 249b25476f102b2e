//! Key gathering: all keys of a build, by first byte, in memory until it is full, then on disk.
//! Afterwards each shard's keys are given out sorted and distinct.
//!
//! ```text
//! parsers ── open segments ──▶ 256 partitions ── memory full ──▶ 256 spill files
//!                                   │ all fit                        │ some spilled: all to disk
//!                              sorted.rs                        spilled.rs
//! ```
//!
//! The output depends only on the set of keys: not on input order, duplicates, threads, memory or
//! spilling.

mod budget;
mod dir;
mod distinct;
mod error;
mod gather;
mod memory;
mod partition;
mod record;
mod shard_keys;
mod sorted;
mod spill;
mod spilled;

use rtad_core::device::DeviceKey;

pub use budget::{Budget, Builders, TooLittle};
pub use dir::SpillDir;
pub use distinct::{Distinct, KeyChecks, ShardFilters, device_key};
pub use error::SpillError;
pub use gather::{Filler, Keys};
pub use memory::{KEY_BYTES, Slab};
pub use partition::SHARDS_PER_PARTITION;
pub use record::{appended_values, member};
pub use shard_keys::{ShardKeys, Worker, next};
pub use sorted::Sorted;
pub use spilled::Spilled;

/// The key as an id of kind md5.
pub fn hex(key: &DeviceKey) -> [u8; 32] {
    let mut digits = [0; 32];
    for (pair, byte) in digits.as_chunks_mut::<2>().0.iter_mut().zip(key.as_bytes()) {
        *pair = [byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)]);
    }
    digits
}

#[cfg(test)]
mod tests;
