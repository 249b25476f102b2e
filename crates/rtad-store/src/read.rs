//! Reading: `CURRENT`, manifests and chunks, from a store that may fail at any byte.
//!
//! Everything is verified as it is read: what comes out of [`Store::chunk`] is what was published, or an error.
//!
//! * `CURRENT` is asked for on the condition that it changed, so that a look that finds nothing new costs a 304.
//! * A chunk is read in ranges and resumed after a failure from its first missing byte
//!   (`read/range.rs`). The number of resumes is bounded per chunk.
//! * No time-out covers a whole object. A read of less than 16 KiB in the stall time-out fails
//!   (`read/stall.rs`): a byte a second is no progress.
//! * All ranges of a chunk are of one file: the entity tag of the first is the condition of the others.
//! * A server that does not know ranges sends the whole, read no further than the manifest allows.
//!
//! What is not done here: coming back later. That is up to the caller, and [`StoreError::retry_after`] may say when.

pub(super) mod range;
pub(super) mod stall;

use std::time::Duration;

use futures_util::{StreamExt, stream};
use object_store::path::Path;
use object_store::{GetOptions, ObjectStore, ObjectStoreExt, UpdateVersion};

use range::RangeReader;
pub use stall::STALL_TIMEOUT;
use stall::StallTimer;

use super::{Live, Signed, Store, StoreError, blocking, chunk_path, current_path, manifest_path};
use rtad_core::snapshot::{
    AudienceName, Chunk, ChunkDecoder, ChunkEntry, ChunkReader, Current, MAX_CURRENT_BYTES,
    MAX_MANIFEST_BYTES, Manifest, ManifestError,
};

/// Gets a chunk's bytes as they come, before they are verified. Called on the blocking pool; must not fail.
pub trait Copyist: Send + 'static {
    /// Takes the file's next bytes.
    fn take(&mut self, bytes: &[u8]);
}

