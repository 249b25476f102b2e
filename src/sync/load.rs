//! Loading of a generation: chunks and deltas from memory, else from the cache, else from the
//! store.
//!
//! The size limit of the config and the container's free memory are checked before the first chunk
//! is requested.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};

use super::cache::{Cache, CachedState};
use super::error::SyncError;
use super::memory::Memory;
use super::stores::Stores;
use crate::telemetry::{ChunkSource, Telemetry};
use rtad_core::clock::now_unix_seconds;
use rtad_core::snapshot::{
    AudienceName, Chunk, ChunkDecoder, ChunkEntry, Current, Delta, DeltaEntry, Digest, Manifest,
    Newer, Overlay, Snapshot,
};
use rtad_store::StoreError;

/// Chunks read at a time: enough to keep a disk and two cores busy, few enough to leave cores to
/// requests.
pub const PARALLEL_CHUNKS: usize = 2;

/// A store that delivers small files more slowly than this is unavailable.
const LEAST_BYTES_PER_SECOND: u64 = 256 << 10;

/// Verified chunks by the digests of their files.
pub type Chunks = HashMap<Digest, Arc<Chunk>>;

/// A generation of the cache, with the deltas that were served over it.
pub(super) struct CachedGeneration {
    pub(super) state: CachedState,
    pub(super) snapshot: Snapshot,
}

/// Sources and limits of a load.
pub(super) struct Loader<'a> {
    pub(super) stores: &'a Stores,
    pub(super) cache: Option<&'a Cache>,
    pub(super) memory: &'a Memory,
    pub(super) telemetry: &'a Telemetry,
    pub(super) max_snapshot_bytes: u64,
    /// Delay of the first chunk.
    pub(super) spread: Duration,
}

