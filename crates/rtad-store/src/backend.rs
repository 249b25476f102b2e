//! Backend of a store: a directory or an object store's client, and its capabilities.

mod clock;
mod create;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::TryStreamExt;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};
use tokio::sync::{OnceCell, Semaphore};

use super::blocking::blocking;
use super::error::StoreError;
use super::layout::{CAPS, WINDOWS};
use super::remote;
use super::url::Location;
use clock::StoreClock;
pub(crate) use create::Created;
use rtad_core::snapshot::AudienceName;

/// A directory, or a client of an object store.
#[derive(Clone)]
pub(crate) enum Backend {
    Directory(Directory),
    Objects {
        objects: Arc<dyn ObjectStore>,
        url: String,
        access: Access,
        /// Set once the server is known to honor the condition of a create (`records.rs`): its
        /// clock, as the probe showed it.
        conditions: Arc<OnceCell<StoreClock>>,
    },
}

/// The folder of a store, and the permit to probe it.
#[derive(Clone)]
pub(crate) struct Directory {
    pub(crate) root: PathBuf,
    /// One probe at a time: over a mount that hangs, each would hold a thread for good.
    probe: Arc<Semaphore>,
}

/// Capabilities of an object store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// All operations; puts may be conditional.
    All,
    /// Reads by name only.
    Get,
}

impl std::fmt::Debug for Backend {
    /// The URL alone: a client may hold credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.url())
    }
}

impl Backend {
    /// Opens a backend with credentials from the environment. Sends no request.
    pub(crate) fn open(url: &str) -> Result<Self, StoreError> {
        let failed = |source: object_store::Error| StoreError::Open {
            url: url.to_owned(),
            source: source.into(),
        };

        let (objects, access) = match Location::parse(url).map_err(StoreError::Url)? {
            Location::Directory(root) => {
                return Ok(Self::Directory(Directory {
                    root,
                    probe: Arc::new(Semaphore::new(1)),
                }));
            }
            Location::Bucket { kind, name, prefix } => (
                remote::bucket(kind, &name, &prefix).map_err(failed)?,
                Access::All,
            ),
            Location::Http { url } => (remote::http(&url).map_err(failed)?, Access::Get),
        };

        Ok(Self::Objects {
            objects,
            url: url.to_owned(),
            access,
            conditions: Arc::default(),
        })
    }

