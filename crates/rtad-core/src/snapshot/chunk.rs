//! Chunk: the filters of a run of adjacent shards in one file, named by its SHA-256.
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
//! Reasons for this order:
//!
//! * Fixed fields first: a reader knows all sizes before it allocates memory.
//! * Key counts together: all offsets are known before the first filter arrives.
//! * Body at a multiple of a cache line: the file can also be memory-mapped.
//!
//! Every field repeats a value of the manifest or of another field, so that a misplaced file is
//! rejected with the name of the field.

mod reader;

use std::io;
use std::ops::Range;

use serde::{Deserialize, Serialize};

pub use reader::{ChunkDecoder, ChunkReader, ChunkVerifier};

use super::Fault;
use super::name::Digest;
use crate::filter::{FilterKind, FilterSpec};
use crate::memory::Region;

const MAGIC: [u8; 8] = *b"RTADCHNK";
const VERSION: u32 = 1;
pub(super) const HEADER_BYTES: usize = 64;
const ALIGNMENT: u64 = 64;
/// A thousand times the size that a builder aims for; half the range of a filter's 32-bit offset.
const MAX_BODY_BYTES: u64 = 16 << 30;

/// Reason why a chunk file is rejected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChunkError {
    /// The file is too short or too long.
    #[error(
        "has {found} bytes{}, expected {expected}",
        if *found > *expected { " or more" } else { "" }
    )]
    Length {
        /// Bytes received.
        found: u64,
        /// Size in the manifest.
        expected: u64,
    },
    /// Not a chunk file.
    #[error("is not a chunk: it does not begin with RTADCHNK")]
    Magic,
    /// Written by a newer rtad.
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
        /// Its offset in the file.
        offset: usize,
        /// The value found.
        found: u64,
        /// The expected value.
        expected: u64,
    },
    /// The bytes are not the published ones.
    #[error(
        "digest is {found}, expected {expected}: \
         delete the file and publish again with `rtad-loader build`"
    )]
    Digest {
        /// Digest of the bytes read.
        found: Digest,
        /// Digest in the manifest.
        expected: Digest,
    },
    /// Larger than the limit of a chunk.
    #[error("has {bytes} bytes of filters, the limit is {limit}")]
    TooLarge {
        /// Stated size of the filters.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// Memory for the filters could not be allocated.
    #[error("cannot allocate {bytes} bytes for filters")]
    Memory {
        /// Size of the allocation.
        bytes: u64,
        /// The kernel's reason.
        #[source]
        source: io::Error,
    },
}

impl ChunkError {
    /// The kind of fault, for the metric.
    pub const fn fault(&self) -> Fault {
        match self {
            Self::Digest { .. } => Fault::Digest,
            Self::Length { .. } => Fault::Truncated,
            Self::TooLarge { .. } | Self::Memory { .. } => Fault::TooLarge,
            _ => Fault::Format,
        }
    }
}

/// A manifest's entry for one chunk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChunkEntry {
    /// SHA-256 of the file, which is also its name.
    pub digest: Digest,
    /// First shard.
    pub first_shard: u32,
    /// Number of shards; at least 1.
    pub shard_count: u32,
    /// Distinct keys in all shards; at least 1.
    pub keys: u64,
    /// Size of the file.
    pub size_bytes: u64,
}

impl ChunkEntry {
    /// Size of the filters alone, in the file and in memory.
    pub fn filter_bytes(&self) -> u64 {
        // Does not saturate for a checked manifest.
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

/// Writes a chunk file up to its body. `shard_keys` are the shards' key counts.
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

/// A verified chunk in memory, in large pages if the kernel grants them. Shared between
/// generations. The fields that a lookup reads are in one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Chunk {
    /// Offset of each shard's filter in `filters`, in words of 8 bytes, and the end of the last.
    starts: Box<[u32]>,
    filters: Region,
    spec: FilterSpec,
    first_shard: u32,
    entry: ChunkEntry,
    /// Distinct keys of each shard, for reports only.
    shard_keys: Box<[u32]>,
}

impl Chunk {
    /// SHA-256 of the file.
    pub const fn digest(&self) -> &Digest {
        &self.entry.digest
    }

    /// Whether it was verified against this entry and spec, so that another generation that has the
    /// same entry may share it. The digest alone is not enough: the rest of the entry could differ.
    pub fn matches(&self, spec: &FilterSpec, entry: &ChunkEntry) -> bool {
        self.spec == *spec && self.entry == *entry
    }

    /// The spec of the filters.
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
    /// If the shard is not in the chunk.
    #[inline]
    pub fn filter(&self, shard: u16) -> &[u8] {
        let index = (u32::from(shard) - self.first_shard) as usize;
        &self.filters[self.starts[index] as usize * 8..self.starts[index + 1] as usize * 8]
    }

    /// Number of distinct keys of a shard.
    ///
    /// # Panics
    ///
    /// If the shard is not in the chunk.
    pub fn keys(&self, shard: u16) -> u32 {
        self.shard_keys[(u32::from(shard) - self.first_shard) as usize]
    }

    /// Each shard with the byte range of its filter.
    pub fn shards(&self) -> impl Iterator<Item = (u16, Range<usize>)> {
        let first_shard =
            u16::try_from(self.first_shard).expect("a checked manifest's shards fit 16 bits");
        (first_shard..=u16::MAX)
            .zip(self.starts.windows(2).map(|ends| ends[0] as usize * 8..ends[1] as usize * 8))
    }
}
