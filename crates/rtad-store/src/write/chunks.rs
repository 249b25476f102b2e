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
/// A younger chunk outside the live generation may have been renewed by a process that died, while
/// a gc's delete of the old one was on its way.
const SETTLED: Duration = Duration::from_secs(600);
/// Older ones are not relied on, by the store's clock: a gc may soon remove them.
const RELIABLE: Duration = Duration::from_secs(MIN_AGE.as_secs() / 24 * 23);
/// The coarsest unit of a store's times.
const TIME_UNIT: Duration = Duration::from_secs(1);
/// Bytes compared per request.
const PIECE_BYTES: usize = 1 << 20;

impl StoreWriter {
    /// Writes a chunk, durably, before its publication is opened, unless the store holds it. May be
    /// called concurrently. Costs a read of the live manifest.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conditions`], or a store error.
    pub async fn put_chunk_ahead(
        &self,
        audience: &AudienceName,
        chunk: BuiltChunk,
    ) -> Result<ChunkPut, StoreError> {
        prepare_folder(self, &audience_path(audience)).await?;
        // Before chunks are written.
        self.check_creates(audience).await?;

        let live = self.store().live(audience).await?;
        let stable = StableFiles::of(self.store(), audience, live.as_ref()).await?;
        put_unless_held(self, audience, chunk, &stable).await
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

    /// Whether a delta is of the live generation.
    pub fn keeps_delta(&self, name: &str) -> bool {
        self.deltas.contains(name)
    }

    fn may_be_deleted(&self, file: &ObjectMeta) -> bool {
        self.deleted
            .is_some_and(|deleted| SystemTime::from(file.last_modified) <= deleted)
    }
}

/// How a chunk came into the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkPut {
    /// Whether it was written; otherwise it was there.
    pub is_written: bool,
    /// Whether a gc's delete of an older file may be on its way. The publish waits for it
    /// ([`crate::write::Publication::expect_deletes`]).
    pub is_renewed: bool,
}

/// A chunk of the store, before it is written.
#[derive(Debug, Clone, Copy)]
pub struct FoundChunk {
    is_there: bool,
    /// Whether the store holds it for the duration of a publish.
    is_held: bool,
    /// See [`ChunkPut::is_renewed`].
    is_renewed: bool,
}

impl FoundChunk {
    /// The result without a write, if none is needed.
    pub fn held(self) -> Option<ChunkPut> {
        self.is_held.then_some(ChunkPut {
            is_written: false,
            is_renewed: self.is_renewed,
        })
    }
}

/// Looks a chunk up in the store.
pub async fn find_chunk(
    backend: &Backend,
    audience: &AudienceName,
    entry: &ChunkEntry,
    stable: &StableFiles,
) -> Result<FoundChunk, StoreError> {
    let Some(file) = look_up(backend, audience, entry).await? else {
        return Ok(FoundChunk {
            is_there: false,
            is_held: false,
            is_renewed: false,
        });
    };

    let now = backend.now(&chunk_path(audience, entry)).await?;
    let is_live = stable.chunks.contains(&entry.digest);
    Ok(FoundChunk {
        is_there: true,
        is_held: stable.keeps(entry, &file, now, FRESH),
        is_renewed: !is_live && is_younger(&file, now, SETTLED),
    })
}

/// Writes a chunk, unless the store holds it for the duration of a publish.
pub async fn put_unless_held(
    writer: &StoreWriter,
    audience: &AudienceName,
    chunk: BuiltChunk,
    stable: &StableFiles,
) -> Result<ChunkPut, StoreError> {
    let backend = writer.backend();
    let entry = &chunk.entry;
    let found = find_chunk(backend, audience, entry, stable).await?;
    if let Some(held) = found.held() {
        // A corrupt file of a directory is repaired. Object stores keep checksums of their own, and
        // a comparison would fetch the whole snapshot.
        let path = chunk_path(audience, entry);
        if !backend.is_directory() || holds_bytes(backend, &path, &chunk.bytes).await? {
            return Ok(held);
        }
    }
    write_chunk(writer, audience, entry, chunk.bytes.into(), found, stable).await
}

/// Writes a chunk over what was found.
pub async fn write_chunk(
    writer: &StoreWriter,
    audience: &AudienceName,
    entry: &ChunkEntry,
    bytes: Bytes,
    found: FoundChunk,
    stable: &StableFiles,
) -> Result<ChunkPut, StoreError> {
    let path = chunk_path(audience, entry);
    writer.put(&path, bytes.clone()).await?;
    if stable.deleted.is_some() {
        // Some stores have times of whole seconds: this one may be that of the deletion.
        let written = look_up(writer.backend(), audience, entry).await?;
        if written.is_some_and(|written| stable.may_be_deleted(&written)) {
            tokio::time::sleep(TIME_UNIT).await;
            writer.put(&path, bytes).await?;
        }
    }

    Ok(ChunkPut {
        is_written: true,
        is_renewed: found.is_there,
    })
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
    let listed_chunks = backend.list(&chunks_path(audience)).await?;
    let chunks = by_name(&listed_chunks);
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
    let listed_deltas = backend.list(&deltas_path(audience)).await?;
    let deltas = by_name(&listed_deltas);
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
