//! Publishing: chunks, then the manifest, then `CURRENT`; one publish at a time.
//!
//! Steps for the caller:
//!
//! 1. [`StoreWriter::base`] records the live generation before the work begins.
//! 2. [`StoreWriter::publish`] opens the publication, if the base is still live.
//! 3. [`Publication::commit`] makes it live in one write, if the base is still live. It takes a
//!    manifest of stored chunks and facts, and returns what it published.
//!
//! | killed | visible to readers | left behind |
//! |---|---|---|
//! | before `commit` writes `CURRENT` | the old generation | chunks, perhaps a signature or a manifest, whose number is skipped |
//! | after | the new generation | nothing |
//!
//! A loader holds the lock file of a directory throughout (`write/lock.rs`), so a second loader
//! fails before it writes. The put of `CURRENT` into an object store is conditional on the base,
//! and the second loader fails there. The publication checks between the manifest and `CURRENT`
//! that no gc has removed its files (`write/gc/guard.rs`).

use std::collections::HashSet;

use object_store::path::Path;
use object_store::{ObjectStoreExt, PutMode, PutPayload};

use super::base::Base;
use super::chunks::{put_unless_held, safe_chunks, sync_chunks};
use super::current::CurrentUpdate;
use super::deltas::{in_order, merged, sign_deltas};
use super::gc::guard;
use super::live::{Candidate, RetainedDeltas, go_live};
use super::lock::lock;
use super::probe::check_conditions;
use super::writer::StoreWriter;
use crate::error::StoreError;
use crate::layout::{current_path, manifest_path, signature_path};
use rtad_core::files::FileLock;
use rtad_core::snapshot::{
    AudienceName, BuiltChunk, Current, DeltaEntry, Digest, Folded, Manifest,
};

/// Deltas that a generation carries on from earlier ones. More are merged into one.
const MAX_CARRIED_DELTAS: usize = 100;

/// A running publish. Dropping it changes nothing for readers.
#[derive(Debug)]
pub struct Publication<'w> {
    pub(super) writer: &'w StoreWriter,
    pub(super) base: Base,
    generation: u64,
    /// The live chunks of an object store, which no gc removes while `CURRENT` is unchanged.
    safe_chunks: HashSet<Digest>,
    _lock: Option<FileLock>,
}

/// A generation that was made live.
#[derive(Debug, Clone)]
pub struct Published {
    /// Its manifest, as in the store.
    pub manifest: Manifest,
    /// The `CURRENT` that made it live.
    pub current: Current,
}

impl StoreWriter {
    /// Opens a publication over `base`. Creates the audience's folder in a directory, and takes the
    /// lock.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`] if another loader is publishing, or has published since `base`.
    pub async fn publish(&self, base: Base) -> Result<Publication<'_>, StoreError> {
        let (store, audience) = (self.store(), base.audience());
        // Before chunks are written.
        check_conditions(self.backend(), &current_path(audience)).await?;
        let lock = lock(self.backend(), audience, self.creates()).await?;
        let live = store.live(audience).await?;
        base.check_is_live(live.as_ref())?;
        // The new generation is above every manifest and signature, those of killed publishes
        // included, and above the generations that were rolled back from.
        let published = store.listed_manifests(audience).await?.highest();
        let named = live
            .as_ref()
            .map_or(0, |live| live.current.highest_generation());
        // A forged `CURRENT` with u64::MAX makes commit fail, because the manifest exists.
        let generation = published.max(named).saturating_add(1);
        let safe_chunks = safe_chunks(store, audience, live.as_ref()).await?;
        Ok(Publication {
            writer: self,
            base,
            generation,
            safe_chunks,
            _lock: lock,
        })
    }
}

