//! Snapshot: the files of one audience at one generation, and their form in memory.
//!
//! ```text
//! record ──names──▶ manifest ──names──▶ chunk, chunk, chunk …    each by size and SHA-256
//!    └────names──▶ delta, delta …
//! ```
//!
//! * [`Manifest`]: the chunks of a generation and the filters' parameters.
//! * [`Chunk`]: the filters of a run of adjacent shards.
//! * [`Delta`]: exact additions and removals after the generation was built.
//! * [`Snapshot`]: all of these in memory, for lookups.
//!
//! `docs/reference/snapshot-format.md` describes the formats byte by byte.
//!
//! All input is untrusted. A size is checked against a digest-checked manifest and the caller's
//! limit before memory is allocated for it. Every fault has its own error. No IO in this module.

mod builder;
mod chunk;
mod current;
mod delta;
mod filter_stats;
mod json;
mod lineage;
mod manifest;
mod mixed;
mod name;
mod overlay;
mod report;
mod shard_index;

use std::sync::Arc;

pub use builder::{
    BuiltChunk, CHUNK_BYTES, ChunkBuilder, ChunkRecord, MAX_SHARDS_PER_CHUNK, ManifestBuilder,
    chunk_runs, shards_of, shards_per_chunk,
};
pub use chunk::{
    Chunk, ChunkDecoder, ChunkEntry, ChunkError, ChunkReader, ChunkShard, ChunkVerifier,
};
pub use current::{
    Current, GenerationEntry, MAX_KEPT_GENERATIONS, StagePlace, Staged, State, Validity,
};
pub use delta::{
    BuiltDelta, Delta, DeltaEntry, DeltaError, MAX_DELTA_KEYS, MAX_DELTAS, SortedKeys,
};
pub use filter_stats::{FilterCheck, FilterStats};
pub use json::{MAX_MANIFEST_BYTES, MAX_RECORD_BYTES, ManifestError};
pub use lineage::{BuildReport, InputRecord, Lineage};
pub use manifest::{FillRatio, Folded, GenerationFacts, Manifest};
pub use name::{AudienceName, Digest, NameError};
pub use overlay::{Newer, Overlay};
pub use report::{DeltaReport, GenerationReport};

use crate::device::DeviceKey;
use crate::filter::{FilterKind, ProbeTarget, ShardFilter};
use shard_index::ShardIndex;

/// Keys looked up together in a large batch: enough reads in flight to fill the processor's miss
/// queue.
const BATCH_KEYS: usize = 64;
/// Keys of one device looked up together: most devices have no more ids.
const DEVICE_KEYS: usize = 4;

/// Reason why a file is rejected: a value of the label `result` of `rtad_sync_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The bytes do not match the digest.
    Digest,
    /// The file is shorter or longer than stated.
    Truncated,
    /// A field is invalid, unknown or contradicts another.
    Format,
    /// Larger than the reader's limit.
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

/// An audience at one generation, in memory. May be queried from any number of threads.
#[derive(Debug)]
pub struct Snapshot {
    manifest: Manifest,
    chunks: Vec<Arc<Chunk>>,
    shard_index: ShardIndex,
    overlay: Overlay,
    /// Some shards belong to another generation than the manifest: see `snapshot/mixed.rs`.
    is_mixed: bool,
}

/// The chunk of a key's shard, if any, and the part of the filter that a lookup reads.
type Located<'a> = (Option<&'a Chunk>, ProbeTarget<'a>);

