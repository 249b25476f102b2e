//! Snapshot cache: verified chunks on the pod's own disk, for restarts and for store outages.
//!
//! ```text
//! {cache_dir}/{audience}/served.json         the generation that was verified last, later deltas
//! {cache_dir}/{audience}/{generation}.json   its manifest, and that of a generation being loaded
//! {cache_dir}/{audience}/{digest}.chunk      their chunks
//! {cache_dir}/{audience}/{digest}.delta      their deltas
//! {cache_dir}/{audience}/{name}.minisig      signatures of manifests and deltas, with public keys
//! {cache_dir}/{audience}/{random}.tmp        being written
//! ```
//!
//! * Cached files are untrusted: they are verified like those of the store, and deleted if damaged.
//!   So no write is synced to the disk.
//! * A failure disables the cache and nothing else. It is counted, and logged once.
//! * Several processes may share a cache. Files appear whole, by a rename. A load writes its
//!   manifest first, so that no other process removes its chunks.
//! * After each load, files of other generations are removed.
//!
//! [`Cache::last`] is served at the start of a pod, until a newer generation is loaded or while the
//! store is unavailable.

mod copy;
mod errors;
mod files;
mod prune;
mod signed;
mod state;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use copy::ChunkCopy;
use errors::CacheErrors;
use files::verified;
use prune::prune;
use signed::{read_signed, write_signed};
pub(crate) use state::CachedState;
use state::is_whole;

use crate::telemetry::Telemetry;
use rtad_core::snapshot::{
    AudienceName, Chunk, ChunkDecoder, ChunkEntry, ChunkReader, ChunkVerifier, Current, Delta,
    DeltaEntry, MAX_MANIFEST_BYTES, Manifest, State,
};
use rtad_store::{Signed, Trust};

/// The cache of one process. May be used from any number of tasks.
#[derive(Debug)]
pub(super) struct Cache {
    root: PathBuf,
    trust: Trust,
    errors: Arc<CacheErrors>,
    /// State that this process last read or wrote, per audience. A different file on disk was
    /// written by another process.
    last_seen: Mutex<HashMap<AudienceName, CachedState>>,
}

impl Cache {
    /// A cache in the folder `root`, with the store's signature requirements. Touches no file.
    pub(super) fn new(root: PathBuf, trust: Trust, telemetry: Arc<Telemetry>) -> Self {
        Self {
            root,
            trust,
            errors: Arc::new(CacheErrors::new(telemetry)),
            last_seen: Mutex::default(),
        }
    }

    /// The folder of an audience.
    pub(super) fn folder(&self, audience: &AudienceName) -> PathBuf {
        self.root.join(audience.as_str())
    }

    /// Records that a generation is being loaded: no process then removes its chunks.
    pub(super) async fn begin(&self, manifest: &Manifest, file: Signed) {
        let name = format!("{}.json", manifest.generation());
        self.put_signed(manifest.audience(), name, file).await;
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
        let path = self
            .folder(manifest.audience())
            .join(format!("{}.chunk", entry.digest));
        let errors = Arc::clone(&self.errors);
        on_disk(move || verified(&path, reader, &errors))
            .await
            .flatten()
    }

    /// A sink that copies a chunk into the cache while it is read from the store.
    pub(super) fn copy(&self, manifest: &Manifest, entry: &ChunkEntry) -> ChunkCopy {
        ChunkCopy::new(
            self.folder(manifest.audience()),
            format!("{}.chunk", entry.digest),
            &self.errors,
        )
    }

    /// A verified delta; `None` if it is missing or damaged.
    pub(super) async fn delta(&self, audience: &AudienceName, entry: &DeltaEntry) -> Option<Delta> {
        let (folder, name) = (self.folder(audience), format!("{}.delta", entry.sha256));
        let (errors, trust) = (Arc::clone(&self.errors), self.trust.clone());
        let (audience, entry) = (audience.clone(), entry.clone());
        let read = move || {
            let file = read_signed(&folder, &name, entry.size_bytes(), &trust).ok()?;
            if let Err(error) = trust.check_delta(&audience, &entry, &file) {
                errors.report_untrusted(&folder.join(&name), &error);
                return None;
            }
            let parsed = Delta::parse(&file.bytes, &entry);
            parsed
                .map_err(|error| errors.delete_damaged(&folder.join(&name), &error))
                .ok()
        };
        on_disk(read).await.flatten()
    }

    /// Stores a verified delta.
    pub(super) async fn put_delta(
        &self,
        audience: &AudienceName,
        entry: &DeltaEntry,
        file: Signed,
    ) {
        self.put_signed(audience, format!("{}.delta", entry.sha256), file)
            .await;
    }

    async fn put_signed(&self, audience: &AudienceName, name: String, file: Signed) {
        let (folder, errors) = (self.folder(audience), Arc::clone(&self.errors));
        on_disk(move || {
            let written =
                std::fs::create_dir_all(&folder).and_then(|()| write_signed(&folder, &name, &file));
            errors.report(&folder, &written);
        })
        .await;
    }

