//! The snapshot store: where snapshots are published, and where every pod reads them.
//!
//! ```text
//! {store}/{audience}/CURRENT                     which generation is live; always written last
//! {store}/{audience}/manifests/{generation}.json what the generation consists of; written once
//! {store}/{audience}/chunks/{digest}.chunk       immutable, named by content
//! ```
//!
//! All access goes through [`object_store`]: a directory, a bucket (`store/remote.rs`), or an HTTP server, which can be read
//! only. What differs is one thing: how `CURRENT` is replaced without overwriting somebody else's publish. A bucket does it by
//! a conditional put; a directory has none, so a lock file is held from the first byte written to the last
//! (`store/publish.rs`). What is no longer needed is removed by `store/gc.rs`.
//!
//! Everything is verified as it is read: what comes out of [`Store::chunk`] is what was published, or an error.

mod backend;
mod error;
mod gc;
mod publish;
mod remote;
mod url;

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, UpdateVersion};

use backend::{Access, Backend};
pub use error::StoreError;
pub use gc::{Collected, Retention};
pub use publish::{Base, Publication};
use url::Location;
pub use url::{ACCEPTED_URLS, redacted};

use crate::snapshot::{
    AudienceName, Chunk, ChunkDecoder, ChunkEntry, ChunkError, Current, MAX_CURRENT_BYTES,
    MAX_MANIFEST_BYTES, Manifest, ManifestError,
};

/// How much of a chunk is asked for at a time: large enough that a request costs little beside it, small enough that a
/// failed one is soon made again and that the allocator keeps little of it for later.
const PIECE_BYTES: u64 = 1 << 20;

/// `CURRENT`, with what a conditional put needs to replace exactly this one.
#[derive(Debug, Clone)]
pub struct Live {
    /// The file's content.
    pub current: Current,
    version: UpdateVersion,
}

/// A place where snapshots are published and read. Cheap to clone; may be used from any number of tasks.
#[derive(Debug, Clone)]
pub struct Store {
    backend: Backend,
}