/// Keeps it.
impl Copyist for Vec<u8> {
    fn take(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Makes no copy.
impl Copyist for () {
    fn take(&mut self, _: &[u8]) {}
}

impl Store {
    /// What is live; `None` if nothing of this audience was ever published.
    ///
    /// # Errors
    ///
    /// The store's own, or a `CURRENT` that is refused.
    pub async fn live(&self, audience: &AudienceName) -> Result<Option<Live>, StoreError> {
        self.live_since(audience, None).await
    }

    /// The same, asked for on the condition that it is no longer what it was: `last` again, if it is.
    ///
    /// # Errors
    ///
    /// As of [`Store::live`].
    pub async fn live_since(
        &self,
        audience: &AudienceName,
        last: Option<&Live>,
    ) -> Result<Option<Live>, StoreError> {
        let path = current_path(audience);
        let objects = match self.objects(&path) {
            Err(StoreError::NotFound { .. }) => return Ok(None),
            objects => objects?,
        };
        // A file's tag is made of its inode, size and time, which two quick publishes may have in common. Reading it is cheap.
        let last = last.filter(|_| self.is_remote());
        let if_none_match = last.and_then(|live| live.version.e_tag.clone());
        let options = GetOptions { if_none_match, ..GetOptions::default() };
        let read =
            read_small_by(&*objects, &path, MAX_CURRENT_BYTES, "CURRENT", options, self.stall_timeout).await;
        let (bytes, version) = match read {
            Err(StoreError::NotFound { .. }) => return Ok(None),
            Err(error) => return if is_not_modified(&error) { Ok(last.cloned()) } else { Err(error) },
            Ok(read) => read,
        };
        let current = Current::parse(&bytes)
            .map_err(|source| StoreError::Manifest { path: path.to_string(), source })?;
        Ok(Some(Live { current, version }))
    }

    /// The manifest that a `CURRENT` names, verified against it.
    ///
    /// # Errors
    ///
    /// The store's own, or a manifest that is refused.
    pub async fn manifest(&self, audience: &AudienceName, current: &Current) -> Result<Manifest, StoreError> {
        Ok(self.manifest_named(audience, current).await?.0)
    }

    /// The same, and its bytes and signature.
    ///
    /// # Errors
    ///
    /// The store's own, or a manifest that is refused.
    pub async fn manifest_named(
        &self,
        audience: &AudienceName,
        current: &Current,
    ) -> Result<(Manifest, Signed), StoreError> {
        let path = manifest_path(audience, current.generation);
        let file = self.read_signed(&path, MAX_MANIFEST_BYTES, "the manifest").await?;
        let manifest = Manifest::parse_named(&file.bytes, audience, current)
            .map_err(|source| StoreError::Manifest { path: path.to_string(), source })?;
        Ok((manifest, file))
    }

    /// The manifest of any generation, and its bytes. Only its fields vouch for it, and its signature if there are public keys.
    ///
    /// # Errors
    ///
    /// The store's own, or a manifest that is refused.
    pub async fn manifest_of(
        &self,
        audience: &AudienceName,
        generation: u64,
    ) -> Result<(Manifest, Vec<u8>), StoreError> {
        let path = manifest_path(audience, generation);
        let Signed { bytes, .. } = self.read_signed(&path, MAX_MANIFEST_BYTES, "the manifest").await?;
        let manifest = Manifest::parse(&bytes, audience, generation)
            .map_err(|source| StoreError::Manifest { path: path.to_string(), source })?;
        Ok((manifest, bytes))
    }

    /// Reads one chunk of a manifest, block by block: its fields are checked before memory is taken for it, its digest before
    /// it is returned. The hashing runs on the blocking pool, beside the caller's other tasks.
    ///
    /// # Errors
    ///
    /// The store's own, or a chunk that is refused.
    pub async fn chunk(
        &self,
        audience: &AudienceName,
        manifest: &Manifest,
        entry: &ChunkEntry,
    ) -> Result<Chunk, StoreError> {
        let decoder = ChunkDecoder::new(manifest.filter(), entry);
        Ok(self.chunk_copied(audience, entry, decoder, ()).await?.0)
    }

    /// The file of one chunk, verified. Takes its size in memory twice.
    ///
    /// # Errors
    ///
    /// As of [`Store::chunk`].
    pub async fn chunk_file(&self, manifest: &Manifest, entry: &ChunkEntry) -> Result<Vec<u8>, StoreError> {
        let decoder = ChunkDecoder::new(manifest.filter(), entry);
        Ok(self.chunk_copied(manifest.audience(), entry, decoder, Vec::new()).await?.1)
    }

    /// The same, by any reader of the chunk's file, with a copy of its bytes for `copyist`, which comes back once they are
    /// verified.
    ///
    /// # Errors
    ///
    /// The store's own, or a chunk that is refused.
    pub async fn chunk_copied<R: ChunkReader, C: Copyist>(
        &self,
        audience: &AudienceName,
        entry: &ChunkEntry,
        reader: R,
        copyist: C,
    ) -> Result<(R::Verified, C), StoreError> {
        let path = chunk_path(audience, entry);
        let objects = self.objects(&path)?;
        let refuse = |source| StoreError::Chunk { path: path.to_string(), source };
        let mut file = RangeReader::new(objects, path.clone(), entry.size_bytes, self.stall_timeout);
        let mut work = (reader, copyist);
        while let Some(block) = file.next_block().await? {
            work = blocking(move || {
                work.1.take(&block);
                work.0.feed(&block).map(|()| work)
            })
            .await
            .map_err(refuse)?;
        }
        let (reader, copyist) = work;
        Ok((reader.finish().map_err(refuse)?, copyist))
    }

    /// The object's size.
    ///
    /// # Errors
    ///
    /// The store's own.
    pub async fn chunk_size(&self, audience: &AudienceName, entry: &ChunkEntry) -> Result<u64, StoreError> {
        let path = chunk_path(audience, entry);
        let meta = self.objects(&path)?.head(&path).await;
        Ok(meta.map_err(|source| StoreError::backend("look up", &path, source))?.size)
    }

    /// Reads chunks of a manifest, `parallel` at a time, and hands each over with its entry as it arrives, in any order.
    ///
    /// # Errors
    ///
    /// The first that occurs; the others are then abandoned.
    pub async fn chunks(
        &self,
        audience: &AudienceName,
        manifest: &Manifest,
        entries: &[ChunkEntry],
        parallel: usize,
        mut arrived: impl FnMut(&ChunkEntry, Chunk),
    ) -> Result<(), StoreError> {
        let reads = entries
            .iter()
            .map(|entry| async move { Ok((entry, self.chunk(audience, manifest, entry).await?)) });
        let mut reads = stream::iter(reads).buffer_unordered(parallel.max(1));
        while let Some(read) = reads.next().await {
            let (entry, chunk) = read?;
            arrived(entry, chunk);
        }
        Ok(())
    }
}

fn is_not_modified(error: &StoreError) -> bool {
    let StoreError::Backend { source, .. } = error else { return false };
    matches!(source.downcast_ref(), Some(object_store::Error::NotModified { .. }))
}

/// Reads a whole small object, never more than `limit` bytes of it.
pub(super) async fn read_small(
    objects: &dyn ObjectStore,
    path: &Path,
    limit: u64,
    what: &'static str,
) -> Result<(Vec<u8>, UpdateVersion), StoreError> {
    read_small_by(objects, path, limit, what, GetOptions::default(), STALL_TIMEOUT).await
}

pub(super) async fn read_small_by(
    objects: &dyn ObjectStore,
    path: &Path,
    limit: u64,
    what: &'static str,
    options: GetOptions,
    stall_timeout: Duration,
) -> Result<(Vec<u8>, UpdateVersion), StoreError> {
    let failed = |source| StoreError::backend("read", path, source);
    let mut stall = StallTimer::new(stall_timeout);
    let object = stall.wait(path, objects.get_opts(path, options)).await?.map_err(failed)?;
    let version = UpdateVersion { e_tag: object.meta.e_tag.clone(), version: object.meta.version.clone() };
    let mut bytes = Vec::new();
    let mut body = object.into_stream();
    while let Some(part) = stall.wait(path, body.next()).await? {
        let part = part.map_err(failed)?;
        stall.progress(part.len());
        bytes.extend_from_slice(&part);
        if bytes.len() as u64 > limit {
            let source = ManifestError::TooLarge { what, found: bytes.len() as u64, limit };
            return Err(StoreError::Manifest { path: path.to_string(), source });
        }
    }
    Ok((bytes, version))
}
