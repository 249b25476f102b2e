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

mod chunks;
mod lock;
mod rollback;

use std::collections::HashSet;
use std::fs::File;

use object_store::path::Path;
use object_store::{ObjectStoreExt, PutMode};

use super::trust::signature_path;
use super::{Live, Store, StoreError, manifest_path};
use rtad_core::snapshot::{
    AudienceName, BuiltChunk, BuiltDelta, ChunkEntry, Current, DeltaEntry, Digest, Folded, Manifest, State,
};

/// So often `CURRENT` is written again because deltas were published just then.
const MAX_TRIES: u32 = 100;

/// What was live when the work began.
#[derive(Debug, Clone)]
pub struct Base {
    audience: AudienceName,
    current: Option<Current>,
}

impl Base {
    /// A base that was noted in another process; what it was then is known by its `CURRENT`.
    pub const fn noted(audience: AudienceName, current: Option<Current>) -> Self {
        Self { audience, current }
    }

    /// The audience that is to be published.
    pub const fn audience(&self) -> &AudienceName {
        &self.audience
    }

    /// The live `CURRENT`, if there was one.
    pub const fn current(&self) -> Option<&Current> {
        self.current.as_ref()
    }

    /// What a build that takes up these deltas says of itself; `None` if nothing was live.
    pub fn folded(&self) -> Option<Folded> {
        self.current().map(|current| Folded { through: current.sequence, ..Folded::default() })
    }

    /// That nobody published a generation since. Deltas may have come: those are kept.
    fn is_live_still(&self, live: Option<&Live>) -> Result<(), StoreError> {
        let published = |current: Option<&Current>| current.map_or(0, Current::published_sequence);
        let live = live.map(|live| &live.current);
        if published(live) == published(self.current()) {
            return Ok(());
        }
        let now = live.map_or(0, |current| current.generation);
        let then = self.current().map_or(0, |current| current.generation);
        let reason = format!("generation {now} was published since this work began at generation {then}");
        Err(StoreError::Conflict { audience: self.audience.clone(), reason, passes: false })
    }
}

/// The deltas that go with a generation that is made live.
#[derive(Debug)]
struct Carried {
    /// Of what is live then: those that came after this sequence.
    through: u64,
    /// Before them, by the generation that has taken them up.
    older: Vec<Vec<DeltaEntry>>,
    /// Residuals of other generations, which are not to apply to this one: the deltas that they restate do.
    left_out: HashSet<DeltaEntry>,
    /// See [`Current::no_merge_through`].
    no_merge_through: Option<u64>,
}

impl Carried {
    /// What a generation has not taken up.
    fn over(manifest: &Manifest) -> Self {
        let (through, residual) =
            manifest.folded().map_or((0, None), |folded| (folded.through, folded.residual.clone()));
        let no_merge_through = residual.as_ref().map(|residual| residual.last);
        let older = residual.into_iter().map(|residual| vec![residual]).collect();
        Self { through, older, left_out: HashSet::new(), no_merge_through }
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
        let live = self.live(audience).await?;
        Ok(Base::noted(audience.clone(), live.map(|live| live.current)))
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
        base.is_live_still(live.as_ref())?;
        // Past every manifest or signature of one, also what a publish left behind that was killed, and past what was rolled
        // back from.
        let published = self.manifests(&audience).await?.highest();
        let named = live.as_ref().map_or(0, |live| live.current.highest_generation());
        // At the last number there is (a `CURRENT` that somebody tampered with), commit finds the manifest taken.
        let generation = published.max(named).saturating_add(1);
        let safe_chunks = self.safe_chunks(&audience, live.as_ref()).await?;
        Ok(Publication { store: self, base, generation, safe_chunks, _lock: lock })
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
        self.store.put_unless_held(&self.base.audience, chunk, &self.safe_chunks).await
    }

    /// Whether the store holds a chunk, by its name and size, and will go on to for as long as this publish takes. What has lain in
    /// an object store for long without being live does not count: a gc may be about to remove it.
    ///
    /// # Errors
    ///
    /// The store's own.
    pub async fn holds_chunk(&self, entry: &ChunkEntry) -> Result<bool, StoreError> {
        self.store.holds_chunk(&self.base.audience, entry, &self.safe_chunks).await
    }

