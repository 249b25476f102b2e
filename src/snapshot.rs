//! The files of one audience at one generation, and what they become in memory.
//!
//! ```text
//! CURRENT ──names──▶ manifest ──names──▶ chunk, chunk, chunk …    each by size and SHA-256
//!    └─────names──▶ delta, delta …
//! ```
//!
//! A [`Manifest`] says what a generation consists of; a [`Chunk`] holds the filters of a run of neighbouring shards; a
//! [`Delta`] is exact additions and removals since; a [`Snapshot`] is all of it, ready to be asked. The formats are described byte by byte in `docs/snapshot-format.md`.
//!
//! Everything read is untrusted: nothing is allocated by a size that has not been checked against a digest-checked manifest
//! and the caller's cap, and every fault has an error of its own. This module does no IO: bytes come in, values go out.

mod builder;
mod chunk;
mod current;
mod delta;
mod json;
mod manifest;
mod mixed;
mod name;
mod overlay;

use std::sync::Arc;

pub use builder::{
    BuiltChunk, ChunkBuilder, ChunkRecord, FillStats, ManifestBuilder, chunk_runs, shards_of,
    shards_per_chunk,
};
pub(crate) use chunk::ChunkReader;
#[cfg(any(feature = "server", test))]
pub(crate) use chunk::ChunkVerifier;
pub use chunk::{Chunk, ChunkDecoder, ChunkEntry, ChunkError};
pub use current::{Current, State};
pub use delta::{BuiltDelta, Delta, DeltaEntry, DeltaError, MAX_DELTA_KEYS, MAX_DELTAS, SortedKeys};
pub use json::{MAX_CURRENT_BYTES, MAX_MANIFEST_BYTES, ManifestError};
pub use manifest::{BuildReport, FillRatio, Folded, Manifest};
pub use name::{AudienceName, Digest, NameError};
pub use overlay::Overlay;

use crate::device::{DeviceKey, SHARDS};
use crate::filter::FilterSpec;

/// How many keys are touched before the first is tested: enough reads in flight to fill the processor's miss queue.
const BATCH: usize = 16;

/// Why a file is refused, in the words of the metric `rtad_sync_total{result}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The bytes are not those that their digest names.
    Digest,
    /// The file is shorter or longer than stated.
    Truncated,
    /// A field is wrong, unknown or contradicts another.
    Format,
    /// More than the reader is allowed to hold.
    TooLarge,
}

impl Fault {
    /// The label's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Digest => "digest",
            Self::Truncated => "truncated",
            Self::Format => "format",
            Self::TooLarge => "too_large",
        }
    }
}

/// Where a shard's filter lies. Twelve bytes, so that all 65,536 stay in the second-level cache.
#[derive(Debug, Clone, Copy, Default)]
struct Shard {
    start_words: u32,
    len_words: u32,
    chunk: u16,
}

/// An audience at one generation, in memory: answers in one look-up, from any number of threads.
#[derive(Debug)]
pub struct Snapshot {
    manifest: Manifest,
    chunks: Vec<Arc<Chunk>>,
    shards: Arc<[Shard]>,
    overlay: Overlay,
    /// Some shards are of another generation than the manifest's: see `snapshot/mixed.rs`.
    is_mixed: bool,
}

/// How a mixed snapshot's filters are read, a few seconds a day: out of the way of all others.
#[cold]
#[inline(never)]
const fn spec_of(chunk: &Chunk) -> &FilterSpec {
    chunk.spec()
}

/// Has a chunk's shards lie in it, as the one at `index`.
fn place(shards: &mut [Shard], index: usize, chunk: &Chunk) {
    let index = u16::try_from(index).expect("there are at most 65,536 chunks");
    for (shard, range) in chunk.shards() {
        let words = |bytes: usize| u32::try_from(bytes / 8).expect("the reader caps a chunk at 16 GiB");
        shards[usize::from(shard)] =
            Shard { start_words: words(range.start), len_words: words(range.len()), chunk: index };
    }
}

