//! Chunk readers: verification of a chunk file, with or without keeping its filters.
//!
//! The header and the key counts are checked against the manifest as soon as they arrive. Memory
//! for the filters is allocated after that. The digest is checked last.

use sha2::{Digest as _, Sha256};

use super::{
    BodyLayout, Chunk, ChunkEntry, ChunkError, HEADER_BYTES, MAGIC, MAX_BODY_BYTES, VERSION,
    count_arrays, counts_of, file_prefix_bytes, kind_number,
};
use crate::filter::{FilterSpec, ShardCounts};
use crate::memory::{Pages, Region};
use crate::snapshot::{Digest, u32_at, u64_at};

/// A consumer of a chunk file's bytes, in parts of any size.
pub trait ChunkReader: Send + 'static {
    /// The result for a complete and verified file.
    type Verified: Send + 'static;

    /// Consumes the file's next bytes.
    ///
    /// # Errors
    ///
    /// [`ChunkError`] as soon as the bytes contradict the manifest. The reader must not be used
    /// again.
    fn feed(&mut self, bytes: &[u8]) -> Result<(), ChunkError>;

    /// Ends the file.
    ///
    /// # Errors
    ///
    /// [`ChunkError`] if the file is too short, or its digest is not the manifest's.
    fn finish(self) -> Result<Self::Verified, ChunkError>;
}

/// Verifies a chunk file without keeping its filters.
#[derive(Debug)]
pub struct ChunkVerifier {
    spec: FilterSpec,
    entry: ChunkEntry,
    hasher: Sha256,
    received: u64,
    /// The part of the file before its body, and its expected size.
    prefix: Vec<u8>,
    prefix_bytes: usize,
    /// [`Chunk`]'s offsets of the filters, once the prefix is checked.
    layout: Option<BodyLayout>,
}

impl ChunkVerifier {
    /// A verifier of the chunk with this manifest entry.
    pub fn new(spec: &FilterSpec, entry: &ChunkEntry) -> Self {
        let prefix_bytes =
            usize::try_from(file_prefix_bytes(spec.kind(), entry.shard_count)).expect("under 1 MB");
        Self {
            spec: *spec,
            entry: entry.clone(),
            hasher: Sha256::new(),
            received: 0,
            prefix: Vec::with_capacity(prefix_bytes),
            prefix_bytes,
            layout: None,
        }
    }

