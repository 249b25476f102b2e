//! Publishing: chunks, then the manifest, then `CURRENT`; never two at once.
//!
//! A publish is three steps for its caller. [`Store::base`] notes what is live before the work begins; [`Store::publish`]
//! opens the publication if that is still so; [`Publication::commit`] makes it live, in one write, if it *still* is.
//!
//! | killed | what readers see | what is left behind |
//! |---|---|---|
//! | before `commit` writes `CURRENT` | the old generation | chunks and perhaps a manifest that nothing names; the next generation's number skips it |
//! | after | the new generation | nothing |
//!
//! In a directory the lock file is held throughout, so that a loader that comes second notices before it has written
//! anything. The kernel drops the lock with its holder, however that ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;

use object_store::path::Path;
use object_store::{ObjectStoreExt, PutMode, PutOptions, PutPayload};

use super::{Backend, Live, Store, StoreError, blocking, chunk_path, current_path, manifest_path};
use crate::snapshot::{AudienceName, BuiltChunk, Current, Manifest};

/// What was live when the work began.
#[derive(Debug, Clone)]
pub struct Base {
    audience: AudienceName,
    live: Option<Live>,
}

impl Base {
    /// The live `CURRENT`, if there was one.
    pub fn current(&self) -> Option<&Current> {
        self.live.as_ref().map(|live| &live.current)
    }
}

/// A publish under way. Dropping it changes nothing for readers.
#[derive(Debug)]
pub struct Publication<'store> {
    store: &'store Store,
    base: Base,
    generation: u64,
    _lock: Option<File>,
}

impl Store {
    /// Notes what is live, so that a publish can tell whether somebody else published meanwhile.
    ///
    /// # Errors
    ///
    /// The store's own, or a `CURRENT` that is refused.
    pub async fn base(&self, audience: &AudienceName) -> Result<Base, StoreError> {
        Ok(Base { audience: audience.clone(), live: self.live(audience).await? })
    }

    /// Opens a publication over `base`. In a directory this makes the folders and takes the lock.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`] if somebody else publishes, or has published since `base`.
    pub async fn publish(&self, base: Base) -> Result<Publication<'_>, StoreError> {
        let audience = base.audience.clone();
        let lock = match &self.backend {
            Backend::Memory(_) => None,
            Backend::Directory(root) => {
                let folder = root.join(audience.as_str());
                let locked = blocking(move || lock_and_sweep(&folder)).await;
                let failed = |source: io::Error| StoreError::Backend {
                    action: "lock",
                    path: audience.to_string(),
                    source: source.into(),
                };
                let lock = locked.map_err(failed)?;
                let reason = "another loader is publishing this audience";
                Some(lock.ok_or_else(|| StoreError::Conflict {
                    audience: audience.clone(),
                    reason: reason.into(),
                })?)
            }
        };
        let live = self.live(&audience).await?;
        let sequence = |live: Option<&Live>| live.map_or(0, |live| live.current.sequence);
        if sequence(live.as_ref()) != sequence(base.live.as_ref()) {
            let now = live.as_ref().map_or(0, |live| live.current.generation);
            let then = base.live.as_ref().map_or(0, |live| live.current.generation);
            let reason = format!("generation {now} was published since this work began at generation {then}");
            return Err(StoreError::Conflict { audience, reason });
        }
        // Past every manifest, also one left behind by a publish that was killed, and past what was rolled back from.
        let published = self.generations(&audience).await?.last().copied().unwrap_or(0);
        let named = live.as_ref().map_or(0, |live| live.current.highest_generation());
        // At the last number there is (a `CURRENT` that somebody tampered with), commit finds the manifest taken.
        let generation = published.max(named).saturating_add(1);
        Ok(Publication { store: self, base: Base { audience, live }, generation, _lock: lock })
    }
}

/// Makes the audience's folder, takes its lock, and removes what a killed writer left half-written. `None`: the lock is held.
fn lock_and_sweep(folder: &std::path::Path) -> io::Result<Option<File>> {
    std::fs::create_dir_all(folder)?;
    // object_store syncs what it makes below; that the folder is there at all is ours to make sure of.
    for parent in folder.ancestors().skip(1).take(2).filter(|parent| !parent.as_os_str().is_empty()) {
        File::open(parent)?.sync_all()?;
    }
    let lock = OpenOptions::new().create(true).write(true).truncate(false).open(folder.join("LOCK"))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    for part in ["", "manifests", "chunks"] {
        let entries = match std::fs::read_dir(folder.join(part)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            // object_store stages a write under the final name, a '#' and a number; no name of ours has a '#'.
            if entry.file_name().as_encoded_bytes().contains(&b'#') {
                std::fs::remove_file(entry.path())?;
            }
        }
    }
    Ok(Some(lock))
}

