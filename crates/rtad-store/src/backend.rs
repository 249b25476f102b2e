//! What a store stands on: a directory, or a client of an object store; and what can be done with it.

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::TryStreamExt;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};

use super::{Store, StoreError};

#[derive(Clone)]
pub(super) enum Backend {
    Directory(PathBuf),
    Objects { objects: Arc<dyn ObjectStore>, url: String, access: Access },
}

/// What can be done with an object store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Everything; puts may be conditional.
    All,
    /// What one knows the name of can be read.
    Get,
}

impl std::fmt::Debug for Backend {
    /// By its place alone: what a client holds besides may be credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.url())
    }
}

impl Backend {
    pub(super) fn url(&self) -> String {
        match self {
            Self::Directory(root) => root.display().to_string(),
            Self::Objects { url, .. } => url.clone(),
        }
    }
}

impl Store {
    pub(super) fn over(objects: Arc<dyn ObjectStore>, url: &str) -> Self {
        Self::new(Backend::Objects { objects, url: url.to_owned(), access: Access::All })
    }

    /// Whether it is a directory, which is locked for writing and cannot put conditionally.
    pub(super) const fn is_directory(&self) -> bool {
        matches!(self.backend, Backend::Directory(_))
    }

    /// A directory is opened anew each time, for a few microseconds: it may come later than the pod, and a link to it may be
    /// swapped for a link to another, as volumes of config maps are updated.
    pub(super) fn objects(&self, path: &Path) -> Result<Arc<dyn ObjectStore>, StoreError> {
        match &self.backend {
            Backend::Objects { objects, .. } => Ok(Arc::clone(objects)),
            Backend::Directory(root) => {
                if !root.exists() {
                    return Err(StoreError::NotFound { path: format!("{}/{path}", root.display()) });
                }
                let files = LocalFileSystem::new_with_prefix(root)
                    .map_err(|source| StoreError::backend("open", path, source))?
                    .with_fsync(true);
                Ok(Arc::new(files))
            }
        }
    }

    /// Refuses a store that cannot be written to whoever asks. Asks the store nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError::ReadOnly`].
    pub fn writable(&self) -> Result<(), StoreError> {
        match &self.backend {
            Backend::Objects { url, access: Access::Get, .. } => {
                Err(StoreError::ReadOnly { url: url.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Refuses a store that cannot be listed.
    pub(super) fn listable(&self) -> Result<(), StoreError> {
        match &self.backend {
            Backend::Objects { url, access: Access::Get, .. } => {
                Err(StoreError::NoListing { url: url.clone() })
            }
            _ => Ok(()),
        }
    }

    /// What lies below a folder; nothing if there is no such folder.
    pub(super) async fn list(&self, folder: &Path) -> Result<Vec<ObjectMeta>, StoreError> {
        self.listable()?;
        let objects = match self.objects(folder) {
            Err(StoreError::NotFound { .. }) => return Ok(Vec::new()),
            objects => objects?,
        };
        let listed = objects.list(Some(folder)).try_collect().await;
        listed.map_err(|source| StoreError::backend("list", folder, source))
    }
}