    /// Consumes the file's next bytes; returns those that belong to the body.
    fn take<'b>(&mut self, bytes: &'b [u8]) -> Result<&'b [u8], ChunkError> {
        let received = self.received + bytes.len() as u64;
        let expected = self.entry.size_bytes;
        if received > expected {
            return Err(ChunkError::Length {
                found: received,
                expected,
            });
        }
        self.received = received;
        self.hasher.update(bytes);
        let missing = self.prefix_bytes - self.prefix.len();
        let (prefix, body) = bytes.split_at(missing.min(bytes.len()));
        self.prefix.extend_from_slice(prefix);
        if self.layout.is_none() && self.prefix.len() == self.prefix_bytes {
            self.layout = Some(self.check_prefix()?);
        }
        Ok(body)
    }

    /// The counts of the shards received so far.
    fn counts(&self) -> impl Iterator<Item = ShardCounts> {
        counts_of(self.spec.kind(), self.entry.shard_count, &self.prefix)
    }

    /// Checks length and digest; returns the offsets of the filters, too.
    fn verify(self) -> Result<(FilterSpec, ChunkEntry, BodyLayout), ChunkError> {
        let found = self.received;
        let expected = self.entry.size_bytes;
        let layout = match self.layout {
            Some(layout) if found == expected => layout,
            _ => return Err(ChunkError::Length { found, expected }),
        };
        let found = Digest::finish(self.hasher);
        let expected = self.entry.digest;
        if found != expected {
            return Err(ChunkError::Digest { found, expected });
        }
        Ok((self.spec, self.entry, layout))
    }

    fn check_prefix(&self) -> Result<BodyLayout, ChunkError> {
        let header = &self.prefix;
        if header[..8] != MAGIC {
            return Err(ChunkError::Magic);
        }
        if u32_at(header, 8) != VERSION {
            return Err(ChunkError::Version {
                found: u32_at(header, 8),
            });
        }
        let check = |field, offset, found: u64, expected: u64| {
            if found == expected {
                Ok(())
            } else {
                Err(ChunkError::Field {
                    field,
                    offset,
                    found,
                    expected,
                })
            }
        };

        let spec = &self.spec;
        let entry = &self.entry;
        let body_bytes = entry.filter_bytes(spec.kind());
        check(
            "filter kind",
            12,
            u32_at(header, 12).into(),
            kind_number(spec.kind()).into(),
        )?;

        check(
            "hashes",
            16,
            u32_at(header, 16).into(),
            spec.hashes().into(),
        )?;
        check(
            "millibits per key",
            20,
            u32_at(header, 20).into(),
            spec.millibits_per_key().into(),
        )?;

        check(
            "first shard",
            24,
            u32_at(header, 24).into(),
            entry.first_shard.into(),
        )?;

        check(
            "shard count",
            28,
            u32_at(header, 28).into(),
            entry.shard_count.into(),
        )?;

        check("keys", 32, u64_at(header, 32), entry.keys)?;
        check("body bytes", 40, u64_at(header, 40), body_bytes)?;
        check(
            "value bits",
            48,
            u32_at(header, 48).into(),
            spec.value_bits().into(),
        )?;

        check("reserved", 52, u32_at(header, 52).into(), 0)?;
        check("reserved", 56, u64_at(header, 56), 0)?;
        let shard_count = entry.shard_count as usize;
        let counts_end = HEADER_BYTES + 4 * count_arrays(spec.kind()) * shard_count;
        for (index, byte) in header[counts_end..].iter().enumerate() {
            check("padding", counts_end + index, u64::from(*byte), 0)?;
        }
        let keys = self.counts().map(|counts| u64::from(counts.keys)).sum();
        check("sum of the shards' keys", HEADER_BYTES, keys, entry.keys)?;
        for (index, counts) in self.counts().enumerate() {
            for (array, field, found, limit) in [
                (1, "diverted keys", counts.diverted, counts.max_diverted()),
                (2, "listed keys", counts.listed, counts.keys),
            ] {
                if found > limit {
                    let offset = HEADER_BYTES + 4 * (array * shard_count + index);
                    return Err(ChunkError::AboveLimit {
                        field,
                        offset,
                        found,
                        limit,
                    });
                }
            }
        }

        let (layout, end) = BodyLayout::new(spec, entry.first_shard, self.counts());
        check("sum of the shards' filters", HEADER_BYTES, end, body_bytes)?;
        if body_bytes > MAX_BODY_BYTES {
            return Err(ChunkError::TooLarge {
                bytes: body_bytes,
                limit: MAX_BODY_BYTES,
            });
        }

        Ok(layout)
    }
}

impl ChunkReader for ChunkVerifier {
    type Verified = ();

    fn feed(&mut self, bytes: &[u8]) -> Result<(), ChunkError> {
        self.take(bytes).map(drop)
    }

    fn finish(self) -> Result<(), ChunkError> {
        self.verify().map(drop)
    }
}

/// Verifies a chunk file and reads it into memory. Costs a copy and the SHA-256 of its bytes.
#[derive(Debug)]
pub struct ChunkDecoder {
    verifier: ChunkVerifier,
    body: Option<ChunkBody>,
}

#[derive(Debug)]
struct ChunkBody {
    filters: Region,
    filled: usize,
}

impl ChunkDecoder {
    /// A decoder of the chunk with this manifest entry.
    pub fn new(spec: &FilterSpec, entry: &ChunkEntry) -> Self {
        Self {
            verifier: ChunkVerifier::new(spec, entry),
            body: None,
        }
    }
}

impl ChunkReader for ChunkDecoder {
    type Verified = Chunk;

    fn feed(&mut self, bytes: &[u8]) -> Result<(), ChunkError> {
        let rest = self.verifier.take(bytes)?;
        if self.body.is_none() && self.verifier.layout.is_some() {
            let bytes = self.verifier.entry.filter_bytes(self.verifier.spec.kind());
            let filters = Region::zeroed(bytes as usize, Pages::Large);
            let filters = filters.map_err(|source| ChunkError::Memory { bytes, source })?;
            self.body = Some(ChunkBody { filters, filled: 0 });
        }
        if let Some(body) = &mut self.body {
            let end = body.filled + rest.len();
            body.filters[body.filled..end].copy_from_slice(rest);
            body.filled = end;
        }
        Ok(())
    }

    fn finish(self) -> Result<Chunk, ChunkError> {
        let found = self.verifier.received;
        let expected = self.verifier.entry.size_bytes;
        let counts = self.verifier.counts().collect();
        let (spec, entry, layout) = self.verifier.verify()?;
        let ChunkBody { filters, .. } = self.body.ok_or(ChunkError::Length { found, expected })?;
        Ok(Chunk {
            filters,
            spec,
            first_shard: entry.first_shard,
            layout,
            entry,
            counts,
        })
    }
}
