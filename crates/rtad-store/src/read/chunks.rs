//! Chunks: read block by block, and verified on the way.

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use object_store::ObjectStoreExt;

use super::store::Store;
use crate::blocking::blocking;
use crate::download::ResumingReader;
use crate::error::StoreError;
use crate::layout::chunk_path;
use rtad_core::snapshot::{AudienceName, Chunk, ChunkDecoder, ChunkEntry, ChunkReader, Manifest};

/// A receiver of a chunk's bytes before they are verified. Called on the blocking pool; cannot
/// fail.
pub trait ByteSink: Send + 'static {
    /// Takes the file's next bytes.
    fn take(&mut self, bytes: &[u8]);
}

/// Keeps the bytes.
impl ByteSink for Vec<u8> {
    fn take(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Drops the bytes.
impl ByteSink for () {
    fn take(&mut self, _: &[u8]) {}
}

impl Store {
    /// Reads one chunk of a manifest. Its fields are checked before memory is allocated, its digest
    /// before it is returned. Hashing runs on the blocking pool.
    ///
    /// # Errors
    ///
    /// A store error, or a refused chunk.
    pub async fn chunk(
        &self,
        manifest: &Manifest,
        entry: &ChunkEntry,
    ) -> Result<Chunk, StoreError> {
        let decoder = ChunkDecoder::new(manifest.filter(), entry);
        Ok(self
            .chunk_copied(manifest.audience(), entry, decoder, ())
            .await?
            .0)
    }

    /// The file of one chunk, verified. Takes its size in memory twice.
    ///
    /// # Errors
    ///
    /// Those of [`Store::chunk`].
    pub async fn chunk_file(
        &self,
        manifest: &Manifest,
        entry: &ChunkEntry,
    ) -> Result<Vec<u8>, StoreError> {
        let decoder = ChunkDecoder::new(manifest.filter(), entry);
        Ok(self
            .chunk_copied(manifest.audience(), entry, decoder, Vec::new())
            .await?
            .1)
    }

    /// Reads one chunk with any [`ChunkReader`]. Copies the bytes to `sink`, which is returned once
    /// they are verified.
    ///
    /// # Errors
    ///
    /// A store error, or a refused chunk.
    pub async fn chunk_copied<R: ChunkReader, C: ByteSink>(
        &self,
        audience: &AudienceName,
        entry: &ChunkEntry,
        reader: R,
        sink: C,
    ) -> Result<(R::Verified, C), StoreError> {
        let path = chunk_path(audience, entry);
        let objects = self.objects(&path).await?;
        let refuse = |source| StoreError::Chunk {
            path: path.to_string(),
            source,
        };

        let mut file =
            ResumingReader::new(objects, path.clone(), entry.size_bytes, self.stall_timeout);
        let mut work = (reader, sink);
        while let Some(block) = file.next_block().await? {
            work = blocking(move || {
                work.1.take(&block);
                work.0.feed(&block).map(|()| work)
            })
            .await
            .map_err(refuse)?;
        }

        let (reader, sink) = work;
        Ok((reader.finish().map_err(refuse)?, sink))
    }

    /// The object's size.
    ///
    /// # Errors
    ///
    /// A store error.
    pub async fn chunk_size(
        &self,
        audience: &AudienceName,
        entry: &ChunkEntry,
    ) -> Result<u64, StoreError> {
        let path = chunk_path(audience, entry);
        let meta = self.objects(&path).await?.head(&path).await;
        Ok(meta
            .map_err(|source| StoreError::backend("look up", &path, source))?
            .size)
    }

    /// Reads chunks of a manifest, `parallel` at a time. Calls `arrived` for each, in any order.
    ///
    /// # Errors
    ///
    /// The first that occurs; the other reads are then abandoned.
    pub async fn chunks(
        &self,
        manifest: &Manifest,
        entries: &[ChunkEntry],
        parallel: usize,
        mut arrived: impl FnMut(&ChunkEntry, Chunk),
    ) -> Result<(), StoreError> {
        let mut waiting = entries.iter();
        let mut reads = FuturesUnordered::new();
        loop {
            // No stream of a closure: its future could not be spawned.
            while reads.len() < parallel.max(1)
                && let Some(entry) = waiting.next()
            {
                reads.push(async move { Ok((entry, self.chunk(manifest, entry).await?)) });
            }
            let Some(read) = reads.next().await else {
                return Ok(());
            };
            let (entry, chunk) = read?;
            arrived(entry, chunk);
        }
    }
}
