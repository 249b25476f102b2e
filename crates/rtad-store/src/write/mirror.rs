//! Mirrors: the state of an audience in another store, record for record.
//!
//! Files first, then the records under the same numbers, so that readers of the mirror never find a
//! name without its file. A mirror that was stopped goes on where it was: files have names of their
//! content. Signatures hold, because a record keeps its path. Only one store of a mirrored pair is
//! written to otherwise.

use std::collections::HashSet;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use object_store::path::Path;

use super::chunks::{ChunkPut, StableFiles, check_files, find_chunk, sync_chunks, write_chunk};
use super::folder::prepare_folder;
use super::writer::StoreWriter;
use crate::error::StoreError;
use crate::layout::{audience_path, delta_name, delta_path, deltas_path, manifest_path};
use crate::read::{Live, Store};
use crate::records::Numbered;
use rtad_core::snapshot::{
    AudienceName, ChunkEntry, Current, DeltaEntry, GenerationEntry, Manifest, State,
};

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
        self.check_creates(audience).await?;
        let mut copy = FileCopy {
            writer: self,
            source,
            audience,
            here: here.as_ref(),
            stable: StableFiles::of(self.store(), audience, here.as_ref()).await?,
            manifests: Vec::new(),
            has_renewed: false,
            mirrored,
        };
        copy.copy_files(&newest.current).await?;
        mirrored = copy.mirrored;
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

    /// Writes the records that this store lacks, the newest first: the files of those before may be
    /// gone. Readers that find a gap go on from the hint.
    async fn copy_records(
        &self,
        source: &Store,
        audience: &AudienceName,
        here: Option<&Live>,
        mirrored: &mut Mirrored,
    ) -> Result<(), StoreError> {
        let there = source.records(audience);
        let mirror = self.store().records(audience);
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
                mirror.create_copy(number, bytes).await?
            };
            if !is_created {
                let reason = format!("another process has created record {number} of the mirror");
                return Err(StoreError::conflict(audience, reason, false));
            }
            mirrored.records += 1;
        }

        Ok(())
    }
}

/// A copy of the files that a record names.
struct FileCopy<'a> {
    writer: &'a StoreWriter,
    source: &'a Store,
    audience: &'a AudienceName,
    /// The newest record of the mirror.
    here: Option<&'a Live>,
    /// Files of the mirror that no gc removes while that record is the newest.
    stable: StableFiles,
    /// The manifests to write.
    manifests: Vec<NewManifest>,
    /// Whether a gc of the mirror may be removing a file under the name of a copy.
    has_renewed: bool,
    mirrored: Mirrored,
}

/// A manifest that the mirror lacks.
struct NewManifest {
    entry: GenerationEntry,
    manifest: Manifest,
    bytes: Vec<u8>,
}

