//! The snapshot store: where snapshots are published, and where every pod reads them.
//!
//! ```text
//! {store}/{audience}/CURRENT                     which generation is live; always written last
//! {store}/{audience}/manifests/{generation}.json what the generation consists of; written once
//! {store}/{audience}/chunks/{digest}.chunk       immutable, named by content
//! {store}/{audience}/deltas/{last}-{digest}.delta exact changes since; immutable
//! ```
//!
//! All access goes through [`object_store`]: a directory, a bucket (`store/remote.rs`), or an HTTP server, which can be read
//! only. What differs is one thing: how `CURRENT` is replaced without overwriting somebody else's publish. A bucket does it by
//! a conditional put; a directory has none, so a lock file is held from the first byte written to the last
//! (`store/publish.rs`; `store/append.rs` for deltas). What is no longer needed is removed by `store/gc.rs`, a whole audience by
//! `store/delete.rs`. Reading is in `store/read.rs`, and who may say what is read in `store/trust.rs`. An object that is no part of a
//! store, such as a dump that an audience is built from, is read by `store/object.rs`.
//!
//! Everything is verified as it is read: what comes out of [`Store::chunk`] is what was published, or an error.

mod append;
mod backend;
mod client;
mod delete;
mod deltas;
mod error;
mod gc;
mod object;
mod publish;
mod put;
mod read;
mod remote;
mod trust;
mod url;

use std::sync::Arc;
use std::time::Duration;

use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, UpdateVersion};

pub use append::{Appended, Change, Ledger};
use backend::{Access, Backend};
pub use delete::Deletion;
pub use error::StoreError;
pub use gc::{Collected, Retention};
pub use object::Object;
pub use publish::{Base, Publication};
use read::read_small;
pub use read::{Copyist, STALL_TIMEOUT};
pub use trust::{
    ACCEPTED_KEYS, MAX_SIGNATURE_BYTES, PublicKey, PublicKeyError, Sign, SignatureError, Signed, Trust,
};
use url::Location;
pub use url::{ACCEPTED_URLS, redacted};

use rtad_core::snapshot::{AudienceName, ChunkEntry, Current};

/// `CURRENT`, with what a conditional put needs to replace exactly this one.
#[derive(Debug, Clone)]
pub struct Live {
    /// The file's content.
    pub current: Current,
    version: UpdateVersion,
}

/// A place where snapshots are published and read. Cheap to clone; may be used from any number of tasks.
#[derive(Clone)]
pub struct Store {
    backend: Backend,
    stall_timeout: Duration,
    trust: Trust,
    signer: Option<Arc<dyn Sign>>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("backend", &self.backend).finish()
    }
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
            Location::Directory(root) => return Ok(Self::new(Backend::Directory(root))),
            Location::Bucket { kind, name, prefix } => {
                (remote::bucket(kind, &name, &prefix).map_err(failed)?, Access::All)
            }
            Location::Http { url } => (remote::http(&url).map_err(failed)?, Access::Get),
        };
        Ok(Self::new(Backend::Objects { objects, url: url.to_owned(), access }))
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

    fn new(backend: Backend) -> Self {
        Self { backend, stall_timeout: STALL_TIMEOUT, trust: Trust::default(), signer: None }
    }

    /// The same store, with another time without progress after which a read is given up; [`STALL_TIMEOUT`] otherwise.
    #[must_use]
    pub fn with_stall_timeout(self, stall_timeout: Duration) -> Self {
        Self { stall_timeout, ..self }
    }

    /// Whether it is behind a network, where many pods share what it can give.
    pub const fn is_remote(&self) -> bool {
        !self.is_directory()
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

    /// The generations that have a manifest, oldest first, live or not.
    ///
    /// # Errors
    ///
    /// The store's own; [`StoreError::NoListing`] over plain HTTP.
    pub async fn generations(&self, audience: &AudienceName) -> Result<Vec<u64>, StoreError> {
        let Listed { manifests, .. } = self.manifests(audience).await?;
        Ok(manifests.into_iter().map(|(generation, _)| generation).collect())
    }

    /// What lies in `manifests/`.
    async fn manifests(&self, audience: &AudienceName) -> Result<Listed, StoreError> {
        let listed = self.list(&audience_path(audience).join("manifests")).await?;
        let of = |suffix| {
            let number =
                |object: ObjectMeta| Some((generation_of(object.location.filename()?, suffix)?, object));
            let mut numbered: Vec<_> = listed.iter().cloned().filter_map(number).collect();
            numbered.sort_unstable_by_key(|(generation, _)| *generation);
            numbered
        };
        Ok(Listed { manifests: of(".json"), signatures: of(".json.minisig") })
    }
}

/// Generations with what the store says of their files, oldest first.
struct Listed {
    manifests: Vec<(u64, ObjectMeta)>,
    /// Also without a manifest: of a publish that was killed, or is under way.
    signatures: Vec<(u64, ObjectMeta)>,
}

impl Listed {
    /// The highest number that is taken, if only by a signature.
    fn highest(&self) -> u64 {
        let last = |files: &[(u64, ObjectMeta)]| files.last().map_or(0, |(generation, _)| *generation);
        last(&self.manifests).max(last(&self.signatures))
    }
}

/// A file's generation as the format writes a number, so without the sign and the leading zeros that `parse` would take.
fn generation_of(name: &str, suffix: &str) -> Option<u64> {
    let plain = |digits: &&str| matches!(digits.as_bytes(), [b'1'..=b'9', ..]);
    name.strip_suffix(suffix).filter(plain)?.parse().ok()
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
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
pub(crate) use trust::testing;

#[cfg(test)]
mod tests;
