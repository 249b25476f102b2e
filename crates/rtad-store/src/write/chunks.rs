//! Chunks: written by a publication, or by a job before its publication.
//!
//! A chunk is named by its content, so writing it twice or concurrently is harmless. The tasks of a
//! job rely on that: they may be retried or run twice. A chunk that no manifest names costs space
//! until a gc removes it.
//!
//! A gc removes unneeded files that are older than a day, and asks nobody. So a publish that finds
//! a chunk there counts on it only if nobody can remove it meanwhile: it is young, or the live
//! generation has it, which then is live until this publish fails or succeeds. A deletion removes
//! what is older than its record.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt};

use super::folder::prepare_folder;
use super::gc::MIN_AGE;
use super::writer::StoreWriter;
use crate::backend::{Backend, Directory};
use crate::blocking::blocking;
use crate::error::StoreError;
use crate::layout::{audience_path, chunk_name, chunk_path, chunks_path, delta_name, deltas_path};
use crate::read::{Live, Store};
use rtad_core::snapshot::{
    AudienceName, BuiltChunk, ChunkEntry, DeltaEntry, Digest, Manifest, State,
};

/// Older chunks outside the live generation are written again: the publish has the other half of a
/// gc's least age.
const FRESH: Duration = Duration::from_secs(MIN_AGE.as_secs() / 2);
/// Older ones are not relied on, by the store's clock: a gc may soon remove them.
const RELIABLE: Duration = Duration::from_secs(MIN_AGE.as_secs() / 24 * 23);
/// The coarsest unit of a store's times.
const TIME_UNIT: Duration = Duration::from_secs(1);
/// Bytes compared per request.
const PIECE_BYTES: usize = 1 << 20;

impl StoreWriter {
    /// Writes a chunk, durably, before its publication is opened, unless the store holds it.
    /// Returns whether it was written. May be called concurrently. Costs a read of the live
    /// manifest.
    ///
    /// # Errors
    ///
    /// A store error.
    pub async fn put_chunk_ahead(
        &self,
        audience: &AudienceName,
        chunk: BuiltChunk,
    ) -> Result<bool, StoreError> {
        prepare_folder(self, &audience_path(audience)).await?;
        let live = self.store().live(audience).await?;
        let stable = StableFiles::of(self.store(), audience, live.as_ref()).await?;
        let put = put_unless_held(self, audience, chunk, &stable).await?;
        Ok(put != ChunkPut::Held)
    }
}

impl Store {
    /// The chunks that the store does not hold, by name and size. Costs a listing.
    ///
    /// # Errors
    ///
    /// A store error; [`StoreError::NoListing`] over plain HTTP.
    pub async fn missing_chunks<'a>(
        &self,
        audience: &AudienceName,
        entries: &'a [ChunkEntry],
    ) -> Result<Vec<&'a ChunkEntry>, StoreError> {
        let listed = self.backend.list(&chunks_path(audience)).await?;
        let mut held = HashSet::new();
        for object in &listed {
            if let Some(name) = object.location.filename() {
                held.insert((name, object.size));
            }
        }
        let mut missing = Vec::new();
        for entry in entries {
            if !held.contains(&(chunk_name(entry).as_str(), entry.size_bytes)) {
                missing.push(entry);
            }
        }
        Ok(missing)
    }
}

/// Files that stay while the live generation is live, and files that are being removed.
#[derive(Debug, Default)]
pub struct StableFiles {
    chunks: HashSet<Digest>,
    deltas: HashSet<String>,
    /// When the audience was deleted: a running deletion removes files up to this time.
    deleted: Option<SystemTime>,
}

impl StableFiles {
    /// The files of the live generation.
    pub async fn of(
        store: &Store,
        audience: &AudienceName,
        live: Option<&Live>,
    ) -> Result<Self, StoreError> {
        let mut stable = Self::default();
        let Some(current) = live.map(|live| &live.current) else {
            return Ok(stable);
        };
        if current.state == State::Deleted {
            let records = store.records(audience);
            stable.deleted = Some(records.written_at(current.sequence).await?);
            return Ok(stable);
        }

        match store.manifest(audience, &current.live_entry()).await {
            Ok(manifest) => {
                stable.chunks = manifest.chunks().iter().map(|entry| entry.digest).collect();
                stable.deltas = manifest.folded_deltas().map(delta_name).collect();
                Ok(stable)
            }
            // The next publish repairs it.
            Err(StoreError::NotFound { .. } | StoreError::Manifest { .. }) => Ok(stable),
            Err(error) => Err(error),
        }
    }

    /// Whether nobody removes a chunk of this publish, at a time of the store.
    fn keeps(&self, chunk: &ChunkEntry, file: &ObjectMeta, now: SystemTime, age: Duration) -> bool {
        !self.may_be_deleted(file)
            && (self.chunks.contains(&chunk.digest) || is_younger(file, now, age))
    }

    fn may_be_deleted(&self, file: &ObjectMeta) -> bool {
        self.deleted
            .is_some_and(|deleted| SystemTime::from(file.last_modified) <= deleted)
    }
}

/// How a chunk came into the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkPut {
    /// It was there.
    Held,
    /// It was written.
    Written,
    /// It was written over a file that a gc may be removing.
    Renewed,
}

