//! Chunks: written by a publication, or by a job whose publication is yet to come.
//!
//! A chunk is named by its content. Writing it twice, or from two processes at once, does no harm;
//! a chunk that no manifest ever names costs space until a gc removes it. The tasks of a job rely
//! on that: each may be retried, or run twice at once. They never decide what is live.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use object_store::{ObjectMeta, ObjectStoreExt, PutMode};

use super::lock::lock_shared;
use super::put::{holds_bytes, put};
use super::writer::StoreWriter;
use crate::backend::Backend;
use crate::error::StoreError;
use crate::layout::chunk_path;
use crate::read::{Live, Store};
use rtad_core::snapshot::{AudienceName, BuiltChunk, ChunkEntry, Current, Digest, State};

/// A chunk that is not of the live generation and older than this is written again. Half of gc's
/// usual `--min-age`, so that the rest of the publish has the other half.
const FRESH: Duration = Duration::from_secs(30 * 60);

impl StoreWriter {
    /// Writes a chunk, durably, unless the store holds it already, for a publication that is opened
    /// later. Returns whether it was written. May be called many times at once, for any audience.
    /// Costs reading the live manifest, in a bucket.
    ///
    /// # Errors
    ///
    /// The store's own; [`StoreError::Conflict`] if in a directory a loader or a gc is at work for
    /// long.
    pub async fn put_chunk_ahead(
        &self,
        audience: &AudienceName,
        chunk: BuiltChunk,
    ) -> Result<bool, StoreError> {
        // The exclusive holder sweeps half-written files.
        let _lock = lock_shared(self.backend(), audience).await?;
        let live =
            if self.backend().is_directory() { None } else { self.store().live(audience).await? };
        let safe_chunks = safe_chunks(self.store(), audience, live.as_ref()).await?;
        put_unless_held(self.backend(), audience, chunk, &safe_chunks).await
    }
}

/// In an object store, the live chunks: no gc removes these while `CURRENT` does not change.
pub(super) async fn safe_chunks(
    store: &Store,
    audience: &AudienceName,
    live: Option<&Live>,
) -> Result<HashSet<Digest>, StoreError> {
    match live {
        // Those of a deleted audience are about to go.
        Some(live) if store.is_remote() && live.current.state != State::Deleted => {
            live_chunks(store, audience, &live.current).await
        }
        _ => Ok(HashSet::new()),
    }
}

/// The live chunks. None if the manifest is refused or gone: then the next publish repairs it.
async fn live_chunks(
    store: &Store,
    audience: &AudienceName,
    current: &Current,
) -> Result<HashSet<Digest>, StoreError> {
    match store.manifest(audience, current).await {
        Ok(manifest) => Ok(manifest.chunks().iter().map(|entry| entry.digest).collect()),
        Err(
            StoreError::NotFound { .. }
            | StoreError::Manifest { .. }
            | StoreError::Signature { .. },
        ) => Ok(HashSet::new()),
        Err(error) => Err(error),
    }
}

/// Writes a chunk, unless it is there and will be for the time that a publish takes.
pub(super) async fn put_unless_held(
    backend: &Backend,
    audience: &AudienceName,
    chunk: BuiltChunk,
    safe_chunks: &HashSet<Digest>,
) -> Result<bool, StoreError> {
    let path = chunk_path(audience, &chunk.entry);
    // A corrupt file is repaired by the next build. An object store keeps checksums of its own, and
    // a comparison would fetch the whole snapshot.
    let is_held = holds_chunk(backend, audience, &chunk.entry, safe_chunks).await?
        && (!backend.is_directory() || holds_bytes(backend, &path, &chunk.bytes).await?);
    if is_held {
        return Ok(false);
    }
    put(backend, audience, &path, chunk.bytes, PutMode::Overwrite).await?;
    Ok(true)
}

/// Whether a chunk is there, by its name and size, and will be for the time that a publish takes.
/// An old chunk in an object store that is not live does not count: a gc may be about to remove it.
pub(super) async fn holds_chunk(
    backend: &Backend,
    audience: &AudienceName,
    entry: &ChunkEntry,
    safe_chunks: &HashSet<Digest>,
) -> Result<bool, StoreError> {
    let path = chunk_path(audience, entry);
    match backend.objects(&path)?.head(&path).await {
        Ok(meta) if meta.size == entry.size_bytes => {
            Ok(backend.is_directory() || safe_chunks.contains(&entry.digest) || is_fresh(&meta))
        }
        Ok(_) | Err(object_store::Error::NotFound { .. }) => Ok(false),
        Err(source) => Err(StoreError::backend("look up", &path, source)),
    }
}

/// Whether it is so young that no gc removes it before this publish is done. A wrong clock costs an
/// upload, or a publish that has to be run again: the check that decides follows the manifest
/// (`write/gc.rs`).
fn is_fresh(meta: &ObjectMeta) -> bool {
    let age = SystemTime::now().duration_since(meta.last_modified.into());
    age.is_ok_and(|age| age < FRESH)
}