impl Loader<'_> {
    /// The chunks of a manifest as a snapshot without deltas. Chunks that are already served are
    /// shared.
    pub(super) async fn load(
        &self,
        held: Option<&Snapshot>,
        manifest: Manifest,
        manifest_file: Vec<u8>,
    ) -> Result<Snapshot, SyncError> {
        let (mut chunks, missing) = split(held, &manifest);
        let _reserved = self.memory.reserve(size_of(&missing)).await?;
        if let Some(cache) = self.cache {
            cache.put_manifest(&manifest, manifest_file).await;
        }
        if !missing.is_empty() {
            self.spread_out().await;
        }
        let reads = missing.iter().map(|entry| self.chunk(&manifest, entry));
        let mut reads = stream::iter(reads).buffer_unordered(PARALLEL_CHUNKS);
        while let Some(read) = reads.next().await {
            let chunk = read?;
            chunks.insert(*chunk.digest(), Arc::new(chunk));
        }
        drop(reads);
        Ok(assemble(manifest, &chunks))
    }

    /// The deltas of `current`: those of `held`, else cached ones, else from the store and into
    /// the cache. The time is bounded by their size.
    pub(super) async fn overlay(
        &self,
        audience: &AudienceName,
        held: Option<&Overlay>,
        current: &Current,
    ) -> Result<Overlay, SyncError> {
        let missing_bytes = delta_bytes(held, current);
        self.memory.check(missing_bytes)?;
        let read = async {
            let mut files = Vec::new();
            for entry in current.delta_entries() {
                files.push(self.delta(audience, held, entry).await?);
            }
            Ok(Overlay::new(current, files))
        };
        self.within(missing_bytes, format!("{audience}/deltas"), read)
            .await
    }

    /// The tombstones of `current`, from the same sources.
    pub(super) async fn tombstones(
        &self,
        audience: &AudienceName,
        held: Option<&Overlay>,
        current: &Current,
    ) -> Result<Option<Arc<Delta>>, SyncError> {
        let Some(entry) = &current.tombstones else {
            return Ok(None);
        };
        Ok(Some(self.delta(audience, held, entry).await?))
    }

    /// Bounds the time of reading small files: the stall time-out, and more for many bytes.
    pub(super) async fn within<T>(
        &self,
        bytes: u64,
        what: String,
        read: impl Future<Output = Result<T, SyncError>>,
    ) -> Result<T, SyncError> {
        let limit =
            self.stores.stall_timeout() + Duration::from_secs(bytes / LEAST_BYTES_PER_SECOND);
        let late = SyncError::Late {
            what,
            seconds: limit.as_secs_f64(),
        };
        tokio::time::timeout(limit, read).await.unwrap_or(Err(late))
    }

    async fn delta(
        &self,
        audience: &AudienceName,
        held: Option<&Overlay>,
        entry: &DeltaEntry,
    ) -> Result<Arc<Delta>, StoreError> {
        if let Some(overlay) = held
            && let Some(delta) = overlay.find(entry)
        {
            return Ok(Arc::clone(delta));
        }
        if let Some(cache) = self.cache
            && let Some(delta) = cache.delta(audience, entry).await
        {
            return Ok(Arc::new(delta));
        }
        let (delta, file) = self.stores.delta_and_file(audience, entry).await?;
        if let Some(cache) = self.cache {
            cache.put_delta(audience, entry, file).await;
        }
        Ok(Arc::new(delta))
    }

    /// The cached generation, from the cache alone; `None` without a whole generation. Reads no
    /// large file if it is not wanted.
    pub(super) async fn load_cached(
        &self,
        audience: &AudienceName,
        is_wanted: impl FnOnce(&CachedState) -> bool,
    ) -> Option<CachedGeneration> {
        let cache = self.cache?;
        let state = cache.last(audience).await.filter(is_wanted)?;
        self.check(&state.manifest, state.newest()).ok()?;
        let _reserved = self.memory.reserve(memory_for(&state)).await.ok()?;

        let mut overlay = cached_overlay(cache, audience, None, &state.base).await?;
        for record in &state.later {
            overlay = with_record(cache, audience, &overlay, record).await;
        }

        let reads = state
            .manifest
            .chunks()
            .iter()
            .map(|entry| cache.chunk(&state.manifest, entry));
        let mut reads = stream::iter(reads).buffer_unordered(PARALLEL_CHUNKS);
        let mut chunks = Chunks::new();
        while let Some(read) = reads.next().await {
            let chunk = read?;
            self.telemetry.chunk_read(ChunkSource::Cache);
            chunks.insert(*chunk.digest(), Arc::new(chunk));
        }
        drop(reads);

        let snapshot = assemble(state.manifest.clone(), &chunks).with_overlay(overlay);
        Some(CachedGeneration { state, snapshot })
    }

    /// Refuses expired snapshots, and those above the configured size.
    pub(super) fn check(&self, manifest: &Manifest, current: &Current) -> Result<(), SyncError> {
        let now_unix_seconds = now_unix_seconds();
        if let Some(expires_unix_seconds) = manifest.expires_unix_seconds()
            && manifest.is_expired(now_unix_seconds)
        {
            let generation = manifest.generation();
            return Err(SyncError::Expired {
                generation,
                expires_unix_seconds,
                now_unix_seconds,
            });
        }
        self.check_size(manifest.size_bytes(), current)
    }

    /// Refuses chunks of this size, with the deltas of `current`, above the configured size.
    pub(super) fn check_size(&self, chunk_bytes: u64, current: &Current) -> Result<(), SyncError> {
        let mut size_bytes = chunk_bytes;
        for delta in current.delta_entries() {
            size_bytes = size_bytes.saturating_add(delta.size_bytes());
        }

        let limit_bytes = self.max_snapshot_bytes;
        if size_bytes > limit_bytes {
            Err(SyncError::TooLarge {
                size_bytes,
                limit_bytes,
            })
        } else {
            Ok(())
        }
    }

    /// Delays the first chunk, so that the pods of a fleet do not start at once.
    pub(super) async fn spread_out(&self) {
        if self.stores.is_remote() {
            tokio::time::sleep(self.spread).await;
        }
    }

    /// A chunk from the cache, else from the store and into the cache.
    pub(super) async fn chunk(
        &self,
        manifest: &Manifest,
        entry: &ChunkEntry,
    ) -> Result<Chunk, StoreError> {
        let audience = manifest.audience();
        let Some(cache) = self.cache else {
            let begin = || (ChunkDecoder::new(manifest.filter(), entry), ());
            let (chunk, ()) = self.stores.chunk_copied(audience, entry, begin).await?;
            self.telemetry.chunk_read(ChunkSource::Store);
            return Ok(chunk);
        };
        if let Some(chunk) = cache.chunk(manifest, entry).await {
            self.telemetry.chunk_read(ChunkSource::Cache);
            return Ok(chunk);
        }
        let begin = || {
            let decoder = ChunkDecoder::new(manifest.filter(), entry);
            (decoder, cache.copy(manifest, entry))
        };
        let (chunk, copy) = self.stores.chunk_copied(audience, entry, begin).await?;
        self.telemetry.chunk_read(ChunkSource::Store);
        // The copy's error is counted and logged; the chunk is good without it.
        let _ = copy.keep();
        Ok(chunk)
    }
}

