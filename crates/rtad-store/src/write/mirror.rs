//! Mirrors: the state of an audience in another store, record for record.
//!
//! Files first, then the records under the same numbers, so that readers of the mirror never find a
//! name without its file. A mirror that was stopped goes on where it was: files have names of their
//! content. Signatures hold, because a record keeps its path. Only one store of a mirrored pair is
//! written to otherwise.

use std::collections::HashSet;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use object_store::path::Path;

use super::chunks::{StableFiles, find_chunk};
use super::folder::prepare_folder;
use super::writer::StoreWriter;
use crate::error::StoreError;
use crate::layout::{
    audience_path, chunk_path, delta_name, delta_path, deltas_path, manifest_path,
};
use crate::read::{Live, Store};
use crate::records::Numbered;
use rtad_core::snapshot::{AudienceName, Current, DeltaEntry, Manifest, State};

/// Chunks copied at a time, each in memory.
const PARALLEL_COPIES: usize = 4;

/// Result of a mirror.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Mirrored {
    /// Number of the newest record of both stores.
    pub sequence: u64,
    /// Its live generation.
    pub generation: u64,
    /// Records that were written.
    pub records: u64,
    /// Chunks that were written.
    pub chunks: u64,
    /// Manifests and deltas that were written.
    pub small_files: u64,
    /// Bytes of the files that were written.
    pub bytes: u64,
    /// Kept generations whose manifest the source has lost: no rollback to them, in either store.
    pub lost_generations: u64,
}

impl StoreWriter {
    /// Copies the state of an audience from another store: what the newest record names, then that
    /// record and those before it that this store lacks. Costs seven small reads without news, else
    /// a listing and the files that are missing here.
    ///
    /// # Errors
    ///
    /// A store error of either; [`StoreError::NotFound`] if nothing was ever published there;
    /// [`StoreError::Conflict`] if this store has a record of its own under the same number;
    /// [`StoreError::Conditions`].
    pub async fn mirror_from(
        &self,
        source: &Store,
        audience: &AudienceName,
    ) -> Result<Mirrored, StoreError> {
        let newest = source.require_live(audience, None).await?;
        prepare_folder(self, &audience_path(audience)).await?;
        let here = self.store().live(audience).await?;
        self.check_same_history(source, audience, &newest, here.as_ref())
            .await?;

        let mut mirrored = Mirrored {
            sequence: newest.current.sequence,
            generation: newest.current.generation,
            ..Mirrored::default()
        };
        let held = here.as_ref().map(|here| &here.current);
        if held.is_some_and(|held| held.sequence == mirrored.sequence) {
            return Ok(mirrored);
        }

        // Before chunks are written.
        let records = self.store().records(audience);
        records.check_creates().await?;
        if newest.current.state != State::Deleted {
            self.copy_generations(
                source,
                audience,
                &newest.current,
                here.as_ref(),
                &mut mirrored,
            )
            .await?;
        }
        let deltas = newest.current.delta_entries();
        self.copy_deltas(source, audience, deltas, &mut mirrored)
            .await?;
        self.copy_records(source, audience, here.as_ref(), &mut mirrored)
            .await?;
        Ok(mirrored)
    }

    /// Refuses a store whose newest record is not one of the source.
    async fn check_same_history(
        &self,
        source: &Store,
        audience: &AudienceName,
        newest: &Live,
        here: Option<&Live>,
    ) -> Result<(), StoreError> {
        let Some(here) = here else {
            return Ok(());
        };
        let number = here.current.sequence;
        let is_ahead = number > newest.current.sequence;
        let there = source.records(audience).read(number).await?;
        // A record that a gc has removed there cannot be compared.
        let differs = there.is_some_and(|there| there.bytes != here.object());
        if is_ahead || differs {
            let reason = format!(
                "record {number} of the mirror is not that of the source: another process writes \
                 to the mirror"
            );
            return Err(StoreError::conflict(audience, reason, false));
        }
        Ok(())
    }