impl Snapshot {
    /// Assembles a snapshot from a manifest and its chunks, in the manifest's order. Chunks may be
    /// shared with another snapshot. Costs a pass over 65,536 shards.
    ///
    /// # Panics
    ///
    /// If the chunks do not match the manifest's entries: an error of the caller, not of a file.
    pub fn assemble(manifest: Manifest, chunks: Vec<Arc<Chunk>>) -> Self {
        assert_eq!(
            manifest.chunks().len(),
            chunks.len(),
            "one chunk per manifest entry"
        );

        let mut chunk_of_shard = ShardIndex::empty();
        for (index, (entry, chunk)) in manifest.chunks().iter().zip(&chunks).enumerate() {
            assert!(
                chunk.matches(manifest.filter(), entry),
                "chunks are in the manifest's order"
            );
            for shard in chunk.shards() {
                chunk_of_shard[usize::from(shard)] = Some(index);
            }
        }

        let shard_index = ShardIndex::new(&chunk_of_shard);
        Self {
            manifest,
            chunks,
            shard_index,
            overlay: Overlay::default(),
            is_mixed: false,
        }
    }

    /// The same filters with other deltas. Cheap: filters and shard index are shared.
    #[must_use]
    pub fn with_overlay(&self, overlay: Overlay) -> Self {
        Self {
            manifest: self.manifest.clone(),
            chunks: self.chunks.clone(),
            shard_index: self.shard_index.clone(),
            overlay,
            is_mixed: self.is_mixed,
        }
    }

    /// The deltas, which take precedence over the filters.
    pub const fn overlay(&self) -> &Overlay {
        &self.overlay
    }

    /// Whether its generation is served by a share of the pods only.
    pub fn is_staged(&self) -> bool {
        self.overlay.staged_generation() == Some(self.manifest.generation())
    }

    /// The manifest.
    pub const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The chunks in shard order: those of the manifest, unless the snapshot is mixed.
    pub fn chunks(&self) -> &[Arc<Chunk>] {
        &self.chunks
    }