    /// An object store that creates objects conditionally.
    pub(crate) fn over(objects: Arc<dyn ObjectStore>, url: &str) -> Self {
        Self::Objects {
            objects,
            url: url.to_owned(),
            access: Access::All,
            conditions: Arc::default(),
        }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Directory(Directory { root, .. }) => root.display().to_string(),
            Self::Objects { url, .. } => url.clone(),
        }
    }

    /// Whether this is a directory.
    pub(crate) const fn is_directory(&self) -> bool {
        matches!(self, Self::Directory(_))
    }

    /// A client for `path`. A directory is opened each time, which takes microseconds: it may
    /// appear after the start, and ConfigMap volumes change by swapping a link. Waits, without a
    /// thread of its own, while another call waits for a mount that hangs.
    pub(crate) async fn objects(&self, path: &Path) -> Result<Arc<dyn ObjectStore>, StoreError> {
        match self {
            Self::Objects { objects, .. } => Ok(Arc::clone(objects)),
            Self::Directory(directory) => {
                let permit = Arc::clone(&directory.probe).acquire_owned().await;
                let root = directory.root.clone();
                let path = path.clone();
                blocking(move || {
                    let _permit = permit;
                    open_directory(root, &path)
                })
                .await
            }
        }
    }

    /// Refuses a store that cannot be written to. Sends no request.
    pub(crate) fn check_writable(&self) -> Result<(), StoreError> {
        match self {
            Self::Objects {
                url,
                access: Access::Get,
                ..
            } => Err(StoreError::ReadOnly { url: url.clone() }),
            _ => Ok(()),
        }
    }

    /// Refuses a store that cannot be listed. Sends no request.
    pub(crate) fn check_listable(&self) -> Result<(), StoreError> {
        match self {
            Self::Objects {
                url,
                access: Access::Get,
                ..
            } => Err(StoreError::NoListing { url: url.clone() }),
            _ => Ok(()),
        }
    }

    /// Whether this is a directory without a folder of an audience or of windows, and, if they
    /// count, of caps.
    pub(crate) async fn is_empty_directory(&self, counts_caps: bool) -> Result<bool, StoreError> {
        let Self::Directory(Directory { root, .. }) = self else {
            return Ok(false);
        };
        let root = root.clone();
        let listed = blocking(move || -> io::Result<bool> {
            for entry in std::fs::read_dir(root)? {
                let file_name = entry?.file_name();
                let name = file_name.to_str().unwrap_or_default();
                if counts_caps && name == CAPS {
                    return Ok(false);
                }
                if name == WINDOWS || name.parse::<AudienceName>().is_ok() {
                    return Ok(false);
                }
            }
            Ok(true)
        });

        listed.await.map_err(|source| StoreError::Backend {
            action: "list",
            path: "the store".to_owned(),
            source: source.into(),
        })
    }

    /// The objects below a folder; empty if there is no such folder.
    pub(crate) async fn list(&self, folder: &Path) -> Result<Vec<ObjectMeta>, StoreError> {
        self.check_listable()?;
        let objects = match self.objects(folder).await {
            Err(StoreError::NoDirectory { .. }) => return Ok(Vec::new()),
            objects => objects?,
        };
        let listed = objects.list(Some(folder)).try_collect().await;
        listed.map_err(|source| StoreError::backend("list", folder, source))
    }
}

/// A client for `path` below `root`.
fn open_directory(root: PathBuf, path: &Path) -> Result<Arc<dyn ObjectStore>, StoreError> {
    if !root.exists() {
        return Err(StoreError::NoDirectory { root });
    }
    // Opening a pipe waits for its writer, on a thread that would never be returned.
    if let Ok(file) = root.join(path.as_ref()).metadata()
        && !file.is_file()
        && !file.is_dir()
    {
        let source = object_store::Error::Generic {
            store: "directory",
            source: "found a pipe, a socket or a device, expected a regular file".into(),
        };
        return Err(StoreError::backend("read", path, source));
    }
    let files = LocalFileSystem::new_with_prefix(root)
        .map_err(|source| StoreError::backend("open", path, source))?
        .with_fsync(true);
    Ok(Arc::new(files))
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use super::*;

    #[test]
    fn hung_mount_delays_no_deadline_and_takes_one_thread() {
        let threads = Arc::new(AtomicUsize::new(0));
        let started = Arc::clone(&threads);
        let count = move || _ = started.fetch_add(1, Ordering::Relaxed);
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime
            .enable_time()
            .on_thread_start(count)
            .build()
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let backend = Backend::open(folder.path().to_str().unwrap()).unwrap();
        let Backend::Directory(directory) = &backend else {
            panic!("not a directory")
        };
        let path = Path::from("old_users/LATEST");
        runtime.block_on(async {
            // A probe that does not return keeps its permit.
            let hung = Arc::clone(&directory.probe).acquire_owned().await.unwrap();
            for _ in 0..50 {
                let deadline = Duration::from_millis(1);
                let late = tokio::time::timeout(deadline, backend.objects(&path)).await;
                assert!(late.is_err(), "the probe is waited for");
            }
            assert_eq!(
                threads.load(Ordering::Relaxed),
                0,
                "waiting takes no threads"
            );
            drop(hung);
            backend.objects(&path).await.unwrap();
        });
        assert_eq!(
            threads.load(Ordering::Relaxed),
            1,
            "a probe takes one thread"
        );
    }
}