    async fn copy_generations(
        &self,
        source: &Store,
        audience: &AudienceName,
        newest: &Current,
        here: Option<&Live>,
        mirrored: &mut Mirrored,
    ) -> Result<(), StoreError> {
        let stable = StableFiles::of(self.store(), audience, here).await?;
        let held = here.map(|here| here.current.generations());
        let held = held.unwrap_or_default();
        for entry in newest.generations() {
            if held.contains(&entry) {
                continue;
            }
            let (manifest, bytes) = match source.manifest_and_file(audience, &entry).await {
                Err(StoreError::NotFound { .. }) if entry.generation != newest.generation => {
                    mirrored.lost_generations += 1;
                    continue;
                }
                manifest => manifest?,
            };
            self.copy_chunks(source, &manifest, &stable, mirrored)
                .await?;
            self.copy_deltas(source, audience, manifest.folded_deltas(), mirrored)
                .await?;
            let missing = self
                .store()
                .missing_chunks(audience, manifest.chunks())
                .await?;
            if !missing.is_empty() {
                let reason = "a gc of the mirror removed a chunk; run this again";
                return Err(StoreError::conflict(audience, reason, true));
            }

            let path = manifest_path(audience, &entry);
            self.put_small(&path, bytes, mirrored).await?;
        }
        Ok(())
    }

    async fn copy_chunks(
        &self,
        source: &Store,
        manifest: &Manifest,
        stable: &StableFiles,
        mirrored: &mut Mirrored,
    ) -> Result<(), StoreError> {
        let audience = manifest.audience();
        let mut copies = Vec::new();
        for entry in manifest.chunks() {
            copies.push(async move {
                let found = find_chunk(self.backend(), audience, entry, stable).await?;
                if found.held().is_some() {
                    return Ok(0);
                }
                let bytes = source.chunk_file(manifest, entry).await?;
                self.put(&chunk_path(audience, entry), bytes).await?;
                Ok::<_, StoreError>(entry.size_bytes)
            });
        }
        let mut copies = stream::iter(copies).buffer_unordered(PARALLEL_COPIES);
        while let Some(copied_bytes) = copies.try_next().await? {
            mirrored.chunks += u64::from(copied_bytes > 0);
            mirrored.bytes += copied_bytes;
        }
        Ok(())
    }

    async fn copy_deltas<'e>(
        &self,
        source: &Store,
        audience: &AudienceName,
        entries: impl IntoIterator<Item = &'e DeltaEntry>,
        mirrored: &mut Mirrored,
    ) -> Result<(), StoreError> {
        let mut held = HashSet::new();
        for file in self.backend().list(&deltas_path(audience)).await? {
            held.extend(file.location.filename().map(str::to_owned));
        }
        for entry in entries {
            if held.contains(&delta_name(entry)) {
                continue;
            }
            let (_, bytes) = source.delta_and_file(audience, entry).await?;
            let path = delta_path(audience, entry);
            self.put_small(&path, bytes, mirrored).await?;
        }
        Ok(())
    }

    /// Writes the records that this store lacks, the newest first: the files of those before may be
    /// gone. Readers that find a gap go on from the hint.
    async fn copy_records(
        &self,
        source: &Store,
        audience: &AudienceName,
        here: Option<&Live>,
        mirrored: &mut Mirrored,
    ) -> Result<(), StoreError> {
        let (there, mirror) = (source.records(audience), self.store().records(audience));
        let newest = mirrored.sequence;
        let first = match here {
            Some(here) => here.current.sequence + 1,
            // Readers of a new mirror need only the newest.
            None => newest,
        };
        for number in (first..=newest).rev() {
            // A gc has removed it.
            let Some(Numbered { bytes, .. }) = there.read(number).await? else {
                continue;
            };
            // A reader with public keys would refuse it.
            Live::parse(source.trust(), audience, number, &bytes)?;
            let is_created = if number == newest {
                mirror.create(number, bytes).await?
            } else {
                mirror.create_without_hint(number, bytes).await?
            };
            if !is_created {
                let reason = format!("another process has created record {number} of the mirror");
                return Err(StoreError::conflict(audience, reason, false));
            }
            mirrored.records += 1;
        }
        Ok(())
    }

    async fn put_small(
        &self,
        path: &Path,
        bytes: Vec<u8>,
        mirrored: &mut Mirrored,
    ) -> Result<(), StoreError> {
        mirrored.small_files += 1;
        mirrored.bytes += bytes.len() as u64;
        self.put(path, bytes).await
    }
}