    /// Records a verified generation: a start without the store will serve it. Removes other files.
    pub(super) async fn commit(&self, manifest: &Manifest, current: &Current) {
        let (ours, copied) = (current.clone(), manifest.clone());
        let change = move |folder: &Path, found: Option<CachedState>| {
            // A copy that failed was reported: the last whole generation stays.
            if ours.state != State::Deleted && !is_whole(folder, &copied, &ours) {
                return found.map(|found| found.with_deltas_of(&ours, folder));
            }
            Some(CachedState {
                current: ours,
                later: None,
            })
        };
        let written = self.write(manifest.audience(), current, change).await;
        if written.is_none_or(|state| state.current != *current || state.later.is_some()) {
            return;
        }
        let (folder, errors) = (self.folder(manifest.audience()), Arc::clone(&self.errors));
        let (manifest, current, trust) = (manifest.clone(), current.clone(), self.trust.clone());
        on_disk(move || errors.report(&folder, &prune(&folder, &manifest, &current, &trust))).await;
    }

    /// Records the state and the end of validity of a `current` whose files are not cached.
    pub(super) async fn restrict(&self, audience: &AudienceName, current: &Current) {
        let later = current.clone();
        self.write(audience, current, move |_, found| {
            Some(found?.restricted_by(&later))
        })
        .await;
    }

    /// Records the deltas and tombstones of a `current` whose generation is not cached: they apply
    /// to the cached one. Of a `current` whose deltas could not be read, the tombstones do.
    pub(super) async fn record_deltas(&self, audience: &AudienceName, current: &Current) {
        let later = current.clone();
        let change = move |folder: &Path, found: Option<CachedState>| {
            Some(found?.with_deltas_of(&later, folder))
        };
        self.write(audience, current, change).await;
    }

    /// Changes the state on disk by `current`. Returns it; `None` if it was not written, or another
    /// process wrote a later one.
    async fn write(
        &self,
        audience: &AudienceName,
        current: &Current,
        change: impl FnOnce(&Path, Option<CachedState>) -> Option<CachedState> + Send + 'static,
    ) -> Option<CachedState> {
        let (folder, errors) = (self.folder(audience), Arc::clone(&self.errors));
        let (last_seen, sequence) = (
            self.last_seen.lock().get(audience).cloned(),
            current.sequence,
        );
        let state = on_disk(move || {
            let found = CachedState::read(&folder).ok();
            let is_later = found
                .as_ref()
                .is_some_and(|found| found.newest().sequence > sequence);
            if is_later && found != last_seen {
                return None;
            }
            let state = change(&folder, found.clone())?;
            if found.as_ref() != Some(&state) {
                let written = state.write(&folder);
                errors.report(&folder, &written);
                written.ok()?;
            }
            Some(state)
        });
        let state = state.await.flatten()?;
        self.last_seen
            .lock()
            .insert(audience.clone(), state.clone());
        Some(state)
    }

    /// The generation that was verified last, by this process or another; `None` if there is none,
    /// or one of its files is damaged.
    pub(super) async fn last(&self, audience: &AudienceName) -> Option<(CachedState, Manifest)> {
        let (folder, name, errors) = (
            self.folder(audience),
            audience.clone(),
            Arc::clone(&self.errors),
        );
        let trust = self.trust.clone();
        let last = on_disk(move || {
            let state = match CachedState::read(&folder) {
                Ok(state) => state,
                Err(error) => {
                    if error.kind() != io::ErrorKind::NotFound {
                        errors.report(&folder, &Err(error));
                    }
                    return None;
                }
            };
            let generation = state.current.generation;
            let file_name = format!("{generation}.json");
            let file = read_signed(&folder, &file_name, MAX_MANIFEST_BYTES, &trust).ok()?;
            let path = folder.join(file_name);
            if let Err(error) = trust.check_manifest(&name, generation, &file) {
                errors.report_untrusted(&path, &error);
                return None;
            }
            let parsed = Manifest::parse_named(&file.bytes, &name, &state.current);
            let parsed = parsed.map_err(|error| errors.delete_damaged(&path, &error));
            Some((state, parsed.ok()?))
        })
        .await
        .flatten();
        if let Some((state, _)) = &last {
            self.last_seen
                .lock()
                .insert(audience.clone(), state.clone());
        }
        last
    }

    /// Records the cached state before the first poll of the store. Returns true if there is one.
    pub(super) async fn remember_state(&self, audience: &AudienceName) -> bool {
        let folder = self.folder(audience);
        let state = on_disk(move || CachedState::read(&folder).ok())
            .await
            .flatten();
        let is_cached = state.is_some();
        if let Some(state) = state {
            self.last_seen.lock().insert(audience.clone(), state);
        }
        is_cached
    }
}

/// Runs `work` on the blocking pool; `None` if it panicked.
async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}

#[cfg(test)]
mod tests;
