//! The read side of a store: opening it, and listing audiences.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _};

use crate::backend::Backend;
use crate::download::STALL_TIMEOUT;
use crate::error::StoreError;
use crate::trust::{PublicKey, Trust};
use crate::url::{Location, UrlError};
use rtad_core::snapshot::AudienceName;

/// A store of snapshots, for reading. Cheap to clone; may be used from any number of tasks.
#[derive(Clone)]
pub struct Store {
    pub(crate) backend: Backend,
    pub(super) stall_timeout: Duration,
    pub(super) trust: Trust,
    /// Whether this process found content in the store: an empty directory is then a lost mount.
    had_content: Arc<AtomicBool>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("backend", &self.backend)
            .finish()
    }
}

impl Store {
    /// Opens a store by its URL: one of [`crate::ACCEPTED_URLS`]. Sends no request. Credentials
    /// come from the environment. Connections are kept, so open a store once and clone it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Url`] if the URL is not accepted, [`StoreError::Open`] if the environment does
    /// not fit it.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        Backend::open(url).map(Self::new)
    }

    /// Checks that [`Store::open`] accepts a URL. Reads no environment and creates no client.
    ///
    /// # Errors
    ///
    /// [`UrlError`].
    pub fn check_url(url: &str) -> Result<(), UrlError> {
        Location::parse(url).map(|_| ())
    }

    /// Whether [`Store::open`] accepts a URL, and the store can be written to.
    pub fn is_writable_url(url: &str) -> bool {
        let location = Location::parse(url);
        location.is_ok_and(|location| !matches!(location, Location::Http { .. }))
    }

    /// A store in this process's memory: for tests.
    pub fn in_memory() -> Self {
        Self::new(Backend::over(Arc::new(InMemory::new()), "memory"))
    }

    /// A store over any client that creates objects conditionally, such as one that injects faults.
    /// `name` appears in messages.
    pub fn over(objects: Arc<dyn ObjectStore>, name: &str) -> Self {
        Self::new(Backend::over(objects, name))
    }

    pub(crate) fn new(backend: Backend) -> Self {
        Self {
            backend,
            stall_timeout: STALL_TIMEOUT,
            trust: Trust::default(),
            had_content: Arc::default(),
        }
    }

    /// The same store, with another limit on the time that a read makes no progress;
    /// [`STALL_TIMEOUT`] otherwise.
    #[must_use]
    pub fn with_stall_timeout(self, stall_timeout: Duration) -> Self {
        Self {
            stall_timeout,
            ..self
        }
    }

    /// The same store, which requires a signature by one of these keys. An empty list disables
    /// verification.
    #[must_use]
    pub fn with_public_keys(self, keys: impl Into<Arc<[PublicKey]>>) -> Self {
        self.with_trust(Trust::new(keys))
    }

    /// The same store, with other public keys.
    #[must_use]
    pub fn with_trust(self, trust: Trust) -> Self {
        Self { trust, ..self }
    }

    /// The limit on the time that a read makes no progress.
    pub const fn stall_timeout(&self) -> Duration {
        self.stall_timeout
    }

    /// The accepted public keys.
    pub const fn trust(&self) -> &Trust {
        &self.trust
    }

    /// Whether the store is behind a network.
    pub const fn is_remote(&self) -> bool {
        !self.backend.is_directory()
    }

    /// Refuses a missing directory, and remembers whether it has content. Sends no request to an
    /// object store.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoDirectory`].
    pub async fn check_directory(&self) -> Result<(), StoreError> {
        if !self.is_remote() {
            self.objects(&Path::default()).await?;
            if !self.backend.is_empty_directory(false).await? {
                self.note_content();
            }
        }
        Ok(())
    }

    /// Remembers that the store has an audience or a window.
    pub(crate) fn note_content(&self) {
        self.had_content.store(true, Ordering::Relaxed);
    }

    /// Refuses a directory without audiences and windows in which this process found some before.
    pub(crate) async fn refuse_lost_mount(&self) -> Result<(), StoreError> {
        let had_content = self.had_content.load(Ordering::Relaxed);
        if had_content && self.backend.is_empty_directory(false).await? {
            let root = self.backend.url().into();
            return Err(StoreError::LostMount { root });
        }
        Ok(())
    }

    /// Refuses a directory without audiences, windows and caps, also in a process that starts.
    pub(crate) async fn refuse_empty_caps(&self) -> Result<(), StoreError> {
        if self.backend.is_empty_directory(true).await? {
            let root = self.backend.url().into();
            return Err(StoreError::EmptyCaps { root });
        }
        Ok(())
    }

    /// The names of the audiences in the store, sorted. Folders with other names are not audiences.
    ///
    /// # Errors
    ///
    /// A store error; [`StoreError::NoListing`] over plain HTTP; [`StoreError::NoDirectory`].
    pub async fn audiences(&self) -> Result<Vec<AudienceName>, StoreError> {
        self.backend.check_listable()?;
        let root = Path::default();
        let listed = self.objects(&root).await?.list_with_delimiter(None).await;
        let listing = listed.map_err(|source| StoreError::backend("list", &root, source))?;

        let mut names: Vec<AudienceName> = Vec::new();
        for path in &listing.common_prefixes {
            if let Some(Ok(name)) = path.filename().map(str::parse) {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// When a file was written, by the store's clock.
    pub(crate) async fn written_at(&self, path: &Path) -> Result<SystemTime, StoreError> {
        let found = self.objects(path).await?.head(path).await;
        let meta = found.map_err(|source| StoreError::backend("look up", path, source))?;
        Ok(meta.last_modified.into())
    }

    pub(crate) async fn objects(&self, path: &Path) -> Result<Arc<dyn ObjectStore>, StoreError> {
        self.backend.objects(path).await
    }
}
