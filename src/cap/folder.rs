//! Folder of the caps' files in the cache: used by one process, emptied of what has ended.

use std::fs::{OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use parking_lot::Mutex;
use rtad_core::files::FileLock;

use super::file::{self, FileError, FileName};

/// Folder in the cache. No audience has its name, as those begin with a letter or a digit.
const NAME: &str = "_caps";
const LOCK: &str = "LOCK";

/// A folder that one process uses at a time: another one would restore the counts of this one.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    lock: Mutex<FolderLock>,
}

/// Lock of the folder.
#[derive(Debug, Default)]
enum FolderLock {
    #[default]
    Untried,
    Locked {
        _lock: FileLock,
    },
    /// Another process had the lock at the first try, so its files were not read: a later write
    /// would erase its counts.
    Refused,
}

impl Folder {
    pub fn in_cache(cache_dir: &Path) -> Self {
        Self {
            path: cache_dir.join(NAME),
            lock: Mutex::default(),
        }
    }

    /// Its path, used or not.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path, after locking it for this process. A process that was refused once never gets it.
    /// Blocks.
    pub fn lock(&self) -> Result<&Path, FileError> {
        let mut lock = self.lock.lock();
        match *lock {
            FolderLock::Locked { .. } => return Ok(&self.path),
            FolderLock::Refused => return Err(FileError::InUse),
            FolderLock::Untried => std::fs::create_dir_all(&self.path)?,
        }

        let path = self.path.join(LOCK);
        // A named pipe would block until there is a reader.
        if std::fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
            return Err(FileError::Damaged("LOCK is no regular file"));
        }

        let mut options = OpenOptions::new();
        let file = options
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)?;

        match FileLock::exclusive(file) {
            Ok(held) => *lock = FolderLock::Locked { _lock: held },
            Err(TryLockError::WouldBlock) => {
                *lock = FolderLock::Refused;
                return Err(FileError::InUse);
            }
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        Ok(&self.path)
    }

    /// Lets another process use it, and this one no more.
    pub fn unlock(&self) {
        *self.lock.lock() = FolderLock::Refused;
    }

    /// Removes what killed processes have left, and the files of strategies without a cap once
    /// their period has ended: they hold fingerprints of ids. Blocks.
    pub fn clean(&self, has_cap: impl Fn(&str) -> bool) {
        let Ok(entries) = self.lock().map(std::fs::read_dir) else {
            return;
        };

        for entry in entries.into_iter().flatten().flatten() {
            let path = entry.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let is_over = match name.and_then(file::name_of) {
                Some(FileName::Staged) => true,
                Some(FileName::Saved(strategy)) => {
                    !has_cap(strategy) && file::has_ended(&path, SystemTime::now())
                }
                None => false,
            };
            if is_over && let Err(error) = std::fs::remove_file(&path) {
                let path = path.display().to_string();
                let error = error.to_string();
                tracing::warn!(path, error, "old file of a cap not removed");
            }
        }
    }
}
