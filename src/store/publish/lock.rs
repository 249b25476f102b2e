//! The locks of an audience in a directory, for whoever writes there: a loader, a rollback, a gc, an append.
//!
//! `LOCK` is for chunks and manifests, `CURRENT.LOCK` for `CURRENT` and deltas, taken last and let go first. `LOCK` is held from the first byte written to the last. The kernel drops it with its holder, however that ends. Object stores
//! have none: there conditional puts decide (`store/publish.rs`), and a mark keeps gc and loaders apart (`store/gc.rs`).

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::Path as FilePath;
use std::time::{Duration, Instant};

use super::super::{Backend, Store, StoreError, blocking};
use crate::snapshot::AudienceName;

impl Store {
    /// Takes the audience's lock, and makes its folder for it; `None` in an object store.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`] if it is held.
    pub(in crate::store) async fn lock(&self, audience: &AudienceName) -> Result<Option<File>, StoreError> {
        let Backend::Directory(root) = &self.backend else { return Ok(None) };
        let folder = root.join(audience.as_str());
        let locked = blocking(move || lock_and_sweep(&folder)).await;
        let lock = locked.map_err(|source| StoreError::Backend {
            action: "lock",
            path: audience.to_string(),
            source: source.into(),
        })?;
        let held = || StoreError::Conflict {
            audience: audience.clone(),
            reason: "another loader is publishing this audience".into(),
        };
        lock.ok_or_else(held).map(Some)
    }
}

impl Store {
    /// Takes the audience's lock with others that write chunks ahead of their publication: it keeps out who would sweep their files
    /// while they are being written. Held for one chunk; waits a while for a loader or a gc to end. `None` in an object store.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`] if it is held alone for long.
    pub(in crate::store) async fn lock_shared(
        &self,
        audience: &AudienceName,
    ) -> Result<Option<File>, StoreError> {
        let reason = "another loader is publishing this audience, or a gc is at work";
        self.wait_for_lock(audience, SHARED_LOCK_POLL, reason, try_lock_shared).await
    }
}

const SHARED_LOCK_POLL: Duration = Duration::from_millis(50);
/// For so long a writer waits for another: to replace `CURRENT` takes milliseconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
const CURRENT_LOCK_POLL: Duration = Duration::from_millis(5);

impl Store {
    /// Takes the lock under which `CURRENT` is replaced, for as long as that takes: a publish holds [`Store::lock`] for hours, and
    /// deltas are appended meanwhile. `None` in an object store.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`] if another writer holds it for long.
    pub(in crate::store) async fn lock_current(
        &self,
        audience: &AudienceName,
    ) -> Result<Option<File>, StoreError> {
        let take = |folder: &FilePath| take_and_sweep(folder, "CURRENT.LOCK", &["", "deltas"]);
        self.wait_for_lock(audience, CURRENT_LOCK_POLL, "another writer holds CURRENT.LOCK", take).await
    }

    /// Tries to `take` a lock of the audience's folder, again and again; [`StoreError::Conflict`] for this reason if it is held for
    /// long.
    async fn wait_for_lock(
        &self,
        audience: &AudienceName,
        poll: Duration,
        reason: &str,
        take: fn(&FilePath) -> io::Result<Option<File>>,
    ) -> Result<Option<File>, StoreError> {
        let Backend::Directory(root) = &self.backend else { return Ok(None) };
        let begun = Instant::now();
        loop {
            let folder = root.join(audience.as_str());
            match blocking(move || take(&folder)).await {
                Ok(Some(lock)) => return Ok(Some(lock)),
                Ok(None) if begun.elapsed() < LOCK_TIMEOUT => tokio::time::sleep(poll).await,
                Ok(None) => {
                    return Err(StoreError::Conflict {
                        audience: audience.clone(),
                        reason: reason.to_owned(),
                    });
                }
                Err(error) => {
                    let (path, source) = (audience.to_string(), error.into());
                    return Err(StoreError::Backend { action: "lock", path, source });
                }
            }
        }
    }
}

/// Makes the audience's folder, takes its lock, and removes what a killed writer left half-written. `None`: the lock is held.
fn lock_and_sweep(folder: &FilePath) -> io::Result<Option<File>> {
    make_folder(folder)?;
    take_and_sweep(folder, "LOCK", &["manifests", "chunks"])
}

fn make_folder(folder: &FilePath) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    // object_store syncs what it makes below; that the folder is there at all is ours to make sure of.
    for parent in folder.ancestors().skip(1).take(2).filter(|parent| !parent.as_os_str().is_empty()) {
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

/// Makes the audience's folder and shares its lock. `None`: it is held alone.
fn try_lock_shared(folder: &FilePath) -> io::Result<Option<File>> {
    make_folder(folder)?;
    // Opened for reading too: some network file systems share a lock of such a file only.
    let lock =
        OpenOptions::new().create(true).read(true).write(true).truncate(false).open(folder.join("LOCK"))?;
    match lock.try_lock_shared() {
        Ok(()) => Ok(Some(lock)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Takes a lock, and removes what a killed writer that held it left half-written in these folders.
fn take_and_sweep(folder: &FilePath, name: &str, parts: &[&str]) -> io::Result<Option<File>> {
    let lock = OpenOptions::new().create(true).write(true).truncate(false).open(folder.join(name))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    for part in parts {
        let entries = match std::fs::read_dir(folder.join(part)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            // object_store stages a write under the final name, a '#' and a number; no name of ours has a '#'.
            if entry.file_name().as_encoded_bytes().contains(&b'#') {
                std::fs::remove_file(entry.path())?;
            }
        }
    }
    Ok(Some(lock))
}