impl FileCopy<'_> {
    /// Copies what a record names: chunks and deltas, then manifests. A gc of the mirror removes
    /// none of them before the record is written.
    async fn copy_files(&mut self, record: &Current) -> Result<(), StoreError> {
        if record.state != State::Deleted {
            self.read_manifests(record).await?;
        }
        let mut deltas: Vec<DeltaEntry> = record.delta_entries().cloned().collect();
        for new in &self.manifests {
            deltas.extend(new.manifest.folded_deltas().cloned());
        }

        self.copy_chunks().await?;
        self.copy_deltas(&deltas).await?;
        if self.has_renewed {
            self.writer.wait_for_deletes().await;
        }
        self.write_manifests().await?;
        self.check_deltas(&deltas).await
    }

    /// Reads the manifests of the generations that the mirror's record does not name.
    async fn read_manifests(&mut self, record: &Current) -> Result<(), StoreError> {
        let mut held = Vec::new();
        if let Some(here) = self.here {
            held = here.current.generations();
        }
        for entry in record.generations() {
            if held.contains(&entry) {
                continue;
            }
            let read = self.source.manifest_and_file(self.audience, &entry).await;
            let (manifest, bytes) = match read {
                Err(StoreError::NotFound { .. }) if entry.generation != record.generation => {
                    self.mirrored.lost_generations += 1;
                    continue;
                }
                read => read?,
            };
            self.manifests.push(NewManifest {
                entry,
                manifest,
                bytes,
            });
        }

        Ok(())
    }

    async fn copy_chunks(&mut self) -> Result<(), StoreError> {
        let mut copies = Vec::new();
        let mut begun = HashSet::new();
        for NewManifest { manifest, .. } in &self.manifests {
            for entry in manifest.chunks() {
                if begun.insert(entry.digest) {
                    copies.push(self.copy_chunk(manifest, entry));
                }
            }
        }

        let mut written_bytes = Vec::new();
        let mut has_renewed = false;
        let mut copies = stream::iter(copies).buffer_unordered(PARALLEL_COPIES);
        while let Some((put, size_bytes)) = copies.try_next().await? {
            has_renewed |= put.is_renewed;
            if put.is_written {
                written_bytes.push(size_bytes);
            }
        }
        drop(copies);

        self.has_renewed |= has_renewed;
        self.mirrored.chunks += written_bytes.len() as u64;
        self.mirrored.bytes += written_bytes.iter().sum::<u64>();
        Ok(())
    }

    /// Copies a chunk unless the mirror holds it. Returns its size, too.
    async fn copy_chunk(
        &self,
        manifest: &Manifest,
        entry: &ChunkEntry,
    ) -> Result<(ChunkPut, u64), StoreError> {
        let writer = self.writer;
        let audience = self.audience;
        let found = find_chunk(writer.backend(), audience, entry, &self.stable).await?;
        if let Some(held) = found.held() {
            return Ok((held, entry.size_bytes));
        }
        let bytes = self.source.chunk_file(manifest, entry).await?.into();
        let put = write_chunk(writer, audience, entry, bytes, found, &self.stable).await?;
        Ok((put, entry.size_bytes))
    }

    /// Copies deltas that the mirror's record does not name, also over those of a mirror that was
    /// stopped: a gc may be removing them.
    async fn copy_deltas(&mut self, entries: &[DeltaEntry]) -> Result<(), StoreError> {
        let found = self.delta_names().await?;
        let mut kept = HashSet::new();
        if let Some(here) = self.here {
            kept.extend(here.current.delta_entries().map(delta_name));
        }
        for entry in entries {
            let name = delta_name(entry);
            let is_found = found.contains(&name);
            let is_kept = kept.contains(&name) || self.stable.keeps_delta(&name);
            if is_found && is_kept {
                continue;
            }
            let (_, bytes) = self.source.delta_and_file(self.audience, entry).await?;
            let path = delta_path(self.audience, entry);
            self.put_small(&path, bytes).await?;
            self.has_renewed |= is_found;
            kept.insert(name);
        }

        Ok(())
    }

    /// Writes the manifests, then checks their files.
    async fn write_manifests(&mut self) -> Result<(), StoreError> {
        let store = self.writer.store();
        for new in std::mem::take(&mut self.manifests) {
            let backend = self.writer.backend();
            sync_chunks(backend, &new.manifest).await?;
            let path = manifest_path(self.audience, &new.entry);
            self.put_small(&path, new.bytes).await?;
            let now = store.written_at(&path).await?;
            check_files(backend, &new.manifest, &self.stable, now).await?;
        }
        Ok(())
    }

    async fn check_deltas(&self, entries: &[DeltaEntry]) -> Result<(), StoreError> {
        let found = self.delta_names().await?;
        if entries
            .iter()
            .all(|entry| found.contains(&delta_name(entry)))
        {
            return Ok(());
        }
        let reason = "a gc of the mirror removed a delta; run this again";
        Err(StoreError::conflict(self.audience, reason, true))
    }

    /// The names of the mirror's deltas.
    async fn delta_names(&self) -> Result<HashSet<String>, StoreError> {
        let mut names = HashSet::new();
        for file in self
            .writer
            .backend()
            .list(&deltas_path(self.audience))
            .await?
        {
            names.extend(file.location.filename().map(str::to_owned));
        }
        Ok(names)
    }

    async fn put_small(&mut self, path: &Path, bytes: Vec<u8>) -> Result<(), StoreError> {
        self.mirrored.small_files += 1;
        self.mirrored.bytes += bytes.len() as u64;
        self.writer.put(path, bytes).await
    }
}
