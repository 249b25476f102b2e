//! A chunk: the filters of a run of neighbouring shards in one file, named by its SHA-256.
//!
//! ```text
//! offset  size  field               little-endian
//!      0     8  magic               "RTADCHNK"
//!      8     4  version             1
//!     12     4  filter kind         1 classic, 2 block512
//!     16     4  hashes              probes per key
//!     20     4  millibits per key   sizes every shard
//!     24     4  first shard
//!     28     4  shard count         n
//!     32     8  keys                in all shards
//!     40     8  body bytes
//!     48    16  zero
//!     64   4·n  keys of each shard  u32
//!      …        zero, up to a multiple of 64
//!      …  body  the shards' filters, back to back
//! ```
//!
//! Fixed fields first, so that a reader knows the size of everything before it allocates anything;
//! the key counts together, so that all offsets are known before the first filter arrives; the body
//! at a multiple of a cache line, so that the file can also be mapped and read in place. Every
//! field says a second time what the manifest or another field says: a file put in the wrong place
//! is refused by name, not by luck.

mod reader;

use std::io;
use std::ops::Range;

use serde::{Deserialize, Serialize};

pub use reader::ChunkDecoder;
pub use reader::ChunkReader;
pub use reader::ChunkVerifier;

use super::Fault;
use super::name::Digest;
use crate::filter::{FilterKind, FilterSpec};
use crate::memory::Region;

const MAGIC: [u8; 8] = *b"RTADCHNK";
const VERSION: u32 = 1;
pub(super) const HEADER_BYTES: usize = 64;
const ALIGNMENT: u64 = 64;
/// A thousand times what a builder cuts, and half of what a filter's place in it can name.
const MAX_BODY_BYTES: u64 = 16 << 30;

/// A chunk file that is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChunkError {
    /// The file ends early or goes on too long.
    #[error("has {found} bytes{}, expected {expected}", if *found > *expected { " or more" } else { "" })]
    Length {
        /// Bytes that came.
        found: u64,
        /// Bytes that the manifest states.
        expected: u64,
    },
    /// Not a chunk at all.
    #[error("is not a chunk: it does not begin with RTADCHNK")]
    Magic,
    /// Written by a later rtad.
    #[error("version is {found}, this rtad reads version 1: upgrade rtad")]
    Version {
        /// The version of the file.
        found: u32,
    },
    /// A field contradicts the manifest or another field.
    #[error(
        "{field} at byte {offset} is {found}, expected {expected}: rebuild with `rtad-loader build`"
    )]
    Field {
        /// The field's name.
        field: &'static str,
        /// Where it stands.
        offset: usize,
        /// Its value.
        found: u64,
        /// The value that it must have.
        expected: u64,
    },
    /// The bytes are not those that were published.
    #[error(
        "digest is {found}, expected {expected}: delete the file and publish again with `rtad-loader build`"
    )]
    Digest {
        /// Digest of the bytes read.
        found: Digest,
        /// Digest in the manifest.
        expected: Digest,
    },
    /// More than a chunk may hold.
    #[error("has {bytes} bytes of filters, the limit is {limit}")]
    TooLarge {
        /// What it says it holds.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// No memory for the filters.
    #[error("no memory for {bytes} bytes of filters")]
    Memory {
        /// What was asked for.
        bytes: u64,
        /// The kernel's reason.
        #[source]
        source: io::Error,
    },
}

impl ChunkError {
    /// The kind of fault, for counting.
    pub const fn fault(&self) -> Fault {
        match self {
            Self::Digest { .. } => Fault::Digest,
            Self::Length { .. } => Fault::Truncated,
            Self::TooLarge { .. } | Self::Memory { .. } => Fault::TooLarge,
            _ => Fault::Format,
        }
    }
}

/// One chunk of a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChunkEntry {
    /// SHA-256 of the file, which is also its name.
    pub digest: Digest,
    /// First shard whose filter it holds.
    pub first_shard: u32,
    /// How many neighbouring shards it holds; at least 1.
    pub shard_count: u32,
    /// Distinct keys in them; at least 1.
    pub keys: u64,
    /// Size of the file.
    pub size_bytes: u64,
}

