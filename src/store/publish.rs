//! Publishing: chunks, then the manifest, then `CURRENT`; never two at once.
//!
//! A publish is three steps for its caller. [`Store::base`] notes what is live before the work begins; [`Store::publish`]
//! opens the publication if that is still so; [`Publication::commit`] makes it live, in one write, if it *still* is.
//!
//! | killed | what readers see | what is left behind |
//! |---|---|---|
//! | before `commit` writes `CURRENT` | the old generation | chunks and perhaps a signature or a manifest that nothing names; the next generation's number skips it |
//! | after | the new generation | nothing |
//!
//! In a directory the lock file is held throughout (`publish/lock.rs`), so that a loader that comes second notices before it
//! has written anything. In an object store `CURRENT` is put on the condition that it is what it was: the second loader loses
//! there. What a gc may have removed meanwhile is looked at between the manifest and `CURRENT`.

mod lock;

use std::collections::HashSet;
use std::fs::File;
use std::time::{Duration, SystemTime};

use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt, PutMode, PutOptions, PutPayload};

use super::{Live, Store, StoreError, chunk_path, current_path, manifest_path, trust::signature_path};
use crate::snapshot::{AudienceName, BuiltChunk, Current, Digest, Manifest};

/// Chunks whose sizes are asked for at a time.
const PARALLEL_LOOKUPS: usize = 16;
/// A chunk that is not of the live generation and older than this is written again. Half of gc's usual `--min-age`, so that
/// the rest of the publish has the other half.
const FRESH: Duration = Duration::from_secs(30 * 60);

/// What was live when the work began.
#[derive(Debug, Clone)]
pub struct Base {
    audience: AudienceName,
    live: Option<Live>,
}

impl Base {
    /// The audience.
    pub const fn audience(&self) -> &AudienceName {
        &self.audience
    }

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
    /// Of what is live, in an object store: no gc removes these while `CURRENT` is what it was.
    safe_chunks: HashSet<Digest>,
    _lock: Option<File>,
}

impl Store {
    /// Notes what is live, so that a publish can tell whether somebody else published meanwhile.
    ///
    /// # Errors
    ///
    /// The store's own, a `CURRENT` that is refused, or [`StoreError::ReadOnly`].
    pub async fn base(&self, audience: &AudienceName) -> Result<Base, StoreError> {
        // Here too, as reading the input may take an hour.
        self.writable()?;
        Ok(Base { audience: audience.clone(), live: self.live(audience).await? })
    }

    /// Opens a publication over `base`. In a directory this makes the folders and takes the lock.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`] if somebody else publishes, or has published since `base`.
    pub async fn publish(&self, base: Base) -> Result<Publication<'_>, StoreError> {
        let audience = base.audience.clone();
        self.writable()?;
        let lock = self.lock(&audience).await?;
        let live = self.live(&audience).await?;
        let sequence = |live: Option<&Live>| live.map_or(0, |live| live.current.sequence);
        if sequence(live.as_ref()) != sequence(base.live.as_ref()) {
            let now = live.as_ref().map_or(0, |live| live.current.generation);
            let then = base.live.as_ref().map_or(0, |live| live.current.generation);
            let reason = format!("generation {now} was published since this work began at generation {then}");
            return Err(StoreError::Conflict { audience, reason });
        }
        // Past every manifest or signature of one, also what a publish left behind that was killed, and past what was rolled
        // back from.
        let published = self.manifests(&audience).await?.highest();
        let named = live.as_ref().map_or(0, |live| live.current.highest_generation());
        // At the last number there is (a `CURRENT` that somebody tampered with), commit finds the manifest taken.
        let generation = published.max(named).saturating_add(1);
        let safe_chunks = match &live {
            Some(live) if !self.is_directory() => self.chunks_of(&audience, &live.current).await?,
            _ => HashSet::new(),
        };
        Ok(Publication { store: self, base: Base { audience, live }, generation, safe_chunks, _lock: lock })
    }

    /// The chunks of what is live. None if its manifest is refused, or gone: then what is published now makes it good.
    async fn chunks_of(
        &self,
        audience: &AudienceName,
        current: &Current,
    ) -> Result<HashSet<Digest>, StoreError> {
        match self.manifest(audience, current).await {
            Ok(manifest) => Ok(manifest.chunks().iter().map(|entry| entry.digest).collect()),
            Err(StoreError::NotFound { .. } | StoreError::Manifest { .. } | StoreError::Signature { .. }) => {
                Ok(HashSet::new())
            }
            Err(error) => Err(error),
        }
    }
}

