//! Writing chunks: by a publication, or by a job whose publication is yet to come.
//!
//! A chunk is named by its content, so to write it twice, or from two places at once, does no harm, and to have written one that
//! no manifest ever names costs space until a gc removes it. A job's tasks rely on that: any of them may be tried again, or run
//! beside itself. What they have no part in is deciding what is live.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use object_store::{ObjectMeta, ObjectStoreExt, PutMode};

use super::super::{Live, Store, StoreError, chunk_path};
use super::Publication;
use rtad_core::snapshot::{AudienceName, BuiltChunk, ChunkEntry, Current, Digest, State};

/// A chunk that is not of the live generation and older than this is written again. Half of gc's usual `--min-age`, so that
/// the rest of the publish has the other half.
const FRESH: Duration = Duration::from_secs(30 * 60);

impl Store {
    /// Writes a chunk, durably, unless the store holds it already, for a publication that is opened later. Returns whether it was
    /// written. Many may do so at once, for any audience. Costs reading the live manifest, in a bucket.
    ///
    /// # Errors
    ///
    /// The store's own; [`StoreError::Conflict`] if in a directory a loader or a gc is at work for long.
    pub async fn put_chunk_ahead(
        &self,
        audience: &AudienceName,
        chunk: BuiltChunk,
    ) -> Result<bool, StoreError> {
        self.writable()?;
        // Whoever has the lock alone sweeps what is half-written.
        let _lock = self.lock_shared(audience).await?;
        let live = if self.is_directory() { None } else { self.live(audience).await? };
        let safe_chunks = self.safe_chunks(audience, live.as_ref()).await?;
        self.put_unless_held(audience, chunk, &safe_chunks).await
    }

    /// Of what is live, in an object store, the chunks: no gc removes these while `CURRENT` is what it was.
    pub(super) async fn safe_chunks(
        &self,
        audience: &AudienceName,
        live: Option<&Live>,
    ) -> Result<HashSet<Digest>, StoreError> {
        match live {
            // Of a deleted audience they are about to go.
            Some(live) if !self.is_directory() && live.current.state != State::Deleted => {
                self.chunks_of(audience, &live.current).await
            }
            _ => Ok(HashSet::new()),
        }
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

    /// Writes a chunk, unless it is there and will be for the while that a publish takes.
    pub(super) async fn put_unless_held(
        &self,
        audience: &AudienceName,
        chunk: BuiltChunk,
        safe_chunks: &HashSet<Digest>,
    ) -> Result<bool, StoreError> {
        let path = chunk_path(audience, &chunk.entry);
        // A file that has rotted is made good by the next build. An object store keeps checksums of its own, and comparing would
        // fetch the whole snapshot.
        let is_held = self.holds_chunk(audience, &chunk.entry, safe_chunks).await?
            && (!self.is_directory() || self.holds_bytes(&path, &chunk.bytes).await?);
        if is_held {
            return Ok(false);
        }
        self.put(audience, &path, chunk.bytes, PutMode::Overwrite).await?;
        Ok(true)
    }

    /// Whether a chunk is there, by its name and size, and will be for the while that a publish takes. What has lain in an object
    /// store for long without being live does not count: a gc may be about to remove it.
    pub(super) async fn holds_chunk(
        &self,
        audience: &AudienceName,
        entry: &ChunkEntry,
        safe_chunks: &HashSet<Digest>,
    ) -> Result<bool, StoreError> {
        let path = chunk_path(audience, entry);
        match self.objects(&path)?.head(&path).await {
            Ok(meta) if meta.size == entry.size_bytes => {
                Ok(self.is_directory() || safe_chunks.contains(&entry.digest) || is_fresh(&meta))
            }
            Ok(_) | Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(source) => Err(StoreError::backend("look up", &path, source)),
        }
    }
}

impl Publication<'_> {
    /// Which of these chunks the store does not hold, by what it lists: those that were never put, or that a gc has removed. In a
    /// directory none goes while this publication is open; elsewhere [`Publication::commit`] looks once more.
    ///
    /// # Errors
    ///
    /// The store's own.
    pub async fn missing<'a>(&self, entries: &'a [ChunkEntry]) -> Result<Vec<&'a ChunkEntry>, StoreError> {
        let listed = self.store.list(&super::super::gc::chunks_path(&self.base.audience)).await?;
        let held: HashSet<(&str, u64)> =
            listed.iter().filter_map(|object| Some((object.location.filename()?, object.size))).collect();
        let is_missing = |entry: &&ChunkEntry| {
            !held.contains(&(format!("{}.chunk", entry.digest).as_str(), entry.size_bytes))
        };
        Ok(entries.iter().filter(is_missing).collect())
    }
}

/// Whether it was written so lately that no gc removes it before this publish is done. A wrong clock costs an upload, or a
/// publish that has to be run again: what decides is looked at when the manifest is there (`store/gc.rs`).
fn is_fresh(meta: &ObjectMeta) -> bool {
    let age = SystemTime::now().duration_since(meta.last_modified.into());
    age.is_ok_and(|age| age < FRESH)
}