impl Store {
    /// A store by its URL: one of [`ACCEPTED_URLS`]. Of a remote one the client is made here, once, with the credentials that
    /// the environment holds; nothing is asked of it. Connections are kept, so a store should be opened once and cloned.
    ///
    /// # Errors
    ///
    /// [`StoreError::Url`] if it is no such URL, [`StoreError::Open`] if the environment does not fit it.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        let failed =
            |source: object_store::Error| StoreError::Open { url: url.to_owned(), source: source.into() };
        let (objects, access) = match Location::parse(url)? {
            Location::Directory(root) => return Ok(Self { backend: Backend::Directory(root) }),
            Location::Bucket { kind, name, prefix } => {
                (remote::bucket(kind, &name, &prefix).map_err(failed)?, Access::All)
            }
            Location::Http { url } => (remote::http(&url).map_err(failed)?, Access::Get),
        };
        Ok(Self { backend: Backend::Objects { objects, url: url.to_owned(), access } })
    }

    /// Whether [`Store::open`] knows such a URL. Reads no environment and makes no client.
    ///
    /// # Errors
    ///
    /// [`StoreError::Url`].
    pub fn check_url(url: &str) -> Result<(), StoreError> {
        Location::parse(url).map(|_| ())
    }

    /// A store in this process's memory: for tests of what is published and read by conditional puts.
    pub fn in_memory() -> Self {
        Self::over(Arc::new(InMemory::new()), "memory")
    }

    /// The names of the audiences in the store, sorted. Folders with other names are not audiences.
    ///
    /// # Errors
    ///
    /// The store's own; [`StoreError::NoListing`] over plain HTTP.
    pub async fn audiences(&self) -> Result<Vec<AudienceName>, StoreError> {
        self.listable()?;
        let root = Path::default();
        let listing = match self.objects(&root) {
            Err(StoreError::NotFound { .. }) => return Ok(Vec::new()),
            objects => objects?.list_with_delimiter(None).await,
        };
        let listing = listing.map_err(|source| StoreError::backend("list", &root, source))?;
        let names = listing.common_prefixes.iter().filter_map(|path| path.filename()?.parse().ok());
        let mut names: Vec<AudienceName> = names.collect();
        names.sort();
        Ok(names)
    }

    /// What is live; `None` if nothing of this audience was ever published.
    ///
    /// # Errors
    ///
    /// The store's own, or a `CURRENT` that is refused.
    pub async fn live(&self, audience: &AudienceName) -> Result<Option<Live>, StoreError> {
        let path = current_path(audience);
        let objects = match self.objects(&path) {
            Err(StoreError::NotFound { .. }) => return Ok(None),
            objects => objects?,
        };
        let (bytes, version) = match read_small(&*objects, &path, MAX_CURRENT_BYTES, "CURRENT").await {
            Err(StoreError::NotFound { .. }) => return Ok(None),
            read => read?,
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
        let path = manifest_path(audience, current.generation);
        let bytes = self.manifest_bytes(&path).await?;
        Manifest::parse_named(&bytes, audience, current)
            .map_err(|source| StoreError::Manifest { path: path.to_string(), source })
    }

    /// The manifest of any generation, and its bytes. Only its fields vouch for it.
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
        let bytes = self.manifest_bytes(&path).await?;
        let manifest = Manifest::parse(&bytes, audience, generation)
            .map_err(|source| StoreError::Manifest { path: path.to_string(), source })?;
        Ok((manifest, bytes))
    }

    async fn manifest_bytes(&self, path: &Path) -> Result<Vec<u8>, StoreError> {
        let (bytes, _) = read_small(&*self.objects(path)?, path, MAX_MANIFEST_BYTES, "the manifest").await?;
        Ok(bytes)
    }

    /// The generations that have a manifest, oldest first, live or not.
    ///
    /// # Errors
    ///
    /// The store's own; [`StoreError::NoListing`] over plain HTTP.
    pub async fn generations(&self, audience: &AudienceName) -> Result<Vec<u64>, StoreError> {
        let manifests = self.manifests(audience).await?;
        Ok(manifests.into_iter().map(|(generation, _)| generation).collect())
    }

    /// The generations with what the store says of their manifests, oldest first.
    async fn manifests(&self, audience: &AudienceName) -> Result<Vec<(u64, ObjectMeta)>, StoreError> {
        let listed = self.list(&audience_path(audience).join("manifests")).await?;
        // As the format writes a number, so without the sign and the leading zeros that `parse` would take.
        let plain = |digits: &str| matches!(digits.as_bytes(), [b'1'..=b'9', ..]);
        let number = |name: &str| name.strip_suffix(".json").filter(|digits| plain(digits))?.parse().ok();
        let mut manifests: Vec<(u64, ObjectMeta)> = listed
            .into_iter()
            .filter_map(|object| Some((object.location.filename().and_then(number)?, object)))
            .collect();
        manifests.sort_unstable_by_key(|(generation, _)| *generation);
        Ok(manifests)
    }

    /// Reads one chunk of a manifest, piece by piece: its fields are checked before memory is taken for it, its digest before
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
        let path = chunk_path(audience, entry);
        let objects = self.objects(&path)?;
        let refuse = |source| StoreError::Chunk { path: path.to_string(), source };
        let mut decoder = ChunkDecoder::new(manifest.filter(), entry);
        let mut offset = 0;
        while offset < entry.size_bytes {
            let range = GetRange::Bounded(offset..entry.size_bytes.min(offset + PIECE_BYTES));
            let piece = objects
                .get_opts(&path, GetOptions { range: Some(range), ..GetOptions::default() })
                .await
                .map_err(|source| StoreError::backend("read", &path, source));
            let piece = match piece {
                // A file that ends before the range starts is reported as a bad range: it is a file that is too short.
                Err(error) => return Err(self.too_short(&path, entry).await.unwrap_or(error)),
                Ok(piece) => piece,
            };
            if piece.meta.size != entry.size_bytes {
                return Err(refuse(ChunkError::Length {
                    found: piece.meta.size,
                    expected: entry.size_bytes,
                }));
            }
            let bytes = piece.bytes().await.map_err(|source| StoreError::backend("read", &path, source))?;
            if bytes.is_empty() {
                return Err(refuse(ChunkError::Length { found: offset, expected: entry.size_bytes }));
            }
            offset += bytes.len() as u64;
            decoder = blocking(move || decoder.feed(&bytes).map(|()| decoder)).await.map_err(refuse)?;
        }
        decoder.finish().map_err(refuse)
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

    async fn too_short(&self, path: &Path, entry: &ChunkEntry) -> Option<StoreError> {
        let found = self.objects(path).ok()?.head(path).await.ok()?.size;
        let source = ChunkError::Length { found, expected: entry.size_bytes };
        (found != entry.size_bytes).then(|| StoreError::Chunk { path: path.to_string(), source })
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

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}

/// Reads a whole small object, never more than `limit` bytes of it.
async fn read_small(
    objects: &dyn ObjectStore,
    path: &Path,
    limit: u64,
    what: &'static str,
) -> Result<(Vec<u8>, UpdateVersion), StoreError> {
    let object = objects.get(path).await.map_err(|source| StoreError::backend("read", path, source))?;
    let version = UpdateVersion { e_tag: object.meta.e_tag.clone(), version: object.meta.version.clone() };
    let mut bytes = Vec::new();
    let mut pieces = object.into_stream();
    while let Some(piece) = pieces.next().await {
        bytes.extend_from_slice(&piece.map_err(|source| StoreError::backend("read", path, source))?);
        if bytes.len() as u64 > limit {
            let source = ManifestError::TooLarge { what, found: bytes.len() as u64, limit };
            return Err(StoreError::Manifest { path: path.to_string(), source });
        }
    }
    Ok((bytes, version))
}

fn audience_path(audience: &AudienceName) -> Path {
    Path::from(audience.as_str())
}

fn current_path(audience: &AudienceName) -> Path {
    audience_path(audience).join("CURRENT")
}

fn manifest_path(audience: &AudienceName, generation: u64) -> Path {
    audience_path(audience).join("manifests").join(format!("{generation}.json"))
}

fn chunk_path(audience: &AudienceName, entry: &ChunkEntry) -> Path {
    audience_path(audience).join("chunks").join(format!("{}.chunk", entry.digest))
}

#[cfg(test)]
mod tests;
