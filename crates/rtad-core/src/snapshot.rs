//! The files of one audience at one generation, and what they become in memory.
//!
//! ```text
//! CURRENT ──names──▶ manifest ──names──▶ chunk, chunk, chunk …    each by size and SHA-256
//!    └─────names──▶ delta, delta …
//! ```
//!
//! A [`Manifest`] says what a generation consists of; a [`Chunk`] holds the filters of a run of
//! neighbouring shards; a [`Delta`] is exact additions and removals since; a [`Snapshot`] is all of
//! it, ready to be asked. The formats are described byte by byte in
//! `docs/reference/snapshot-format.md`.
//!
//! Everything read is untrusted: nothing is allocated by a size that has not been checked against a
//! digest-checked manifest and the caller's cap, and every fault has an error of its own. This
//! module does no IO: bytes come in, values go out.

mod builder;
mod chunk;
mod current;
mod delta;
mod json;
mod manifest;
mod mixed;
mod name;
mod overlay;
mod shard_index;

use std::sync::Arc;

pub use builder::{
    BuiltChunk, ChunkBuilder, ChunkRecord, FillStats, ManifestBuilder, chunk_runs, shards_of,
    shards_per_chunk,
};
pub use chunk::ChunkReader;
pub use chunk::ChunkVerifier;
pub use chunk::{Chunk, ChunkDecoder, ChunkEntry, ChunkError};
pub use current::{Current, State};
pub use delta::{
    BuiltDelta, Delta, DeltaEntry, DeltaError, MAX_DELTA_KEYS, MAX_DELTAS, SortedKeys,
};
pub use json::{MAX_CURRENT_BYTES, MAX_MANIFEST_BYTES, ManifestError};
pub use manifest::{BuildReport, FillRatio, Folded, Manifest};
pub use name::{AudienceName, Digest, NameError};
pub use overlay::Overlay;

use crate::device::DeviceKey;
use crate::filter::{FilterSpec, Place};
use shard_index::ShardIndex;

/// How many of many keys are looked for together: enough reads in flight to fill the processor's
/// miss queue, and few waits for the last.
const BATCH: usize = 64;
/// How many of one device's: most have no more.
const IDS: usize = 4;

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

/// An audience at one generation, in memory: answers in one look-up, from any number of threads.
#[derive(Debug)]
pub struct Snapshot {
    manifest: Manifest,
    chunks: Vec<Arc<Chunk>>,
    holders: ShardIndex,
    overlay: Overlay,
    /// Some shards are of another generation than the manifest's: see `snapshot/mixed.rs`.
    is_mixed: bool,
}

/// Where the answer to a key lies, and how it is read.
type Located<'a> = (&'a FilterSpec, Place<'a>);

impl Snapshot {
    /// Puts a snapshot together from its manifest and the chunks that the manifest names, in its
    /// order. Chunks may be shared with another snapshot. Costs a pass over 65,536 shards.
    ///
    /// # Panics
    ///
    /// If a chunk is not the one that the manifest names in its place: a mistake of the caller, not
    /// of a file.
    pub fn assemble(manifest: Manifest, chunks: Vec<Arc<Chunk>>) -> Self {
        assert_eq!(manifest.chunks().len(), chunks.len(), "one chunk per manifest entry");
        let mut holders = ShardIndex::empty();
        for (index, (entry, chunk)) in manifest.chunks().iter().zip(&chunks).enumerate() {
            assert!(chunk.is(manifest.filter(), entry), "chunks stand in the manifest's order");
            for (shard, _) in chunk.shards() {
                holders[usize::from(shard)] = Some(index);
            }
        }
        let holders = ShardIndex::new(&holders);
        Self { manifest, chunks, holders, overlay: Overlay::default(), is_mixed: false }
    }