    /// Writes a delta that the manifest is to name as its residual.
    ///
    /// # Errors
    ///
    /// The store's own.
    pub async fn put_delta(&self, delta: &BuiltDelta) -> Result<(), StoreError> {
        // What is half-written in this folder is swept by whoever has the lock.
        let _lock = self.store.lock_current(&self.base.audience).await?;
        self.store.put_delta(&self.base.audience, delta).await
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
        let manifest = &self.with_taken_up(manifest).await?;
        let bytes = manifest.to_bytes();
        let path = manifest_path(&self.base.audience, self.generation);
        // Written once: a second writer of the same generation loses here.
        self.store.put_signed(&self.base.audience, &path, bytes.clone(), PutMode::Create).await?;
        let done = async {
            self.sign_what_is_carried().await?;
            self.survives_gc(manifest).await?;
            self.point_at(self.generation, &bytes, None, &Carried::over(manifest)).await
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

    /// Signs what `CURRENT` will go on naming and nobody has signed, as it was published before there was a key.
    async fn sign_what_is_carried(&self) -> Result<(), StoreError> {
        let Some(current) = self.base.current().filter(|_| self.store.signs()) else { return Ok(()) };
        let unsigned = self.store.clone().with_public_keys(Vec::new());
        let audience = &self.base.audience;
        for entry in current.deltas.iter().chain(&current.tombstones) {
            if self.store.has_signature(audience, entry).await? {
                continue;
            }
            match unsigned.delta_and_file(audience, entry).await {
                Ok((_, file)) => {
                    let _lock = self.store.lock_current(audience).await?;
                    self.store.put_delta_file(audience, entry, file.bytes).await?;
                }
                // Merged into another since, which was signed when it was written, or will be with the next build.
                Err(StoreError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Names the deltas that the generation has taken up by what is live now: those that the build read may have been merged
    /// since, and removed. With them may come younger changes, which are applied again where these are.
    async fn with_taken_up(&self, manifest: &Manifest) -> Result<Manifest, StoreError> {
        let Some(folded) = manifest.folded().cloned() else { return Ok(manifest.clone()) };
        let live = self.store.live(&self.base.audience).await?;
        self.base.is_live_still(live.as_ref())?;
        let deltas = live.into_iter().flat_map(|live| live.current.deltas);
        let deltas = deltas.filter(|delta| delta.first <= folded.through).collect();
        Ok(manifest.clone().with_folded(Folded { deltas, ..folded }))
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

    /// Makes a generation live, with the deltas that are carried over. Deltas may be published meanwhile: then
    /// it is done again over them.
    async fn point_at(
        &self,
        generation: u64,
        manifest: &[u8],
        rolled_back_from: Option<u64>,
        carried: &Carried,
    ) -> Result<(), StoreError> {
        let audience = &self.base.audience;
        let mut tried: Option<Current> = None;
        for tries in 0.. {
            let _lock = self.store.lock_current(audience).await?;
            let live = self.store.live(audience).await?;
            let is_done = |live: &Live, tried: &Current| {
                live.current.published_sequence() == tried.sequence
                    && live.current.manifest_sha256 == tried.manifest_sha256
            };
            // Its answer was lost, and something was appended to it before it could be looked for.
            if live.as_ref().zip(tried.as_ref()).is_some_and(|(live, tried)| is_done(live, tried)) {
                return Ok(());
            }
            self.base.is_live_still(live.as_ref())?;
            let was = live.as_ref().map(|live| &live.current);
            let sequence = match was {
                Some(current) => current.sequence,
                None => self.store.highest_sequence(audience).await?,
            };
            let sequence = sequence.saturating_add(1);
            let mut current = Current::new(sequence, generation, manifest, rolled_back_from);
            if let Some(was) = was {
                let newer = was.deltas.iter().filter(|delta| delta.last > carried.through);
                let mut newer: Vec<_> =
                    newer.filter(|delta| !carried.left_out.contains(delta)).cloned().collect();
                let apart = newer.partition_point(|delta| Some(delta.last) <= carried.no_merge_through);
                let later = newer.split_off(apart);
                let groups = [&carried.older[..], &[newer, later]].concat();
                current.deltas = self.store.joined(audience, sequence, &groups).await?;
                current.no_merge_through = carried.no_merge_through;
                current.tombstones.clone_from(&was.tombstones);
                current.appended_unix_seconds = was.appended_unix_seconds;
                current.state = if was.state == State::Deleted { State::Live } else { was.state };
                current.expires_unix_seconds = was.expires_unix_seconds;
            }
            match self.store.replace_current(audience, live.as_ref(), &current).await {
                // By an append, or by another loader: the next look tells.
                Err(StoreError::Conflict { .. }) if tries < MAX_TRIES => tried = Some(current),
                done => return done.map(|_| ()),
            }
        }
        unreachable!("the last try is returned")
    }

    async fn put(&self, path: &Path, bytes: Vec<u8>, mode: PutMode) -> Result<(), StoreError> {
        self.store.put(&self.base.audience, path, bytes, mode).await.map(|_| ())
    }

    /// With a gc.
    pub(super) fn conflict(&self, reason: String) -> StoreError {
        StoreError::Conflict { audience: self.base.audience.clone(), reason, passes: true }
    }
}