/// Writes a chunk, unless the store holds it for the duration of a publish.
pub async fn put_unless_held(
    writer: &StoreWriter,
    audience: &AudienceName,
    chunk: BuiltChunk,
    stable: &StableFiles,
) -> Result<ChunkPut, StoreError> {
    let backend = writer.backend();
    let path = chunk_path(audience, &chunk.entry);
    let found = look_up(backend, audience, &chunk.entry).await?;
    let is_held = found
        .as_ref()
        .is_some_and(|found| stable.keeps(&chunk.entry, found, SystemTime::now(), FRESH));
    // A corrupt file of a directory is repaired. Object stores keep checksums of their own, and a
    // comparison would fetch the whole snapshot.
    let is_intact =
        is_held && (!backend.is_directory() || holds_bytes(backend, &path, &chunk.bytes).await?);
    if is_intact {
        return Ok(ChunkPut::Held);
    }

    let bytes = Bytes::from(chunk.bytes);
    writer.put(&path, bytes.clone()).await?;
    if stable.deleted.is_some() {
        // Some stores have times of whole seconds: this one may be that of the deletion.
        let written = look_up(backend, audience, &chunk.entry).await?;
        if written.is_some_and(|written| stable.may_be_deleted(&written)) {
            tokio::time::sleep(TIME_UNIT).await;
            writer.put(&path, bytes).await?;
        }
    }
    Ok(match found {
        Some(_) => ChunkPut::Renewed,
        None => ChunkPut::Written,
    })
}

/// Whether the store holds a chunk for the duration of a publish.
pub async fn is_held(
    backend: &Backend,
    audience: &AudienceName,
    entry: &ChunkEntry,
    stable: &StableFiles,
) -> Result<bool, StoreError> {
    let found = look_up(backend, audience, entry).await?;
    Ok(found.is_some_and(|found| stable.keeps(entry, &found, SystemTime::now(), FRESH)))
}

/// Whether an object of the same length has these bytes. Reads it in pieces.
async fn holds_bytes(backend: &Backend, path: &Path, bytes: &[u8]) -> Result<bool, StoreError> {
    let objects = backend.objects(path).await?;
    for (index, piece) in bytes.chunks(PIECE_BYTES).enumerate() {
        let start = (index * PIECE_BYTES) as u64;
        let held = objects
            .get_range(path, start..start + piece.len() as u64)
            .await;
        if held.map_err(|source| StoreError::backend("read", path, source))? != piece {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The file of a chunk; `None` without one of its size.
async fn look_up(
    backend: &Backend,
    audience: &AudienceName,
    entry: &ChunkEntry,
) -> Result<Option<ObjectMeta>, StoreError> {
    let path = chunk_path(audience, entry);
    match backend.objects(&path).await?.head(&path).await {
        Ok(meta) => Ok(Some(meta).filter(|meta| meta.size == entry.size_bytes)),
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(source) => Err(StoreError::backend("look up", &path, source)),
    }
}

/// Syncs the chunks of a manifest in a directory, and the folder: a chunk that this publish found
/// there may be of a loader that was killed before its sync. Does nothing in an object store.
pub async fn sync_chunks(backend: &Backend, manifest: &Manifest) -> Result<(), StoreError> {
    let Backend::Directory(Directory { root, .. }) = backend else {
        return Ok(());
    };
    let audience = manifest.audience();
    let mut paths: Vec<Path> = manifest
        .chunks()
        .iter()
        .map(|entry| chunk_path(audience, entry))
        .collect();
    if !paths.is_empty() {
        // The folder last: it has the names.
        paths.push(chunks_path(audience));
    }
    for path in paths {
        let file = root.join(path.as_ref());
        let synced = blocking(move || File::open(file)?.sync_all()).await;
        synced.map_err(|source| StoreError::Backend {
            action: "sync",
            path: path.to_string(),
            source: source.into(),
        })?;
    }
    Ok(())
}

/// Checks that the store has all files that a manifest names, and that nobody removes them before
/// the next record. Returns the deltas of which only the live record can say so. Costs two
/// listings.
///
/// # Errors
///
/// [`StoreError::Conflict`], or a store error.
pub async fn check_files(
    backend: &Backend,
    manifest: &Manifest,
    stable: &StableFiles,
    now: SystemTime,
) -> Result<Vec<DeltaEntry>, StoreError> {
    let audience = manifest.audience();
    let chunks = backend.list(&chunks_path(audience)).await?;
    let chunks = by_name(&chunks);
    for entry in manifest.chunks() {
        let file = chunks.get(chunk_name(entry).as_str());
        let is_kept = file.is_some_and(|file| {
            file.size == entry.size_bytes && stable.keeps(entry, file, now, RELIABLE)
        });
        if !is_kept {
            let reason = "a gc removed, or may remove, a chunk that this generation needs; run \
                          this again";
            return Err(StoreError::conflict(audience, reason, true));
        }
    }

    let mut old_deltas = Vec::new();
    let deltas = backend.list(&deltas_path(audience)).await?;
    let deltas = by_name(&deltas);
    for entry in manifest.folded_deltas() {
        let name = delta_name(entry);
        let Some(file) = deltas.get(name.as_str()) else {
            let reason = "a gc removed a delta that this generation needs; run this again";
            return Err(StoreError::conflict(audience, reason, true));
        };
        if !stable.deltas.contains(&name) && !is_younger(file, now, RELIABLE) {
            old_deltas.push(entry.clone());
        }
    }
    Ok(old_deltas)
}

fn by_name(files: &[ObjectMeta]) -> HashMap<&str, &ObjectMeta> {
    let mut named = HashMap::new();
    for file in files {
        named.insert(file.location.filename().unwrap_or_default(), file);
    }
    named
}

/// Whether a file was written less than this time ago.
fn is_younger(file: &ObjectMeta, now: SystemTime, limit: Duration) -> bool {
    let age = now.duration_since(file.last_modified.into());
    age.map_or(true, |age| age < limit)
}