    /// The same filters under other deltas. Costs little: the filters and their table are shared.
    #[must_use]
    pub fn with_overlay(&self, overlay: Overlay) -> Self {
        let (manifest, chunks) = (self.manifest.clone(), self.chunks.clone());
        Self { manifest, chunks, holders: self.holders.clone(), overlay, is_mixed: self.is_mixed }
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
        self.holder(shard).map_or(&[], |chunk| chunk.filter(shard))
    }

    /// How many distinct keys the filter of one shard was built of; deltas are not counted. Costs
    /// two reads of memory.
    pub fn shard_keys(&self, shard: u16) -> u32 {
        self.holder(shard).map_or(0, |chunk| chunk.keys(shard))
    }

    /// The chunk that a shard lies in.
    #[inline]
    fn holder(&self, shard: u16) -> Option<&Arc<Chunk>> {
        self.chunks.get(self.holders.of(shard))
    }

    /// Where the answer to a key lies.
    #[inline]
    fn locate(&self, key: &DeviceKey) -> Located<'_> {
        let shard = key.shard();
        match self.holder(shard) {
            Some(chunk) => (chunk.spec(), chunk.spec().place(chunk.filter(shard), key)),
            None => (self.manifest.filter(), Place::default()),
        }
    }

    /// Whether the device may be in the audience: never false of one that is, true of another with
    /// the audience's false-positive rate; exact of one that a delta speaks of. One read of where
    /// the shard lies and, for the default filter, one cache line; another for each delta.
    #[inline]
    pub fn contains(&self, key: &DeviceKey) -> bool {
        self.is_in(key, || self.locate(key))
    }

    #[inline]
    fn is_in<'a>(&self, key: &DeviceKey, located: impl FnOnce() -> Located<'a>) -> bool {
        if !self.overlay.is_empty()
            && let Some(is_member) = self.overlay.says(key)
        {
            return is_member;
        }
        let (spec, place) = located();
        spec.contains_at(place, key)
    }

    /// Whether any of one device's keys may be in the audience. The memory of all is waited for
    /// together.
    #[inline]
    pub fn contains_any(&self, keys: &[DeviceKey]) -> bool {
        if let [key] = keys {
            return self.contains(key);
        }
        keys.chunks(IDS).any(|keys| {
            let located = self.touched::<IDS>(keys);
            keys.iter().zip(located).any(|(key, located)| self.is_in(key, || located))
        })
    }

    /// Answers many keys, many times as fast each as one by one: the memory of some is waited for
    /// together.
    ///
    /// # Panics
    ///
    /// If `members` is shorter than `keys`.
    pub fn contains_many(&self, keys: &[DeviceKey], members: &mut [bool]) {
        for (keys, members) in keys.chunks(BATCH).zip(members[..keys.len()].chunks_mut(BATCH)) {
            let located = self.touched::<BATCH>(keys);
            for ((key, member), located) in keys.iter().zip(members).zip(located) {
                *member = self.is_in(key, || located);
            }
        }
    }

    /// Where the answers to at most `N` keys lie. Their first bytes have been read: all places are
    /// found first and then read with next to nothing in between, so that the processor, which
    /// looks ahead a few hundred instructions, waits for as many at once as it can. They are read
    /// and not prefetched, as that was measured to wait for each page walk.
    #[inline]
    fn touched<const N: usize>(&self, keys: &[DeviceKey]) -> [Located<'_>; N] {
        let mut located: [Located<'_>; N] = [(self.manifest.filter(), Place::default()); N];
        for (located, key) in located.iter_mut().zip(keys) {
            *located = self.locate(key);
        }
        let mut read = located.iter().fold(0, |read, (_, place)| read ^ u64::from(place.touch()));
        if !self.overlay.is_empty() {
            read ^= keys.iter().fold(0, |read, key| read ^ self.overlay.touch(key));
        }
        std::hint::black_box(read);
        located
    }

    /// Bytes of filters in memory, those shared with another snapshot included.
    pub fn filter_bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.filters().len() as u64).sum()
    }
}

#[cfg(test)]
mod tests;
