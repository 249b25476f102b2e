//! Verified chunks on a disk of the pod's own, so that a restart reads them there, and can do without the store.
//!
//! ```text
//! {cache_dir}/{audience}/CURRENT             of the generation that was verified last
//! {cache_dir}/{audience}/{generation}.json   its manifest, and that of one that is being loaded; with public keys also
//!                                            {generation}.json.minisig
//! {cache_dir}/{audience}/{digest}.chunk      their chunks
//! {cache_dir}/{audience}/{digest}.delta      and deltas, with public keys also {digest}.delta.minisig
//! {cache_dir}/{audience}/{random}.tmp        being written
//! ```
//!
//! * Nothing in it is believed: what is read is verified as if it came from the store, and deleted if it is not right. So
//!   nothing is synced to the disk either.
//! * Whatever fails costs the cache and nothing else: it is counted, and told once.
//! * Several processes may share it. A file appears by a rename, whole. What one that loads a later generation is just
//!   writing is kept, because its manifest is there first.
//! * It holds what is served and what is being loaded: the rest is removed after each load.
//!
//! The store is asked first. Only if it cannot answer is [`Cache::last`] served, so a pod never goes back by its cache while
//! the store would have told it better.

mod files;
mod signed;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

pub(super) use files::Copy;
use files::{Trouble, prune, read_at_most, verified, write};
use signed::{read_signed, write_signed};

use crate::telemetry::Telemetry;
use rtad_core::snapshot::{
    AudienceName, Chunk, ChunkDecoder, ChunkEntry, ChunkReader, ChunkVerifier, Current, Delta,
    DeltaEntry, MAX_CURRENT_BYTES, MAX_MANIFEST_BYTES, Manifest,
};
use rtad_store::{Signed, Trust};

/// The cache of one process. May be used from any number of tasks.
#[derive(Debug)]
pub(super) struct Cache {
    root: PathBuf,
    trust: Trust,
    trouble: Arc<Trouble>,
    /// `CURRENT` as this process saw it last: if it is another when it is to be replaced, another process was here.
    noted: Mutex<HashMap<AudienceName, Current>>,
}

impl Cache {
    /// Makes and reads nothing yet. What needs to be signed in the store needs to be signed here.
    pub(super) fn new(root: PathBuf, trust: Trust, telemetry: Arc<Telemetry>) -> Self {
        Self { root, trust, trouble: Arc::new(Trouble::new(telemetry)), noted: Mutex::default() }
    }

    /// Where the audience's files lie.
    pub(super) fn folder(&self, audience: &AudienceName) -> PathBuf {
        self.root.join(audience.as_str())
    }

    /// Notes that this generation is being loaded: its chunks are then nobody's to remove.
    pub(super) async fn begin(&self, manifest: &Manifest, file: Signed) {
        let (folder, trouble) = (self.folder(manifest.audience()), Arc::clone(&self.trouble));
        let generation = manifest.generation();
        on_disk(move || {
            let made = std::fs::create_dir_all(&folder);
            let made =
                made.and_then(|()| write_signed(&folder, &format!("{generation}.json"), &file));
            trouble.tell(&folder, &made);
        })
        .await;
    }

    /// A chunk, verified; `None` if it is not there, or not right.
    pub(super) async fn chunk(&self, manifest: &Manifest, entry: &ChunkEntry) -> Option<Chunk> {
        self.read(manifest, entry, ChunkDecoder::new(manifest.filter(), entry)).await
    }

