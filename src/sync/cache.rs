//! Snapshot cache: what the pod has read of the store, on its own disk, for restarts and for
//! outages. Its layout is that of a directory store (`rtad_store::layout`).
//!
//! * Each record is cached when it is read, before its files. Records are never changed, so several
//!   processes may share a cache, also those that serve different stages (`prune`). A start without
//!   the store serves the newest whole generation, under all later records ([`CachedState`]).
//! * Cached files are untrusted: they are verified like those of the store, and deleted if damaged.
//!   So no write is synced to the disk. Files appear whole, by a rename.
//! * A failure disables the cache and nothing else. It is counted, and logged once.
//! * After each load, and before one over a served snapshot, files that a start would not need are
//!   removed.

mod copy;
mod errors;
mod files;
mod prune;
mod records;

use std::path::PathBuf;
use std::sync::Arc;

use copy::ChunkCopy;
use errors::CacheErrors;
use files::{read_at_most, verified, write};
use prune::prune;
use records::CachedRecords;
pub(crate) use records::CachedState;

use crate::telemetry::Telemetry;
use rtad_core::snapshot::{
    AudienceName, Chunk, ChunkDecoder, ChunkEntry, ChunkReader, ChunkVerifier, Current, Delta,
    DeltaEntry, GenerationEntry, Manifest, StagePlace,
};
use rtad_store::{Live, Trust, layout};

/// The cache of one process. May be used from any number of tasks.
#[derive(Debug)]
pub(super) struct Cache {
    root: PathBuf,
    trust: Trust,
    /// See [`StagePlace`].
    pod: Option<String>,
    errors: Arc<CacheErrors>,
}

impl Cache {
    /// A cache in the folder `root`, with the store's public keys. Touches no file.
    pub(super) fn new(
        root: PathBuf,
        trust: Trust,
        pod: Option<String>,
        telemetry: Arc<Telemetry>,
    ) -> Self {
        Self {
            root,
            trust,
            pod,
            errors: Arc::new(CacheErrors::new(telemetry)),
        }
    }

    /// The folder of an audience.
    pub(super) fn folder(&self, audience: &AudienceName) -> PathBuf {
        self.file(layout::audience_path(audience))
    }

    fn file(&self, path: impl AsRef<str>) -> PathBuf {
        self.root.join(path.as_ref())
    }

    /// Stores a record, before what it names is read. A copy of the store may have another record
    /// with the number of a cached one: that one stays.
    pub(super) async fn put_record(&self, audience: &AudienceName, live: &Live) {
        let records = self.records(audience);
        let live = live.clone();
        on_disk(move || records.put(&live)).await;
    }

    /// Stores the manifest of a generation that is being loaded: no process then removes its
    /// chunks.
    pub(super) async fn put_manifest(&self, manifest: &Manifest, bytes: Vec<u8>) {
        let entry = GenerationEntry::of(manifest.generation(), &bytes);
        let path = layout::manifest_path(manifest.audience(), &entry);
        self.put(self.file(path), bytes).await;
    }

    /// Stores a verified delta.
    pub(super) async fn put_delta(
        &self,
        audience: &AudienceName,
        entry: &DeltaEntry,
        bytes: Vec<u8>,
    ) {
        self.put(self.file(layout::delta_path(audience, entry)), bytes)
            .await;
    }

    async fn put(&self, path: PathBuf, bytes: Vec<u8>) {
        let errors = Arc::clone(&self.errors);
        on_disk(move || {
            let written = write(&path, &bytes);
            errors.report(&path, &written);
        })
        .await;
    }

    /// A verified chunk; `None` if it is missing or damaged.
    pub(super) async fn chunk(&self, manifest: &Manifest, entry: &ChunkEntry) -> Option<Chunk> {
        self.read(manifest, entry, ChunkDecoder::new(manifest.filter(), entry))
            .await
    }

    /// Whether the cache holds a verified chunk. Allocates no filters.
    pub(super) async fn holds(&self, manifest: &Manifest, entry: &ChunkEntry) -> bool {
        self.read(
            manifest,
            entry,
            ChunkVerifier::new(manifest.filter(), entry),
        )
        .await
        .is_some()
    }

    async fn read<R: ChunkReader>(
        &self,
        manifest: &Manifest,
        entry: &ChunkEntry,
        reader: R,
    ) -> Option<R::Verified> {
        let path = self.file(layout::chunk_path(manifest.audience(), entry));
        let errors = Arc::clone(&self.errors);
        on_disk(move || verified(&path, reader, &errors))
            .await
            .flatten()
    }

    /// A sink that copies a chunk into the cache while it is read from the store.
    pub(super) fn copy(&self, manifest: &Manifest, entry: &ChunkEntry) -> ChunkCopy {
        let path = self.file(layout::chunk_path(manifest.audience(), entry));
        ChunkCopy::new(path, &self.errors)
    }

    /// A verified delta; `None` if it is missing or damaged.
    pub(super) async fn delta(&self, audience: &AudienceName, entry: &DeltaEntry) -> Option<Delta> {
        let path = self.file(layout::delta_path(audience, entry));
        let errors = Arc::clone(&self.errors);
        let entry = entry.clone();
        let read = move || {
            let bytes = read_at_most(&path, entry.size_bytes()).ok()?;
            let parsed = Delta::parse(&bytes, &entry);
            parsed
                .map_err(|error| errors.delete_damaged(&path, &error))
                .ok()
        };
        on_disk(read).await.flatten()
    }

    /// The cached state of an audience; `None` without a whole generation, or if its manifest is
    /// damaged.
    pub(super) async fn last(&self, audience: &AudienceName) -> Option<CachedState> {
        let records = self.records(audience);
        on_disk(move || records.last()).await.flatten()
    }

    /// The newest record of the audience, also if its files are not in the cache.
    pub(super) async fn newest_record(&self, audience: &AudienceName) -> Option<Current> {
        let records = self.records(audience);
        on_disk(move || records.read().pop()).await.flatten()
    }

    /// Whether there is a record of the audience.
    pub(super) async fn has_records(&self, audience: &AudienceName) -> bool {
        let records = self.records(audience);
        on_disk(move || records.exist()).await.unwrap_or(false)
    }

    /// Removes the files that a start would not need, and the records before the newest whole
    /// generation.
    pub(super) async fn prune(&self, audience: &AudienceName) {
        let records = self.records(audience);
        let errors = Arc::clone(&self.errors);
        on_disk(move || {
            let pruned = prune(&records);
            errors.report(records.folder(), &pruned);
        })
        .await;
    }

    fn records(&self, audience: &AudienceName) -> CachedRecords {
        CachedRecords {
            root: self.root.clone(),
            folder: self.folder(audience),
            audience: audience.clone(),
            trust: self.trust.clone(),
            place: match &self.pod {
                Some(pod) => StagePlace::of(pod, audience),
                None => StagePlace::LAST,
            },
            errors: Arc::clone(&self.errors),
        }
    }
}

/// Runs `work` on the blocking pool; `None` if it panicked.
async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}

#[cfg(test)]
mod tests;