impl Publication<'_> {
    /// The audience that is published.
    pub const fn audience(&self) -> &AudienceName {
        &self.base.audience
    }

    /// The generation that this publication makes.
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Writes a chunk, durably, unless the store holds it already. Returns whether it was written.
    ///
    /// # Errors
    ///
    /// The store's own.
    pub async fn put_chunk(&self, chunk: BuiltChunk) -> Result<bool, StoreError> {
        let path = chunk_path(&self.base.audience, &chunk.entry);
        match self.store.chunk_size(&self.base.audience, &chunk.entry).await {
            // Compared and not believed: a file that has rotted is made good by the next build.
            Ok(size) if size == chunk.entry.size_bytes && self.holds(&path, &chunk.bytes).await? => {
                return Ok(false);
            }
            Ok(_) | Err(StoreError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        self.put(&path, chunk.bytes, PutMode::Overwrite).await?;
        Ok(true)
    }

    /// Writes the manifest and makes it live.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`] if somebody else published meanwhile: what they published is untouched.
    ///
    /// # Panics
    ///
    /// If the manifest is not of this publication's audience and generation.
    pub async fn commit(self, manifest: &Manifest) -> Result<u64, StoreError> {
        assert_eq!(manifest.audience(), &self.base.audience, "the manifest is of the publication's audience");
        assert_eq!(manifest.generation(), self.generation, "the manifest is of the publication's generation");
        let bytes = manifest.to_bytes();
        let path = manifest_path(&self.base.audience, self.generation);
        // Written once: a second writer of the same generation loses here.
        self.put(&path, bytes.clone(), PutMode::Create).await?;
        match self.point_at(self.generation, &bytes, None).await {
            Ok(()) => Ok(self.generation),
            Err(error) => {
                // Nothing names the manifest; what matters is the error above, not whether the clean-up went well.
                if matches!(error, StoreError::Conflict { .. })
                    && let Ok(objects) = self.store.objects(&path)
                {
                    let _ = objects.delete(&path).await;
                }
                Err(error)
            }
        }
    }

    /// Makes an older generation live again, after looking that every chunk of it is there.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`] or [`StoreError::Chunk`] if the generation is not whole, [`StoreError::Conflict`] if somebody
    /// else published meanwhile.
    pub async fn roll_back(self, generation: u64) -> Result<(), StoreError> {
        let audience = &self.base.audience;
        let (manifest, bytes) = self.store.manifest_of(audience, generation).await?;
        for entry in manifest.chunks() {
            let found = self.store.chunk_size(audience, entry).await?;
            if found != entry.size_bytes {
                let source = crate::snapshot::ChunkError::Length { found, expected: entry.size_bytes };
                return Err(StoreError::Chunk { path: chunk_path(audience, entry).to_string(), source });
            }
        }
        // A reader may still hold what was live before an earlier rollback, so that stays the mark. Only going forward again,
        // to what was rolled back from, is no rollback.
        let from = self.base.current().map(Current::highest_generation).filter(|from| *from > generation);
        self.point_at(generation, &bytes, from).await
    }

    /// Whether the object is these bytes.
    async fn holds(&self, path: &Path, bytes: &[u8]) -> Result<bool, StoreError> {
        let failed = |source| StoreError::backend("read", path, source);
        let held =
            self.store.objects(path)?.get(path).await.map_err(failed)?.bytes().await.map_err(failed)?;
        Ok(held == bytes)
    }

    async fn point_at(
        &self,
        generation: u64,
        manifest: &[u8],
        rolled_back_from: Option<u64>,
    ) -> Result<(), StoreError> {
        let sequence = self.base.current().map_or(0, |current| current.sequence).saturating_add(1);
        let current = Current::new(sequence, generation, manifest, rolled_back_from);
        let mode = match (&self.base.live, self.store.directory()) {
            // The lock is held and CURRENT was compared under it: the rename cannot overwrite another's.
            (_, Some(_)) => PutMode::Overwrite,
            (None, None) => PutMode::Create,
            (Some(live), None) => PutMode::Update(live.version.clone()),
        };
        self.put(&current_path(&self.base.audience), current.to_bytes(), mode).await
    }

    async fn put(&self, path: &Path, bytes: Vec<u8>, mode: PutMode) -> Result<(), StoreError> {
        let options = PutOptions { mode, ..PutOptions::default() };
        let put = self.store.objects(path)?.put_opts(path, PutPayload::from(bytes), options).await;
        put.map(|_| ()).map_err(|source| match source {
            object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. } => {
                let reason = format!("{} was written by another loader meanwhile", audience_relative(path));
                StoreError::Conflict { audience: self.base.audience.clone(), reason }
            }
            source => StoreError::backend("write", path, source),
        })
    }
}

fn audience_relative(path: &Path) -> String {
    path.parts().skip(1).map(|part| part.as_ref().to_owned()).collect::<Vec<_>>().join("/")
}