impl Publication<'_> {
    /// The audience that is published.
    pub const fn audience(&self) -> &AudienceName {
        &self.base.audience
    }

    pub(super) const fn store(&self) -> &Store {
        self.store
    }

    /// The generation that this publication makes.
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Writes a chunk, durably, unless the store holds it already. Returns whether it was written. May be called for several
    /// chunks at once; each is held in memory until it is written.
    ///
    /// # Errors
    ///
    /// The store's own.
    pub async fn put_chunk(&self, chunk: BuiltChunk) -> Result<bool, StoreError> {
        let path = chunk_path(&self.base.audience, &chunk.entry);
        let objects = self.store.objects(&path)?;
        match objects.head(&path).await {
            Ok(meta) if meta.size == chunk.entry.size_bytes => {
                let held = match self.store.is_directory() {
                    // Compared and not believed: a file that has rotted is made good by the next build.
                    true => self.holds(&path, &chunk.bytes).await?,
                    // An object store keeps checksums of its own, and comparing would fetch the whole snapshot. What has lain
                    // there for long without being live is written again all the same: a gc may be about to remove it.
                    false => self.safe_chunks.contains(&chunk.entry.digest) || is_fresh(&meta),
                };
                if held {
                    return Ok(false);
                }
            }
            Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
            Err(source) => return Err(StoreError::backend("look up", &path, source)),
        }
        self.put(&path, chunk.bytes, PutMode::Overwrite).await?;
        Ok(true)
    }

    /// Writes the manifest and makes it live.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`] if somebody else published meanwhile, or a gc removed what this generation needs: what is live
    /// is untouched.
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
        self.put_signed(&path, bytes.clone(), PutMode::Create).await?;
        let done = async {
            self.survives_gc(manifest).await?;
            self.point_at(self.generation, &bytes, None).await
        };
        match done.await {
            Ok(()) => Ok(self.generation),
            Err(error) => {
                if matches!(error, StoreError::Conflict { .. }) {
                    self.withdraw(&path).await;
                }
                Err(error)
            }
        }
    }

    /// Removes the manifest that nothing names. What matters is why, not whether this went well.
    async fn withdraw(&self, path: &Path) {
        // Once so high a number was live, the manifest may be another loader's, who wrote the same to the last byte.
        if let Ok(Some(live)) = self.store.live(&self.base.audience).await
            && live.current.highest_generation() >= self.generation
        {
            return;
        }
        if let Ok(objects) = self.store.objects(path) {
            // Never a manifest without its signature.
            let _ = objects.delete(path).await;
            if self.store.signs() {
                let _ = objects.delete(&signature_path(path)).await;
            }
        }
    }

    /// Makes an older generation live again, after looking that every chunk of it is there.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`] or [`StoreError::Chunk`] if the generation is not whole, [`StoreError::Conflict`] if somebody
    /// else published meanwhile, or a gc is removing it.
    pub async fn roll_back(self, generation: u64) -> Result<(), StoreError> {
        let audience = &self.base.audience;
        let (manifest, bytes) = self.store.manifest_of(audience, generation).await?;
        if !self.store.is_directory() {
            // Written again as it is, it is new to a gc, which leaves alone what is new, and all that it names.
            self.refresh_signature(&manifest_path(audience, generation)).await?;
            self.put(&manifest_path(audience, generation), bytes.clone(), PutMode::Overwrite).await?;
            self.is_not_condemned(&manifest).await?;
        }
        let mut lookups = Vec::new();
        for entry in manifest.chunks() {
            lookups.push(async move {
                Ok::<_, StoreError>((entry, self.store.chunk_size(audience, entry).await?))
            });
        }
        let mut sizes = stream::iter(lookups).buffered(PARALLEL_LOOKUPS);
        while let Some((entry, found)) = sizes.try_next().await? {
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
        let mode = match &self.base.live {
            // The lock is held and CURRENT was compared under it: the rename cannot overwrite another's.
            _ if self.store.is_directory() => PutMode::Overwrite,
            None => PutMode::Create,
            Some(live) => PutMode::Update(live.version.clone()),
        };
        self.put_if(&current_path(&self.base.audience), current.to_bytes(), mode).await
    }

    /// Writes on a condition. An answer may be lost after the store did as it was told, and the client's own second try is then
    /// refused: so whatever goes wrong, what lies there decides.
    pub(super) async fn put_if(&self, path: &Path, bytes: Vec<u8>, mode: PutMode) -> Result<(), StoreError> {
        let written = self.put(path, bytes.clone(), mode).await;
        if written.is_err() && !self.store.is_directory() && self.holds(path, &bytes).await.unwrap_or(false) {
            return Ok(());
        }
        written
    }

    pub(super) async fn put(&self, path: &Path, bytes: Vec<u8>, mode: PutMode) -> Result<(), StoreError> {
        let options = PutOptions { mode, ..PutOptions::default() };
        let put = self.store.objects(path)?.put_opts(path, PutPayload::from(bytes), options).await;
        put.map(|_| ()).map_err(|source| match source {
            object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. } => {
                self.conflict(format!("{} was written by another loader meanwhile", audience_relative(path)))
            }
            source => StoreError::backend("write", path, source),
        })
    }

    pub(super) fn conflict(&self, reason: String) -> StoreError {
        StoreError::Conflict { audience: self.base.audience.clone(), reason }
    }
}

/// Whether it was written so lately that no gc removes it before this publish is done. A wrong clock costs an upload, or a
/// publish that has to be run again: what decides is looked at when the manifest is there (`store/gc.rs`).
fn is_fresh(meta: &ObjectMeta) -> bool {
    let age = SystemTime::now().duration_since(meta.last_modified.into());
    age.is_ok_and(|age| age < FRESH)
}

fn audience_relative(path: &Path) -> String {
    path.parts().skip(1).map(|part| part.as_ref().to_owned()).collect::<Vec<_>>().join("/")
}
