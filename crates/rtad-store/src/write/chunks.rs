//! Chunks: written by a publication, or by a job before its publication.
//!
//! A chunk is named by its content, so writing it twice or concurrently is harmless. The tasks of a
//! job rely on that: they may be retried or run twice. A chunk that no manifest names costs space
//! until a gc removes it.

use std::collections::HashSet;
use std::fs::File;
use std::time::{Duration, SystemTime};

use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt, PutMode};

use super::lock::lock_shared;
use super::put::{holds_bytes, put};
use super::writer::StoreWriter;
use crate::backend::{Backend, Directory};
use crate::blocking::blocking;
use crate::error::StoreError;
use crate::layout::{chunk_name, chunk_path, chunks_path};
use crate::read::{Live, Store};
use rtad_core::snapshot::{AudienceName, BuiltChunk, ChunkEntry, Digest, Manifest, State};

/// Older chunks outside the live generation are written again. Half of gc's default `--min-age`:
/// the publish has the other half.
const FRESH: Duration = Duration::from_secs(30 * 60);

impl StoreWriter {
    /// Writes a chunk, durably, before its publication is opened, unless the store holds it.
    /// Returns whether it was written. May be called concurrently. Costs a read of the live
    /// manifest in a bucket.
    ///
    /// # Errors
    ///
    /// A store error; in a directory, [`StoreError::Conflict`] if a loader or a gc holds the lock
    /// for long.
    pub async fn put_chunk_ahead(
        &self,
        audience: &AudienceName,
        chunk: BuiltChunk,
    ) -> Result<bool, StoreError> {
        // An exclusive holder removes half-written files.
        let _lock = lock_shared(self.backend(), audience, self.creates()).await?;
        let live = if self.backend().is_directory() {
            None
        } else {
            self.store().live(audience).await?
        };
        let safe_chunks = safe_chunks(self.store(), audience, live.as_ref()).await?;
        put_unless_held(self.backend(), audience, chunk, &safe_chunks).await
    }
}

impl Store {
    /// The chunks that the store does not hold, by name and size: never written, or removed by a
    /// gc. A gc of an object store may remove more; [`Publication::commit`] checks again. Costs a
    /// listing, or a request for each chunk over plain HTTP.
    ///
    /// [`Publication::commit`]: super::Publication::commit
    ///
    /// # Errors
    ///
    /// A store error.
    pub async fn missing_chunks<'a>(
        &self,
        audience: &AudienceName,
        entries: &'a [ChunkEntry],
    ) -> Result<Vec<&'a ChunkEntry>, StoreError> {
        if self.backend.check_listable().is_ok() {
            return missing_chunks(&self.backend, audience, entries).await;
        }
        let mut missing = Vec::new();
        for entry in entries {
            if look_up(&self.backend, audience, entry).await?.is_none() {
                missing.push(entry);
            }
        }
        Ok(missing)
    }
}

/// The live chunks of an object store, which no gc removes while `CURRENT` is unchanged.
pub async fn safe_chunks(
    store: &Store,
    audience: &AudienceName,
    live: Option<&Live>,
) -> Result<HashSet<Digest>, StoreError> {
    // Chunks of a deleted audience are being removed.
    let is_live = |live: &&Live| store.is_remote() && live.current.state != State::Deleted;
    let Some(live) = live.filter(is_live) else {
        return Ok(HashSet::new());
    };
    match store.manifest(audience, &live.current).await {
        Ok(manifest) => Ok(manifest.chunks().iter().map(|entry| entry.digest).collect()),
        // The next publish repairs it.
        Err(
            StoreError::NotFound { .. }
            | StoreError::Manifest { .. }
            | StoreError::Signature { .. },
        ) => Ok(HashSet::new()),
        Err(error) => Err(error),
    }
}

/// Writes a chunk, unless the store holds it for the duration of a publish.
pub async fn put_unless_held(
    backend: &Backend,
    audience: &AudienceName,
    chunk: BuiltChunk,
    safe_chunks: &HashSet<Digest>,
) -> Result<bool, StoreError> {
    let path = chunk_path(audience, &chunk.entry);
    // A corrupt file of a directory is repaired. Object stores keep checksums of their own, and a
    // comparison would fetch the whole snapshot.
    let is_held = holds_chunk(backend, audience, &chunk.entry, safe_chunks).await?
        && (!backend.is_directory() || holds_bytes(backend, &path, &chunk.bytes).await?);
    if is_held {
        return Ok(false);
    }
    put(backend, audience, &path, chunk.bytes, PutMode::Overwrite).await?;
    Ok(true)
}

/// Whether the store holds a chunk, by name and size, for the duration of a publish. Old chunks
/// outside the live generation do not count in an object store: a gc may be removing them.
async fn holds_chunk(
    backend: &Backend,
    audience: &AudienceName,
    entry: &ChunkEntry,
    safe_chunks: &HashSet<Digest>,
) -> Result<bool, StoreError> {
    let held = look_up(backend, audience, entry).await?;
    Ok(held.is_some_and(|meta| {
        backend.is_directory() || safe_chunks.contains(&entry.digest) || is_fresh(&meta)
    }))
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

/// The chunks that the store does not list, by name and size.
pub async fn missing_chunks<'a>(
    backend: &Backend,
    audience: &AudienceName,
    entries: &'a [ChunkEntry],
) -> Result<Vec<&'a ChunkEntry>, StoreError> {
    let listed = backend.list(&chunks_path(audience)).await?;
    let held: HashSet<(&str, u64)> = listed
        .iter()
        .filter_map(|object| Some((object.location.filename()?, object.size)))
        .collect();
    let is_missing =
        |entry: &&ChunkEntry| !held.contains(&(chunk_name(entry).as_str(), entry.size_bytes));
    Ok(entries.iter().filter(is_missing).collect())
}

/// Whether an object is too young for a gc during this publish. A wrong clock costs an upload or a
/// failed publish: the decisive check follows the manifest (`write/gc.rs`).
fn is_fresh(meta: &ObjectMeta) -> bool {
    let age = SystemTime::now().duration_since(meta.last_modified.into());
    age.is_ok_and(|age| age < FRESH)
}