impl Snapshot {
    /// Puts a snapshot together from its manifest and the chunks that the manifest names, in its order. Chunks may be shared
    /// with another snapshot. Costs a pass over 65,536 shards and a 0.8 MB table.
    ///
    /// # Panics
    ///
    /// If a chunk is not the one that the manifest names in its place: a mistake of the caller, not of a file.
    pub fn assemble(manifest: Manifest, chunks: Vec<Arc<Chunk>>) -> Self {
        assert_eq!(manifest.chunks().len(), chunks.len(), "one chunk per manifest entry");
        let mut shards = vec![Shard::default(); SHARDS];
        for (index, (entry, chunk)) in manifest.chunks().iter().zip(&chunks).enumerate() {
            assert!(chunk.is(manifest.filter(), entry), "chunks stand in the manifest's order");
            place(&mut shards, index, chunk);
        }
        Self { manifest, chunks, shards: shards.into(), overlay: Overlay::default(), is_mixed: false }
    }

    /// The same filters under other deltas. Costs little: the filters and their table are shared.
    #[must_use]
    pub fn with_overlay(&self, overlay: Overlay) -> Self {
        let (manifest, chunks) = (self.manifest.clone(), self.chunks.clone());
        Self { manifest, chunks, shards: Arc::clone(&self.shards), overlay, is_mixed: self.is_mixed }
    }

    /// What goes before the filters.
    pub const fn overlay(&self) -> &Overlay {
        &self.overlay
    }

    /// What the snapshot consists of.
    pub const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The chunks that hold its shards, in shard order: the manifest's, unless it is mixed.
    pub fn chunks(&self) -> &[Arc<Chunk>] {
        &self.chunks
    }

    /// The filter of one shard; empty if the shard has no keys.
    pub fn filter(&self, shard: u16) -> &[u8] {
        self.lookup(shard).1
    }

    /// How the filter of one shard is read, and the filter.
    #[inline]
    fn lookup(&self, shard: u16) -> (&FilterSpec, &[u8]) {
        let Shard { start_words, len_words, chunk } = self.shards[usize::from(shard)];
        let Some(chunk) = self.chunks.get(usize::from(chunk)) else { return (self.manifest.filter(), &[]) };
        let start = start_words as usize * 8;
        let filter = &chunk.filters()[start..start + len_words as usize * 8];
        // The manifest's is the same for all of a batch, and so stays in registers.
        let spec = if self.is_mixed { spec_of(chunk) } else { self.manifest.filter() };
        (spec, filter)
    }

    /// Whether the device may be in the audience: never false of one that is, true of another with the audience's
    /// false-positive rate; exact of one that a delta speaks of. One read of the shard table and, for the default filter, one
    /// cache line; another for each delta.
    #[inline]
    pub fn contains(&self, key: &DeviceKey) -> bool {
        if !self.overlay.is_empty()
            && let Some(is_member) = self.overlay.says(key)
        {
            return is_member;
        }
        let (spec, filter) = self.lookup(key.shard());
        spec.contains(filter, key)
    }

    /// Whether any of one device's keys may be in the audience. The first bytes of all are read together.
    #[inline]
    pub fn contains_any(&self, keys: &[DeviceKey]) -> bool {
        if keys.len() > 1 {
            self.touch(keys);
        }
        keys.iter().any(|key| self.contains(key))
    }

    #[inline]
    fn touch(&self, keys: &[DeviceKey]) {
        let first = |key: &DeviceKey| {
            let (spec, filter) = self.lookup(key.shard());
            u64::from(spec.touch(filter, key)) ^ self.overlay.touch(key)
        };
        std::hint::black_box(keys.iter().fold(0, |sum, key| sum ^ first(key)));
    }

    /// Answers many keys, several times as fast each as one by one: the memory of a batch is waited for together.
    ///
    /// # Panics
    ///
    /// If `members` is shorter than `keys`.
    pub fn contains_many(&self, keys: &[DeviceKey], members: &mut [bool]) {
        for (keys, members) in keys.chunks(BATCH).zip(members[..keys.len()].chunks_mut(BATCH)) {
            self.touch(keys);
            for (key, member) in keys.iter().zip(members) {
                *member = self.contains(key);
            }
        }
    }

    /// Bytes of filters in memory, those shared with another snapshot included.
    pub fn filter_bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.filters().len() as u64).sum()
    }
}

#[cfg(test)]
mod tests;