impl ChunkEntry {
    /// Size of the filters alone: what they take in memory.
    pub fn filter_bytes(&self) -> u64 {
        // A checked manifest's chunks are larger than what stands before their filters.
        self.size_bytes.saturating_sub(file_prefix_bytes(self.shard_count))
    }
}

/// Bytes before the body: the header, the key counts, and zeros up to a multiple of 64.
pub(super) const fn file_prefix_bytes(shard_count: u32) -> u64 {
    (HEADER_BYTES as u64 + 4 * shard_count as u64).next_multiple_of(ALIGNMENT)
}

const fn kind_number(kind: FilterKind) -> u32 {
    match kind {
        FilterKind::Classic => 1,
        FilterKind::Block512 => 2,
    }
}

/// Writes a chunk file up to its body. `shard_keys` are the key counts of its shards.
pub(super) fn encode_prefix(
    spec: &FilterSpec,
    first_shard: u32,
    shard_keys: &[u32],
    file: &mut Vec<u8>,
) {
    let shard_count = u32::try_from(shard_keys.len()).expect("at most 65,536 shards");
    let keys: u64 = shard_keys.iter().map(|keys| u64::from(*keys)).sum();
    let body_bytes: u64 = shard_keys.iter().map(|keys| spec.filter_bytes(*keys)).sum();
    file.extend_from_slice(&MAGIC);
    for field in [
        VERSION,
        kind_number(spec.kind()),
        spec.hashes(),
        spec.millibits_per_key(),
        first_shard,
        shard_count,
    ] {
        file.extend_from_slice(&field.to_le_bytes());
    }
    for field in [keys, body_bytes, 0, 0] {
        file.extend_from_slice(&field.to_le_bytes());
    }
    for keys in shard_keys {
        file.extend_from_slice(&keys.to_le_bytes());
    }
    file.resize(usize::try_from(file_prefix_bytes(shard_count)).expect("under 300 kB"), 0);
}

/// A chunk in memory, verified: its filters, in large pages where the kernel grants them. Shared
/// between generations. What a look-up needs of it lies in one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Chunk {
    /// Where each shard's filter starts in `filters`, in words of 8 bytes; it ends where the next
    /// one starts, for which there is one more.
    starts: Box<[u32]>,
    filters: Region,
    spec: FilterSpec,
    first_shard: u32,
    entry: ChunkEntry,
    /// Distinct keys of each shard: for people, no look-up needs them.
    shard_keys: Box<[u32]>,
}

impl Chunk {
    /// SHA-256 of the file it was read from.
    pub const fn digest(&self) -> &Digest {
        &self.entry.digest
    }

    /// Whether it was read, and so checked, as just this entry of a manifest with these filters:
    /// then a later generation that names it again can share it. An equal digest alone would let a
    /// manifest say other things of the same bytes.
    pub fn is(&self, spec: &FilterSpec, entry: &ChunkEntry) -> bool {
        self.spec == *spec && self.entry == *entry
    }

    /// How its filters are read.
    #[inline]
    pub const fn spec(&self) -> &FilterSpec {
        &self.spec
    }

    /// The filters, back to back.
    #[inline]
    pub fn filters(&self) -> &[u8] {
        &self.filters
    }

    /// The filter of a shard; empty if the shard has no keys.
    ///
    /// # Panics
    ///
    /// If the chunk does not hold the shard.
    #[inline]
    pub fn filter(&self, shard: u16) -> &[u8] {
        let index = (u32::from(shard) - self.first_shard) as usize;
        &self.filters[self.starts[index] as usize * 8..self.starts[index + 1] as usize * 8]
    }

    /// How many distinct keys a shard has.
    ///
    /// # Panics
    ///
    /// If the chunk does not hold the shard.
    pub fn keys(&self, shard: u16) -> u32 {
        self.shard_keys[(u32::from(shard) - self.first_shard) as usize]
    }

    /// Each shard with the place of its filter.
    pub fn shards(&self) -> impl Iterator<Item = (u16, Range<usize>)> {
        let first_shard =
            u16::try_from(self.first_shard).expect("a checked manifest's shards fit 16 bits");
        (first_shard..=u16::MAX)
            .zip(self.starts.windows(2).map(|ends| ends[0] as usize * 8..ends[1] as usize * 8))
    }
}
