//! Spill errors: keys that could not be written to the spill directory, or read back.

use std::io;

/// Failure of a spill directory, or of a shard or chunk that does not fit memory.
#[derive(Debug, thiserror::Error)]
pub enum SpillError {
    #[error("spill directory {dir}: could not create a file in it; set TMPDIR to another")]
    Create { dir: String, source: io::Error },
    #[error("spill directory {dir}: could not write to it")]
    Write { dir: String, source: io::Error },
    #[error("spill directory {dir}: could not read keys back")]
    Read { dir: String, source: io::Error },
    #[error(
        "spill directory {dir}: the keys of these inputs need about {needed} bytes, \
         found {found} free; set TMPDIR to another, or raise --memory to spill less"
    )]
    NoRoom {
        dir: String,
        needed: u64,
        found: u64,
    },
    #[error("spill directory {dir}: the spilled keys have changed")]
    Changed { dir: String },
    #[error(
        "spill directory {dir}: no room left after {written} bytes of keys; \
         set TMPDIR to another, or raise --memory to spill less"
    )]
    Full {
        dir: String,
        written: u64,
        source: io::Error,
    },
    #[error(
        "the chunk that begins at shard {first_shard:04x} takes more than {most} bytes \
         and does not fit --memory; give several times as much"
    )]
    ChunkTooLarge { first_shard: u32, most: u64 },
    #[error(
        "shard {shard:04x} has more than {found} distinct keys and does not fit --memory; \
         it takes about {needed} MiB"
    )]
    ShardTooLarge {
        shard: u32,
        found: usize,
        needed: u64,
    },
}