impl Publication<'_> {
    /// The audience being published.
    pub const fn audience(&self) -> &AudienceName {
        self.base.audience()
    }

    /// The generation being published.
    pub(crate) const fn generation(&self) -> u64 {
        self.generation
    }

    /// Uses a number as if opened before another loader used it.
    #[cfg(test)]
    pub(crate) const fn renumber(&mut self, generation: u64) {
        self.generation = generation;
    }

    /// Writes a chunk, durably, unless the store holds it. Returns whether it was written. May be
    /// called concurrently; each chunk is in memory until written.
    ///
    /// # Errors
    ///
    /// A store error.
    pub async fn put_chunk(&self, chunk: BuiltChunk) -> Result<bool, StoreError> {
        put_unless_held(
            self.writer.backend(),
            self.audience(),
            chunk,
            &self.safe_chunks,
        )
        .await
    }

    /// Numbers a manifest of stored chunks, writes it and makes it live.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`] if another loader published meanwhile, or a gc removed a file that
    /// this generation needs; [`StoreError::Unsigned`]: the live generation is untouched.
    ///
    /// # Panics
    ///
    /// If the manifest is not of this publication's audience.
    pub async fn commit(self, manifest: Manifest) -> Result<Published, StoreError> {
        assert_eq!(
            manifest.audience(),
            self.audience(),
            "the manifest is of the publication's audience"
        );
        self.writer.check_unsigned_write(self.audience()).await?;
        let manifest = self.completed(manifest).await?;
        sync_chunks(self.writer.backend(), &manifest).await?;

        // Written once: a second writer of the same generation loses here.
        let path = manifest_path(self.audience(), self.generation);
        let bytes = manifest.to_bytes();
        self.writer
            .put_signed(self.audience(), &path, bytes.clone(), PutMode::Create)
            .await?;

        let done = async {
            self.check_not_withdrawn(&path).await?;
            guard::check_manifest(self.writer.backend(), &manifest).await?;
            let candidate = Candidate {
                generation: self.generation,
                manifest: &bytes,
                rolled_back_from: None,
                deltas: RetainedDeltas::over(&manifest),
                has_signature: false,
            };
            go_live(self.writer, &self.base, &candidate).await
        };
        match done.await {
            Ok(current) => Ok(Published { manifest, current }),
            Err(error) => {
                if matches!(error, StoreError::Conflict { .. }) {
                    self.withdraw(&path).await;
                }
                Err(error)
            }
        }
    }

    /// The manifest with its number, the generation that it replaces, and the folded deltas as they
    /// are live now. Signs the deltas that `CURRENT` or the manifest will name: early, so that
    /// nothing is written if the writer may not. Later ones are signed when the generation goes
    /// live.
    async fn completed(&self, manifest: Manifest) -> Result<Manifest, StoreError> {
        let update = CurrentUpdate::begin(self.writer, self.audience()).await?;
        let replaced = self.base.with_generation();
        let mut manifest = manifest
            .numbered(self.generation)
            .over_generation(replaced.map_or(0, |current| current.generation));

        if let Some(mut folded) = manifest.folded().cloned() {
            self.base.check_is_live(update.live.as_ref())?;
            folded.deltas = folded_deltas(&update, &folded).await?;
            manifest = manifest.with_folded(folded);
        }

        let live = self.base.current().into_iter();
        let live = live.flat_map(Current::delta_entries);
        let named: HashSet<_> = live.chain(manifest.folded_deltas()).collect();
        sign_deltas(&update, named).await?;
        Ok(manifest)
    }

    /// Checks that no other loader has withdrawn a manifest of this number: its delete may still be
    /// repeated.
    async fn check_not_withdrawn(&self, path: &Path) -> Result<(), StoreError> {
        // A signer has created the signature, which excludes the other loader.
        if self.writer.backend().is_directory() || self.writer.signs() {
            return Ok(());
        }
        match self
            .writer
            .store()
            .objects(path)
            .await?
            .head(&signature_path(path))
            .await
        {
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(source) => Err(StoreError::backend(
                "look up",
                &signature_path(path),
                source,
            )),
            Ok(_) => {
                let reason =
                    "another process withdrew a manifest of this generation; run this again";
                Err(StoreError::conflict(self.audience(), reason, true))
            }
        }
    }

    /// Removes the manifest of a failed publish. Ignores errors: the caller reports the first one.
    ///
    /// The client may repeat a delete in an object store whose answer was lost, when another loader
    /// has already written a manifest of this number. The number therefore stays reserved by its
    /// signature, an empty one if there is no signer, until a gc removes it.
    async fn withdraw(&self, path: &Path) {
        let store = self.writer.store();
        // If this generation was live, the manifest may be another loader's, with the same bytes.
        if let Ok(Some(live)) = store.live(self.audience()).await
            && live.current.highest_generation() >= self.generation
        {
            return;
        }
        let Ok(objects) = store.objects(path).await else {
            return;
        };
        let signature = signature_path(path);
        if store.is_remote() {
            let reserved = match self.writer.signs() {
                true => Ok(()),
                false => objects.put(&signature, PutPayload::new()).await.map(|_| ()),
            };
            if reserved.is_ok() {
                let _ = objects.delete(path).await;
            }
            return;
        }
        // The manifest first: it must never exist without its signature.
        let _ = objects.delete(path).await;
        if self.writer.signs() {
            let _ = objects.delete(&signature).await;
        }
    }
}

/// The folded deltas as they are live now: those that the build read may have been merged and
/// removed. Merged deltas may contain later changes, which are applied again. The deltas that the
/// manifest carries on from its base come first.
async fn folded_deltas(
    update: &CurrentUpdate<'_>,
    folded: &Folded,
) -> Result<Vec<DeltaEntry>, StoreError> {
    let mut all = folded.deltas.clone();
    if all.len() > MAX_CARRIED_DELTAS {
        all = Vec::from_iter(merged(update, &all).await?);
    }
    let live = update.live.iter().flat_map(|live| &live.current.deltas);
    all.extend(live.filter(|delta| delta.first <= folded.through).cloned());
    Ok(in_order(all))
}