/// All deltas, held or cached, or none: a missing removal would restore a device.
async fn cached_overlay(
    cache: &Cache,
    audience: &AudienceName,
    held: Option<&Overlay>,
    current: &Current,
) -> Option<Overlay> {
    let mut files = Vec::new();
    for entry in current.delta_entries() {
        files.push(match held.and_then(|overlay| overlay.find(entry)) {
            Some(delta) => Arc::clone(delta),
            None => Arc::new(cache.delta(audience, entry).await?),
        });
    }
    Some(Overlay::new(current, files))
}

/// The overlay under a later record: with its deltas if they are all cached, else with its
/// tombstones if those are, and with its restrictions in any case.
async fn with_record(
    cache: &Cache,
    audience: &AudienceName,
    overlay: &Overlay,
    record: &Current,
) -> Overlay {
    let restricted = Overlay::over(overlay, Newer::Current(record));
    if let Some(newer) = cached_overlay(cache, audience, Some(&restricted), record).await {
        return Overlay::over(&restricted, Newer::Deltas(newer));
    }
    let Some(entry) = &record.tombstones else {
        return restricted;
    };
    match cache.delta(audience, entry).await {
        Some(tombstones) => {
            let tombstones = Some(Arc::new(tombstones));
            Overlay::over(&restricted, Newer::Tombstones(tombstones))
        }
        None => restricted,
    }
}

/// Memory for a generation of the cache and all deltas over it.
fn memory_for(state: &CachedState) -> u64 {
    let mut named = Vec::new();
    for record in std::iter::once(&state.base).chain(&state.later) {
        for entry in record.delta_entries() {
            if !named.contains(&entry) {
                named.push(entry);
            }
        }
    }
    size_of(state.manifest.chunks()).saturating_add(memory_of(named.into_iter()))
}

/// Memory for the deltas of `current` that are not held yet.
fn delta_bytes(held: Option<&Overlay>, current: &Current) -> u64 {
    let Some(held) = held else {
        return memory_of(current.delta_entries());
    };
    let missing = current.delta_entries();
    memory_of(missing.filter(|entry| held.find(entry).is_none()))
}

/// Memory for deltas: nine quarters of their files, as the file and its keys are in memory, each
/// with an eighth for an index.
fn memory_of<'a>(entries: impl Iterator<Item = &'a DeltaEntry>) -> u64 {
    let mut bytes = 0_u64;
    for entry in entries {
        bytes = bytes.saturating_add(entry.size_bytes().saturating_mul(9) / 4);
    }
    bytes
}

/// The held chunks of a manifest, and the entries of the missing ones.
fn split(served: Option<&Snapshot>, manifest: &Manifest) -> (Chunks, Vec<ChunkEntry>) {
    let held = held(served, manifest);
    let mut missing = Vec::new();
    for entry in manifest.chunks() {
        match held.get(&entry.digest) {
            // Compares whole entries: a manifest may name one digest for two shard ranges.
            Some(chunk) if chunk.matches(manifest.filter(), entry) => {}
            _ => missing.push(entry.clone()),
        }
    }
    (held, missing)
}

/// Size of chunk files: 99.9% of a file are its filters.
fn size_of(chunks: &[ChunkEntry]) -> u64 {
    chunks.iter().map(|entry| entry.size_bytes).sum()
}

/// The chunks of the manifest that `served` already holds.
pub fn held(served: Option<&Snapshot>, manifest: &Manifest) -> Chunks {
    let mut held = Chunks::new();
    let Some(served) = served else {
        return held;
    };

    let mut by_digest: HashMap<&Digest, &Arc<Chunk>> = HashMap::new();
    for chunk in served.chunks() {
        by_digest.insert(chunk.digest(), chunk);
    }
    for entry in manifest.chunks() {
        if let Some(chunk) = by_digest.get(&entry.digest)
            && chunk.matches(manifest.filter(), entry)
        {
            held.insert(entry.digest, Arc::clone(chunk));
        }
    }
    held
}

/// The snapshot of a manifest, from all of its chunks.
pub fn assemble(manifest: Manifest, chunks: &Chunks) -> Snapshot {
    let mut in_order = Vec::with_capacity(manifest.chunks().len());
    for entry in manifest.chunks() {
        in_order.push(Arc::clone(&chunks[&entry.digest]));
    }
    Snapshot::assemble(manifest, in_order)
}
