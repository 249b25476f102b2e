//! Snapshot cache: verified chunks on the pod's own disk, for restarts and for store outages.
//!
//! ```text
//! {cache_dir}/{audience}/CURRENT             of the generation that was verified last
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

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use copy::ChunkCopy;
use errors::CacheErrors;
use files::{read_at_most, verified, write};
use prune::prune;
use signed::{read_signed, write_signed};

use crate::telemetry::Telemetry;
use rtad_core::snapshot::{
    AudienceName, Chunk, ChunkDecoder, ChunkEntry, ChunkReader, ChunkVerifier, Current, Delta,
    DeltaEntry, MAX_CURRENT_BYTES, MAX_MANIFEST_BYTES, Manifest, State,
};
use rtad_store::{Signed, Trust};

/// The cache of one process. May be used from any number of tasks.
#[derive(Debug)]
pub(super) struct Cache {
    root: PathBuf,
    trust: Trust,
    errors: Arc<CacheErrors>,
    /// `CURRENT` as this process read or wrote it last. Another one on disk is from another
    /// process.
    known: Mutex<HashMap<AudienceName, Current>>,
}

impl Cache {
    /// A cache in the folder `root`, with the store's signature requirements. Touches no file.
    pub(super) fn new(root: PathBuf, trust: Trust, telemetry: Arc<Telemetry>) -> Self {
        Self { root, trust, errors: Arc::new(CacheErrors::new(telemetry)), known: Mutex::default() }
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
        self.read(manifest, entry, ChunkDecoder::new(manifest.filter(), entry)).await
    }

    /// Whether the cache holds a verified chunk. Allocates no filters.
    pub(super) async fn holds(&self, manifest: &Manifest, entry: &ChunkEntry) -> bool {
        self.read(manifest, entry, ChunkVerifier::new(manifest.filter(), entry)).await.is_some()
    }

    async fn read<R: ChunkReader>(
        &self,
        manifest: &Manifest,
        entry: &ChunkEntry,
        reader: R,
    ) -> Option<R::Verified> {
        let path = self.folder(manifest.audience()).join(format!("{}.chunk", entry.digest));
        let errors = Arc::clone(&self.errors);
        on_disk(move || verified(&path, reader, &errors)).await.flatten()
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
            parsed.map_err(|error| errors.delete_damaged(&folder.join(&name), &error)).ok()
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
        self.put_signed(audience, format!("{}.delta", entry.sha256), file).await;
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
        let (audience, folder) = (manifest.audience(), self.folder(manifest.audience()));
        let known = self.known().get(audience).cloned();
        let (errors, ours) = (Arc::clone(&self.errors), current.clone());
        let (manifest, name, trust) = (manifest.clone(), audience.clone(), self.trust.clone());
        let written = on_disk(move || {
            let found = read_current(&folder).ok();
            // Another process wrote a later `CURRENT` since this one read it.
            if found.as_ref().is_some_and(|found| found.sequence > ours.sequence) && found != known
            {
                return found;
            }
            // A copy that failed was reported: the last whole generation stays.
            if ours.state != State::Deleted && !is_whole(&folder, &manifest, &ours) {
                return found;
            }
            let written = write(&folder, "CURRENT", &ours.to_bytes());
            let pruned = written.and_then(|()| prune(&folder, &manifest, &ours, &trust));
            errors.report(&folder, &pruned);
            Some(ours)
        })
        .await;
        if let Some(Some(current)) = written {
            self.known().insert(name, current);
        }
    }

    /// Records the state and the end of validity of a `current` whose files are not cached.
    pub(super) async fn restrict(&self, audience: &AudienceName, current: &Current) {
        let (folder, errors) = (self.folder(audience), Arc::clone(&self.errors));
        let current = current.clone();
        let written = on_disk(move || {
            let cached = read_current(&folder).ok()?;
            let restricted = cached.clone().restricted_by(&current);
            if restricted != cached {
                errors.report(&folder, &write(&folder, "CURRENT", &restricted.to_bytes()));
            }
            Some(restricted)
        })
        .await;
        if let Some(Some(current)) = written {
            self.known().insert(audience.clone(), current);
        }
    }

    /// The generation that was verified last, by this process or another; `None` if there is none,
    /// or one of its files is damaged.
    pub(super) async fn last(&self, audience: &AudienceName) -> Option<(Current, Manifest)> {
        let (folder, name, errors) =
            (self.folder(audience), audience.clone(), Arc::clone(&self.errors));
        let trust = self.trust.clone();
        let last = on_disk(move || {
            let current = match read_current(&folder) {
                Ok(current) => current,
                Err(error) => {
                    if error.kind() != ErrorKind::NotFound {
                        errors.report(&folder.join("CURRENT"), &Err(error));
                    }
                    return None;
                }
            };
            let file_name = format!("{}.json", current.generation);
            let file = read_signed(&folder, &file_name, MAX_MANIFEST_BYTES, &trust).ok()?;
            let path = folder.join(file_name);
            if let Err(error) = trust.check_manifest(&name, current.generation, &file) {
                errors.report_untrusted(&path, &error);
                return None;
            }
            let parsed = Manifest::parse_named(&file.bytes, &name, &current);
            let parsed = parsed.map_err(|error| errors.delete_damaged(&path, &error));
            Some((current, parsed.ok()?))
        })
        .await
        .flatten();
        if let Some((current, _)) = &last {
            self.known().insert(audience.clone(), current.clone());
        }
        last
    }

    /// Records the cached `CURRENT` before the first poll of the store.
    pub(super) async fn remember_current(&self, audience: &AudienceName) {
        let folder = self.folder(audience);
        if let Some(Some(current)) = on_disk(move || read_current(&folder).ok()).await {
            self.known().insert(audience.clone(), current);
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<AudienceName, Current>> {
        self.known.lock()
    }
}

/// Audiences with a cached generation, sorted, except deleted ones: for a config that names none
/// while the store is unavailable. Blocks.
pub fn cached_audiences(root: &Path) -> Vec<AudienceName> {
    let Ok(entries) = std::fs::read_dir(root) else { return Vec::new() };
    let paths = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| read_current(path).is_ok_and(|current| current.state != State::Deleted));
    let mut names: Vec<AudienceName> =
        paths.filter_map(|path| path.file_name()?.to_str()?.parse().ok()).collect();
    names.sort();
    names
}

/// Whether all files of a generation are in the folder, by their sizes.
fn is_whole(folder: &Path, manifest: &Manifest, current: &Current) -> bool {
    let has = |name: String, size_bytes: u64| {
        std::fs::metadata(folder.join(name)).is_ok_and(|file| file.len() == size_bytes)
    };
    let chunks = manifest.chunks().iter();
    let mut deltas = current.deltas.iter().chain(&current.tombstones);
    folder.join(format!("{}.json", manifest.generation())).exists()
        && chunks.into_iter().all(|entry| has(format!("{}.chunk", entry.digest), entry.size_bytes))
        && deltas.all(|entry| has(format!("{}.delta", entry.sha256), entry.size_bytes()))
}

fn read_current(folder: &Path) -> io::Result<Current> {
    let bytes = read_at_most(&folder.join("CURRENT"), MAX_CURRENT_BYTES)?;
    Current::parse(&bytes).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

/// Runs `work` on the blocking pool; `None` if it panicked.
async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}

#[cfg(test)]
mod tests;
