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
mod shard_keys;
mod sorted;
mod spill;
mod spilled;

pub(crate) use budget::{Budget, Builders, TooLittle};
pub(crate) use dir::SpillDir;
pub(crate) use distinct::{Distinct, KeyChecks, ShardFilters, device_key};
pub(crate) use error::SpillError;
pub(crate) use gather::{Filler, Keys};
pub(crate) use memory::{KEY_BYTES, Slab};
pub(crate) use partition::SHARDS_PER_PARTITION;
pub(crate) use shard_keys::{ShardKeys, Worker, next};
pub(crate) use sorted::Sorted;
pub(crate) use spilled::Spilled;

#[cfg(test)]
mod tests;
