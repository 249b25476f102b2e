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
//! Fixed fields first, so that a reader knows the size of everything before it allocates anything; the key counts
//! together, so that all offsets are known before the first filter arrives; the body at a multiple of a cache line, so that
//! the file can also be mapped and read in place. Every field says a second time what the manifest or another field says:
//! a file put in the wrong place is refused by name, not by luck.

use std::io;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::Fault;
use super::name::Digest;
use crate::filter::{FilterKind, FilterSpec};
use crate::memory::{Pages, Region};

const MAGIC: [u8; 8] = *b"RTADCHNK";
const VERSION: u32 = 1;
pub(super) const HEADER_BYTES: usize = 64;
const ALIGNMENT: u64 = 64;
/// A thousand times what a builder cuts, and half of what a shard's place in memory can name.
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
    #[error("{field} at byte {offset} is {found}, expected {expected}: rebuild with `rtad-loader build`")]
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
pub(super) fn encode_prefix(spec: &FilterSpec, first_shard: u32, shard_keys: &[u32], file: &mut Vec<u8>) {
    let shard_count = u32::try_from(shard_keys.len()).expect("at most 65,536 shards");
    let keys: u64 = shard_keys.iter().map(|keys| u64::from(*keys)).sum();
    let body_bytes: u64 = shard_keys.iter().map(|keys| spec.filter_bytes(*keys)).sum();
    file.extend_from_slice(&MAGIC);
    for field in
        [VERSION, kind_number(spec.kind()), spec.hashes(), spec.millibits_per_key(), first_shard, shard_count]
    {
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

/// A chunk in memory, verified: its filters, in large pages where the kernel grants them. Shared between generations.
#[derive(Debug)]
pub struct Chunk {
    spec: FilterSpec,
    entry: ChunkEntry,
    /// Where each shard's filter ends in `filters`; it starts where the one before it ends.
    ends: Box<[usize]>,
    filters: Region,
}

impl Chunk {
    /// SHA-256 of the file it was read from.
    pub const fn digest(&self) -> &Digest {
        &self.entry.digest
    }

    /// Whether it was read, and so checked, as just this entry of a manifest with these filters: then a later generation
    /// that names it again can share it. An equal digest alone would let a manifest say other things of the same bytes.
    pub fn is(&self, spec: &FilterSpec, entry: &ChunkEntry) -> bool {
        self.spec == *spec && self.entry == *entry
    }

    /// The filters, back to back.
    #[inline]
    pub fn filters(&self) -> &[u8] {
        &self.filters
    }

    /// Each shard with the place of its filter.
    pub fn shards(&self) -> impl Iterator<Item = (u16, Range<usize>)> {
        let first_shard =
            u16::try_from(self.entry.first_shard).expect("a checked manifest's shards fit 16 bits");
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        (first_shard..=u16::MAX).zip(starts.zip(self.ends.iter().copied()).map(|(start, end)| start..end))
    }
}

/// Reads a chunk from pieces of any size, as they come from a disk or a network.
///
/// The header and the key counts are checked against the manifest as soon as they are there; only then is memory taken for
/// the filters. The digest is checked last, and no chunk exists before that.
#[derive(Debug)]
pub struct ChunkDecoder {
    spec: FilterSpec,
    entry: ChunkEntry,
    hasher: Sha256,
    received: u64,
    /// The file up to its body, and how long that is.
    prefix: Vec<u8>,
    prefix_bytes: usize,
    body: Option<Body>,
}

#[derive(Debug)]
struct Body {
    ends: Box<[usize]>,
    filters: Region,
    filled: usize,
}

impl ChunkDecoder {
    /// A decoder of the chunk that a manifest with these filters describes as `entry`.
    pub fn new(spec: &FilterSpec, entry: &ChunkEntry) -> Self {
        let prefix_bytes = usize::try_from(file_prefix_bytes(entry.shard_count)).expect("under 300 kB");
        Self {
            spec: *spec,
            entry: entry.clone(),
            hasher: Sha256::new(),
            received: 0,
            prefix: Vec::with_capacity(prefix_bytes),
            prefix_bytes,
            body: None,
        }
    }

    /// Takes the file's next bytes. Costs a copy and their SHA-256.
    ///
    /// # Errors
    ///
    /// [`ChunkError`] names the fault; the decoder is of no further use.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), ChunkError> {
        let (received, expected) = (self.received + bytes.len() as u64, self.entry.size_bytes);
        if received > expected {
            return Err(ChunkError::Length { found: received, expected });
        }
        self.received = received;
        self.hasher.update(bytes);
        let missing = self.prefix_bytes - self.prefix.len();
        let (prefix, rest) = bytes.split_at(missing.min(bytes.len()));
        self.prefix.extend_from_slice(prefix);
        if self.body.is_none() && self.prefix.len() == self.prefix_bytes {
            self.body = Some(self.check_prefix()?);
        }
        if let Some(body) = &mut self.body {
            let end = body.filled + rest.len();
            body.filters[body.filled..end].copy_from_slice(rest);
            body.filled = end;
        }
        Ok(())
    }

    /// The chunk, now that all of the file has been fed.
    ///
    /// # Errors
    ///
    /// [`ChunkError::Length`] if bytes are missing, [`ChunkError::Digest`] if they are not the right ones.
    pub fn finish(self) -> Result<Chunk, ChunkError> {
        let (found, expected) = (self.received, self.entry.size_bytes);
        let Some(body) = self.body.filter(|_| found == expected) else {
            return Err(ChunkError::Length { found, expected });
        };
        let (found, expected) = (Digest::finish(self.hasher), self.entry.digest);
        if found != expected {
            return Err(ChunkError::Digest { found, expected });
        }
        Ok(Chunk { spec: self.spec, entry: self.entry, ends: body.ends, filters: body.filters })
    }

    fn check_prefix(&self) -> Result<Body, ChunkError> {
        let header = &self.prefix;
        let u32_at =
            |offset: usize| u32::from_le_bytes(header[offset..offset + 4].try_into().expect("four bytes"));
        let u64_at =
            |offset: usize| u64::from_le_bytes(header[offset..offset + 8].try_into().expect("eight bytes"));
        if header[..8] != MAGIC {
            return Err(ChunkError::Magic);
        }
        if u32_at(8) != VERSION {
            return Err(ChunkError::Version { found: u32_at(8) });
        }
        let check = |field, offset, found: u64, expected: u64| {
            if found == expected { Ok(()) } else { Err(ChunkError::Field { field, offset, found, expected }) }
        };
        let (spec, entry) = (&self.spec, &self.entry);
        let body_bytes = entry.size_bytes - file_prefix_bytes(entry.shard_count);
        check("filter kind", 12, u32_at(12).into(), kind_number(spec.kind()).into())?;
        check("hashes", 16, u32_at(16).into(), spec.hashes().into())?;
        check("millibits per key", 20, u32_at(20).into(), spec.millibits_per_key().into())?;
        check("first shard", 24, u32_at(24).into(), entry.first_shard.into())?;
        check("shard count", 28, u32_at(28).into(), entry.shard_count.into())?;
        check("keys", 32, u64_at(32), entry.keys)?;
        check("body bytes", 40, u64_at(40), body_bytes)?;
        check("reserved", 48, u64_at(48), 0)?;
        check("reserved", 56, u64_at(56), 0)?;
        let counts_end = HEADER_BYTES + 4 * entry.shard_count as usize;
        let (counts, padding) = header[HEADER_BYTES..].split_at(counts_end - HEADER_BYTES);
        for (index, byte) in padding.iter().enumerate() {
            check("padding", counts_end + index, u64::from(*byte), 0)?;
        }
        let mut ends = Vec::with_capacity(entry.shard_count as usize);
        let (mut keys, mut end) = (0_u64, 0_u64);
        for count in counts.as_chunks::<4>().0 {
            let count = u32::from_le_bytes(*count);
            keys += u64::from(count);
            // 65,536 filters of 2³² keys at 1,000 bits each are under 2⁵⁵ bytes: the sum cannot overflow.
            end += spec.filter_bytes(count);
            ends.push(end as usize);
        }
        check("sum of the shards' keys", HEADER_BYTES, keys, entry.keys)?;
        check("sum of the shards' filters", HEADER_BYTES, end, body_bytes)?;
        if body_bytes > MAX_BODY_BYTES {
            return Err(ChunkError::TooLarge { bytes: body_bytes, limit: MAX_BODY_BYTES });
        }
        let filters = Region::zeroed(body_bytes as usize, Pages::Large)
            .map_err(|source| ChunkError::Memory { bytes: body_bytes, source })?;
        Ok(Body { ends: ends.into_boxed_slice(), filters, filled: 0 })
    }
}