    /// Whether a chunk is there and right. Takes no memory for its filters.
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
        let trouble = Arc::clone(&self.trouble);
        on_disk(move || verified(&path, reader, &trouble)).await.flatten()
    }

    /// A copy of a chunk, to be made while it is read from the store.
    pub(super) fn copy(&self, manifest: &Manifest, entry: &ChunkEntry) -> Copy {
        Copy::new(
            self.folder(manifest.audience()),
            format!("{}.chunk", entry.digest),
            &self.trouble,
        )
    }

    /// A delta, verified; `None` if it is not there, or not right.
    pub(super) async fn delta(&self, audience: &AudienceName, entry: &DeltaEntry) -> Option<Delta> {
        let (folder, name) = (self.folder(audience), format!("{}.delta", entry.sha256));
        let (trouble, trust) = (Arc::clone(&self.trouble), self.trust.clone());
        let (audience, entry) = (audience.clone(), entry.clone());
        let read = move || {
            let file = read_signed(&folder, &name, entry.size_bytes(), &trust).ok()?;
            if let Err(error) = trust.check_delta(&audience, &entry, &file) {
                trouble.doubt(&folder.join(&name), &error);
                return None;
            }
            let parsed = Delta::parse(&file.bytes, &entry);
            parsed.map_err(|error| trouble.distrust(&folder.join(&name), &error)).ok()
        };
        on_disk(read).await.flatten()
    }

    /// Keeps a delta that was verified.
    pub(super) async fn put_delta(
        &self,
        audience: &AudienceName,
        entry: &DeltaEntry,
        file: Signed,
    ) {
        let (folder, trouble) = (self.folder(audience), Arc::clone(&self.trouble));
        let name = format!("{}.delta", entry.sha256);
        on_disk(move || {
            let made =
                std::fs::create_dir_all(&folder).and_then(|()| write_signed(&folder, &name, &file));
            trouble.tell(&folder, &made);
        })
        .await;
    }

    /// All of this generation was verified: it is what a start without the store will serve. Removes what it does not need.
    pub(super) async fn commit(&self, manifest: &Manifest, current: &Current) {
        let (audience, folder) = (manifest.audience(), self.folder(manifest.audience()));
        let noted = self.noted().get(audience).cloned();
        let (trouble, ours) = (Arc::clone(&self.trouble), current.clone());
        let (manifest, name, trust) = (manifest.clone(), audience.clone(), self.trust.clone());
        let written = on_disk(move || {
            let there = read_current(&folder);
            // Another process, of a store's copy that is ahead of ours, has been here since we looked.
            if there.as_ref().is_some_and(|there| there.sequence > ours.sequence) && there != noted
            {
                return there;
            }
            let written = write(&folder, "CURRENT", &ours.to_bytes());
            let pruned = written.and_then(|()| prune(&folder, &manifest, &ours, &trust));
            trouble.tell(&folder, &pruned);
            Some(ours)
        })
        .await;
        if let Some(Some(current)) = written {
            self.noted().insert(name, current);
        }
    }

    /// The generation that was verified last, by this process or another; `None` if there is none, or it is not right.
    pub(super) async fn last(&self, audience: &AudienceName) -> Option<(Current, Manifest)> {
        let (folder, name, trouble) =
            (self.folder(audience), audience.clone(), Arc::clone(&self.trouble));
        let trust = self.trust.clone();
        let last = on_disk(move || {
            let current = read_current(&folder)?;
            let file = read_signed(
                &folder,
                &format!("{}.json", current.generation),
                MAX_MANIFEST_BYTES,
                &trust,
            )
            .ok()?;
            let path = folder.join(format!("{}.json", current.generation));
            if let Err(error) = trust.check_manifest(&name, current.generation, &file) {
                trouble.doubt(&path, &error);
                return None;
            }
            match Manifest::parse_named(&file.bytes, &name, &current) {
                Ok(manifest) => Some((current, manifest)),
                Err(error) => {
                    trouble.distrust(&path, &error);
                    None
                }
            }
        })
        .await
        .flatten();
        if let Some((current, _)) = &last {
            self.noted().insert(audience.clone(), current.clone());
        }
        last
    }

    /// Remembers what is there before the store is asked for the first time.
    pub(super) async fn note(&self, audience: &AudienceName) {
        let folder = self.folder(audience);
        if let Some(Some(current)) = on_disk(move || read_current(&folder)).await {
            self.noted().insert(audience.clone(), current);
        }
    }

    fn noted(&self) -> std::sync::MutexGuard<'_, HashMap<AudienceName, Current>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The audiences of which a cache in this folder holds a generation, sorted: for a pod whose config names none and whose store
/// cannot. Blocks.
pub fn cached_audiences(root: &Path) -> Vec<AudienceName> {
    let Ok(entries) = std::fs::read_dir(root) else { return Vec::new() };
    let paths = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| read_current(path).is_some());
    let mut names: Vec<AudienceName> =
        paths.filter_map(|path| path.file_name()?.to_str()?.parse().ok()).collect();
    names.sort();
    names
}

fn read_current(folder: &Path) -> Option<Current> {
    let bytes = read_at_most(&folder.join("CURRENT"), MAX_CURRENT_BYTES).ok()?;
    Current::parse(&bytes).ok()
}

/// Work on the blocking pool; `None` if it panicked, which costs the cache like any other failure.
async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}

#[cfg(test)]
mod tests;