    /// The filter of one shard; empty if the shard has no keys.
    pub fn filter(&self, shard: u16) -> ShardFilter<'_> {
        self.chunk_of(shard)
            .map_or_else(ShardFilter::default, |chunk| chunk.filter(shard))
    }

    /// Number of distinct keys that a shard's filter was built from, without deltas. Costs two
    /// memory reads.
    pub fn shard_keys(&self, shard: u16) -> u32 {
        self.chunk_of(shard)
            .map_or(0, |chunk| chunk.shard(shard).keys)
    }

    #[inline]
    fn chunk_of(&self, shard: u16) -> Option<&Arc<Chunk>> {
        self.chunks.get(self.shard_index.chunk_of(shard))
    }

    /// Always inline: a call returns the location by its words, and a batch then copies it by pairs
    /// of words, each of which waits until both are written.
    #[expect(clippy::inline_always, reason = "measured: see above")]
    #[inline(always)]
    fn locate(&self, key: &DeviceKey) -> Located<'_> {
        match self.chunk_of(key.shard()) {
            Some(chunk) => (Some(chunk), chunk.probe_target(key)),
            None => (None, ProbeTarget::default()),
        }
    }

    /// Whether the key may be in the audience: always true for a member, true for a non-member with
    /// the audience's false-positive rate, exact for a key that a delta names. Reads the shard
    /// index, one cache line of the default filter, two of a ribbon filter, and one per delta.
    #[inline]
    pub fn contains(&self, key: &DeviceKey) -> bool {
        self.overlaid(key)
            .unwrap_or_else(|| is_in_filter(&self.locate(key), key))
    }

    #[inline]
    fn contains_located(&self, key: &DeviceKey, located: &Located<'_>) -> bool {
        self.overlaid(key)
            .unwrap_or_else(|| is_in_filter(located, key))
    }

    /// The membership of a key that a delta or a tombstone names.
    #[inline]
    fn overlaid(&self, key: &DeviceKey) -> Option<bool> {
        if self.overlay.is_empty() {
            None
        } else {
            self.overlay.membership(key)
        }
    }

    /// Reads a byte of each cache line that [`Snapshot::contains`] will read of the filter, and
    /// returns them: a measurement can make the next key depend on the bytes read.
    #[inline]
    pub fn touch(&self, key: &DeviceKey) -> u8 {
        let (_, target) = self.locate(key);
        target.touch() ^ target.touch_second()
    }

    /// Whether any of a device's keys may be in the audience. Cache misses of the keys overlap.
    #[inline]
    pub fn contains_any(&self, keys: &[DeviceKey]) -> bool {
        if let [key] = keys {
            return self.contains(key);
        }
        keys.chunks(DEVICE_KEYS).any(|keys| {
            let located = self.locate_and_touch::<DEVICE_KEYS>(keys);
            keys.iter()
                .zip(&located)
                .any(|(key, located)| self.contains_located(key, located))
        })
    }

    /// Looks up many keys, several times as fast per key as one by one: cache misses overlap.
    ///
    /// # Panics
    ///
    /// If `members` is shorter than `keys`.
    pub fn contains_many(&self, keys: &[DeviceKey], members: &mut [bool]) {
        for (keys, members) in keys
            .chunks(BATCH_KEYS)
            .zip(members[..keys.len()].chunks_mut(BATCH_KEYS))
        {
            let located = self.locate_and_touch::<BATCH_KEYS>(keys);
            for ((key, member), located) in keys.iter().zip(members).zip(&located) {
                *member = self.contains_located(key, located);
            }
        }
    }

    /// Locates at most `N` keys, then reads the first byte of each, and the second line of a ribbon
    /// filter in a loop of its own. The reads follow each other closely, within the few hundred
    /// instructions and the few dozen reads that a processor looks ahead, so that cache misses
    /// overlap. Prefetch instructions were measured to wait for each page walk.
    #[inline]
    fn locate_and_touch<const N: usize>(&self, keys: &[DeviceKey]) -> [Located<'_>; N] {
        let mut located: [Located<'_>; N] = [(None, ProbeTarget::default()); N];
        for (located, key) in located.iter_mut().zip(keys) {
            *located = self.locate(key);
        }
        let mut read = located
            .iter()
            .fold(0, |read, (_, target)| read ^ u64::from(target.touch()));
        if self.manifest.filter().kind() == FilterKind::Ribbon {
            let second = |read, (_, target): &Located<'_>| read ^ u64::from(target.touch_second());
            read = located.iter().fold(read, second);
        }

        if !self.overlay.is_empty() {
            read ^= keys
                .iter()
                .fold(0, |read, key| read ^ self.overlay.touch(key));
        }

        std::hint::black_box(read);
        located
    }

    /// The greatest value among those of a device's keys that are members; `None` if none of them
    /// has one. Right for members, noise for false positives. The newest delta that names a key
    /// decides. Cache misses of the keys overlap.
    pub fn value(&self, keys: &[DeviceKey]) -> Option<u8> {
        let of_keys = |keys: &[DeviceKey]| {
            let located = self.locate_and_touch::<DEVICE_KEYS>(keys);
            let value = |(key, (chunk, target)): (&DeviceKey, &Located<'_>)| {
                let of_filter = || chunk.and_then(|chunk| chunk.value_at(target, key));
                self.overlay.value(key).unwrap_or_else(of_filter)
            };
            keys.iter().zip(&located).filter_map(value).max()
        };
        keys.chunks(DEVICE_KEYS).filter_map(of_keys).max()
    }

    /// Bytes of filters in memory, including those shared with other snapshots.
    pub fn filter_bytes(&self) -> u64 {
        self.chunks
            .iter()
            .map(|chunk| chunk.filters().len() as u64)
            .sum()
    }
}

/// A number of a header of this module's files.
fn u32_at(header: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(header[offset..offset + 4].try_into().expect("four bytes"))
}

/// The same of eight bytes.
fn u64_at(header: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(header[offset..offset + 8].try_into().expect("eight bytes"))
}

/// Whether the filter of a located key contains it.
#[inline]
fn is_in_filter((chunk, target): &Located<'_>, key: &DeviceKey) -> bool {
    chunk.is_some_and(|chunk| chunk.contains_at(target, key))
}

#[cfg(test)]
mod tests;
