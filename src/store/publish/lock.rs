//! The lock of an audience in a directory, for whoever writes there: a loader, a rollback, a gc.
//!
//! Held from the first byte written to the last. The kernel drops it with its holder, however that ends. Object stores
//! have none: there conditional puts decide (`store/publish.rs`), and a mark keeps gc and loaders apart (`store/gc.rs`).

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::Path as FilePath;

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

/// Makes the audience's folder, takes its lock, and removes what a killed writer left half-written. `None`: the lock is held.
fn lock_and_sweep(folder: &FilePath) -> io::Result<Option<File>> {
    std::fs::create_dir_all(folder)?;
    // object_store syncs what it makes below; that the folder is there at all is ours to make sure of.
    for parent in folder.ancestors().skip(1).take(2).filter(|parent| !parent.as_os_str().is_empty()) {
        File::open(parent)?.sync_all()?;
    }
    let lock = OpenOptions::new().create(true).write(true).truncate(false).open(folder.join("LOCK"))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    for part in ["", "manifests", "chunks"] {
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
