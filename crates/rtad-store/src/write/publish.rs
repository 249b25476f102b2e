//! Publishing: chunks, then the manifest, then the record.
//!
//! Steps for the caller:
//!
//! 1. [`StoreWriter::base`] reads the live state before the work begins.
//! 2. [`StoreWriter::publish`] opens the publication, if the base is still live.
//! 3. [`Publication::commit`] makes it live in one write, if the base is still live. It takes a
//!    manifest of stored chunks and facts, and returns what it published.
//!
//! | killed | visible to readers | left behind |
//! |---|---|---|
//! | before the record | the old generation | chunks, perhaps a manifest |
//! | after | the new generation | nothing |
//!
//! Files that are left behind have names of their content, and are removed by a gc once they are
//! old. Two loaders may publish at once: one of them creates the next record, the other fails.

use std::sync::atomic::{AtomicBool, Ordering};

use super::base::Base;
use super::chunks::{StableFiles, check_files, put_unless_held, sync_chunks};
use super::deltas::{in_order, merged};
use super::folder::prepare_folder;
use super::live::{Candidate, RetainedDeltas, go_live};
use super::update::RecordUpdate;
use super::writer::StoreWriter;
use crate::error::StoreError;
use crate::layout::{audience_path, manifest_path, manifests_path, number_of};
use rtad_core::snapshot::{
    AudienceName, BuiltChunk, Current, DeltaEntry, Folded, GenerationEntry, Manifest,
};

/// Deltas that a generation carries on from earlier ones. More are merged into one.
const MAX_CARRIED_DELTAS: usize = 100;

/// A running publish. Dropping it changes nothing for readers.
#[derive(Debug)]
pub struct Publication<'w> {
    pub(super) writer: &'w StoreWriter,
    pub(super) base: Base,
    generation: u64,
    /// The files of the base, which no gc removes while it is live.
    stable: StableFiles,
    /// Whether a gc may be removing a file under the name of a chunk.
    has_renewed: AtomicBool,
}

/// A generation that was made live.
#[derive(Debug, Clone)]
pub struct Published {
    /// Its manifest, as in the store.
    pub manifest: Manifest,
    /// The state that it is live in.
    pub current: Current,
}

impl StoreWriter {
    /// Opens a publication over `base`. Creates the audience's folder in a directory.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`] if another loader has published since `base`,
    /// [`StoreError::Conditions`], [`StoreError::Unsigned`], or a store error.
    pub async fn publish(&self, base: Base) -> Result<Publication<'_>, StoreError> {
        let store = self.store();
        let audience = base.audience();
        prepare_folder(self, &audience_path(audience)).await?;
        // Before chunks are written.
        self.check_creates(audience).await?;

        let live = store.live(audience).await?;
        base.check_is_live(live.as_ref())?;
        if let Some(live) = &live {
            self.check_signs(audience, live)?;
        }
        let generation = match &live {
            Some(live) => live.current.next_generation(),
            None => self.unused_generation(audience).await?,
        };
        let stable = StableFiles::of(store, audience, live.as_ref()).await?;
        Ok(Publication {
            writer: self,
            base,
            generation,
            stable,
            has_renewed: AtomicBool::new(false),
        })
    }

    /// A number above those of all manifests, for a first publish: records may have been lost.
    async fn unused_generation(&self, audience: &AudienceName) -> Result<u64, StoreError> {
        let mut highest = 0;
        for object in self.backend().list(&manifests_path(audience)).await? {
            let name = object.location.filename().unwrap_or_default();
            let generation = name
                .split_once('-')
                .and_then(|(number, _)| number_of(number));
            highest = highest.max(generation.unwrap_or(0));
        }
        Ok(highest.saturating_add(1))
    }
}

impl Publication<'_> {
    /// The audience being published.
    pub const fn audience(&self) -> &AudienceName {
        self.base.audience()
    }

    /// Writes a chunk, durably, unless the store holds it. Returns whether it was written. May be
    /// called concurrently; each chunk is in memory until written.
    ///
    /// # Errors
    ///
    /// A store error.
    pub async fn put_chunk(&self, chunk: BuiltChunk) -> Result<bool, StoreError> {
        let put = put_unless_held(self.writer, self.audience(), chunk, &self.stable).await?;
        if put.is_renewed {
            self.expect_deletes();
        }
        Ok(put.is_written)
    }

    /// Lets the commit wait for deletes that a gc sent before it could see a renewed chunk: for
    /// chunks that were put ahead.
    pub fn expect_deletes(&self) {
        self.has_renewed.store(true, Ordering::Relaxed);
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
        self.commit_for(manifest, None).await
    }

    /// As [`Publication::commit`], for a share of the pods, in millionths: the others go on serving
    /// the live generation, until [`StoreWriter::promote`].
    ///
    /// # Errors
    ///
    /// Those of [`Publication::commit`]; [`StoreError::NothingStaged`] without a live generation.
    ///
    /// # Panics
    ///
    /// If the manifest is not of this publication's audience.
    pub async fn commit_staged(
        self,
        manifest: Manifest,
        pods_per_million: u32,
    ) -> Result<Published, StoreError> {
        if self.base.with_generation().is_none() {
            return Err(StoreError::NothingStaged {
                audience: self.audience().clone(),
                reason: "nothing is live that the other pods could serve: publish without a stage",
            });
        }
        self.commit_for(manifest, Some(pods_per_million)).await
    }

    async fn commit_for(
        self,
        manifest: Manifest,
        pods_per_million: Option<u32>,
    ) -> Result<Published, StoreError> {
        assert_eq!(
            manifest.audience(),
            self.audience(),
            "the manifest is of the publication's audience"
        );
        let manifest = self.completed(manifest).await?;
        let backend = self.writer.backend();
        sync_chunks(backend, &manifest).await?;

        let bytes = manifest.to_bytes();
        let entry = GenerationEntry::of(self.generation, &bytes);
        if self.has_renewed.load(Ordering::Relaxed) {
            self.writer.wait_for_deletes().await;
        }
        let path = manifest_path(self.audience(), &entry);
        self.writer.put(&path, bytes.clone()).await?;
        let now = self.writer.store().written_at(&path).await?;
        let old_deltas = check_files(backend, &manifest, &self.stable, now).await?;

        let candidate = Candidate {
            generation: self.generation,
            manifest: &bytes,
            rolled_back_from: None,
            deltas: RetainedDeltas::over(&manifest),
            pods_per_million,
            old_deltas,
        };
        let current = go_live(self.writer, &self.base, &candidate).await?;
        Ok(Published { manifest, current })
    }

    /// The manifest with its number, the generation that it replaces, and the folded deltas as they
    /// are live now.
    async fn completed(&self, manifest: Manifest) -> Result<Manifest, StoreError> {
        let update = RecordUpdate::begin(self.writer, self.audience()).await?;
        self.base.check_is_live(update.live.as_ref())?;

        let replaced = self.base.with_generation();
        let manifest = manifest
            .numbered(self.generation)
            .over_generation(replaced.map_or(0, |current| current.generation));

        let Some(mut folded) = manifest.folded().cloned() else {
            return Ok(manifest);
        };
        folded.deltas = folded_deltas(&update, &folded).await?;
        Ok(manifest.with_folded(folded))
    }
}

/// The folded deltas as they are live now: those that the build read may have been merged and
/// removed. Merged deltas may contain later changes, which are applied again. The deltas that the
/// manifest carries on from its base come first.
async fn folded_deltas(
    update: &RecordUpdate<'_>,
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
