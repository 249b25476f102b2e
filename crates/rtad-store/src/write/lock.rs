//! Locks of an audience in a directory, for all writers: publish, rollback, append, gc, delete.
//!
//! * `LOCK` protects chunks and manifests. It is held from the first byte written to the last, and
//!   may be shared by writers of chunks before their publication.
//! * `CURRENT.LOCK` protects `CURRENT` and deltas. It is taken last and released first.
//!
//! The kernel releases the locks of a killed process. Object stores use conditional puts
//! (`write/put.rs`) and a gc mark (`write/gc.rs`) instead.

use std::fs::{OpenOptions, TryLockError};
use std::io;
use std::path::Path as FilePath;
use std::time::{Duration, Instant};

use object_store::path::Path;

use crate::backend::{Backend, Directory};
use crate::blocking::blocking;
use crate::error::StoreError;
use crate::layout::{audience_path, is_staged_name, window_path};
use rtad_core::files::{FileLock, sync_dir};
use rtad_core::snapshot::AudienceName;

/// The retry interval and time-out of a lock that is busy, and the reason of the conflict after it.
struct LockRetry {
    interval: Duration,
    timeout: Duration,
    reason: &'static str,
}

impl LockRetry {
    /// Longer than the write of a chunk, unless the disk is very slow.
    const EXCLUSIVE: Self = Self {
        interval: Duration::from_millis(20),
        timeout: Duration::from_secs(2),
        reason: "another process is publishing this audience",
    };
    const SHARED: Self = Self {
        interval: Duration::from_millis(50),
        timeout: Duration::from_secs(30),
        reason: "another process is publishing this audience, or a gc is at work",
    };
    /// Replacing `CURRENT` takes milliseconds.
    const CURRENT: Self = Self {
        interval: Duration::from_millis(5),
        timeout: Duration::from_secs(30),
        reason: "another writer is at work",
    };
}

/// File names of the locks.
const LOCK: &str = "LOCK";
const CURRENT_LOCK: &str = "CURRENT.LOCK";

/// The folders that a lock may create in a directory. A missing folder of an audience, and a missing store,
/// may be behind a mount that is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Creates {
    /// Nothing: the lock is for a change of files that exist.
    Nothing,
    /// The folder of the audience or window, in a store that exists.
    Folder,
    /// The store too.
    Store,
}

/// The outcome of one try to take a lock.
enum Try {
    Taken(FileLock),
    /// The holder releases it soon.
    Busy,
    /// The holder may keep it for hours.
    Held,
}

/// Takes the audience's lock; `None` in an object store. Waits briefly for shared holders, and not
/// at all for an exclusive one.
///
/// # Errors
///
/// [`StoreError::Conflict`] if it is held, [`StoreError::NoDirectory`] or [`StoreError::NotFound`]
/// without a folder that it may create.
pub async fn lock(
    backend: &Backend,
    audience: &AudienceName,
    creates: Creates,
) -> Result<Option<FileLock>, StoreError> {
    let path = audience_path(audience).join(LOCK);
    retry(
        backend,
        audience,
        path,
        creates,
        LockRetry::EXCLUSIVE,
        lock_and_sweep,
    )
    .await
}

/// Takes a share of the audience's lock, for one chunk written before its publication; `None` in an
/// object store. It excludes writers that remove half-written files. Waits for an exclusive holder.
///
/// # Errors
///
/// [`StoreError::Conflict`] if it is held exclusively for long, and the other errors of [`lock`].
pub async fn lock_shared(
    backend: &Backend,
    audience: &AudienceName,
    creates: Creates,
) -> Result<Option<FileLock>, StoreError> {
    let path = audience_path(audience).join(LOCK);
    retry(
        backend,
        audience,
        path,
        creates,
        LockRetry::SHARED,
        try_lock_shared,
    )
    .await
}

/// Takes the lock for replacing `CURRENT`; `None` in an object store. Separate from [`lock`], which
/// a publish holds for hours while deltas are appended.
///
/// # Errors
///
/// [`StoreError::Conflict`] if another writer holds it for long.
pub async fn lock_current(
    backend: &Backend,
    audience: &AudienceName,
) -> Result<Option<FileLock>, StoreError> {
    let take = |folder: &FilePath| take_and_sweep(folder, CURRENT_LOCK, &["", "deltas"]);
    let path = audience_path(audience).join(CURRENT_LOCK);
    retry(
        backend,
        audience,
        path,
        Creates::Nothing,
        LockRetry::CURRENT,
        take,
    )
    .await
}

/// Takes the lock for replacing a window's `CURRENT`; `None` in an object store. Only a claim
/// creates the window's folder, and removes half-written checkpoints: they may be those of a later
/// owner.
///
/// # Errors
///
/// [`StoreError::Conflict`] if another owner holds it for long.
pub async fn lock_window(
    backend: &Backend,
    window: &AudienceName,
    is_claim: bool,
) -> Result<Option<FileLock>, StoreError> {
    let take: fn(&FilePath) -> io::Result<Try> = if is_claim {
        |folder| take_and_sweep(folder, CURRENT_LOCK, &["", "checkpoints"])
    } else {
        |folder| take_and_sweep(folder, CURRENT_LOCK, &[""])
    };
    let creates = if is_claim {
        Creates::Folder
    } else {
        Creates::Nothing
    };
    let path = window_path(window).join(CURRENT_LOCK);
    retry(backend, window, path, creates, LockRetry::CURRENT, take).await
}

/// Tries to `take` the lock at `path`, in its folder, until it is taken, held, or busy for too
/// long.
async fn retry(
    backend: &Backend,
    audience: &AudienceName,
    path: Path,
    creates: Creates,
    retry: LockRetry,
    take: fn(&FilePath) -> io::Result<Try>,
) -> Result<Option<FileLock>, StoreError> {
    let Backend::Directory(Directory { root, .. }) = backend else {
        return Ok(None);
    };
    let path = root.join(path.as_ref());
    let folder = path.parent().unwrap_or(root);
    prepare(root, folder, creates).await?;
    let begun = Instant::now();
    loop {
        let folder = folder.to_owned();
        match blocking(move || take(&folder)).await {
            Ok(Try::Taken(lock)) => return Ok(Some(lock)),
            Ok(Try::Busy) if begun.elapsed() < retry.timeout => {
                tokio::time::sleep(retry.interval).await
            }
            Ok(Try::Busy | Try::Held) => {
                let reason = format!("{}: {} is locked", retry.reason, path.display());
                return Err(StoreError::conflict(audience, reason, true));
            }
            Err(error) => {
                return Err(cannot_lock(&path, error));
            }
        }
    }
}

fn cannot_lock(path: &FilePath, error: io::Error) -> StoreError {
    StoreError::Backend {
        action: "lock",
        path: path.display().to_string(),
        source: error.into(),
    }
}

/// Creates what a lock may create, and refuses a folder that is missing otherwise.
async fn prepare(root: &FilePath, folder: &FilePath, creates: Creates) -> Result<(), StoreError> {
    let (root, folder) = (root.to_owned(), folder.to_owned());
    blocking(move || {
        if creates != Creates::Store && !root.is_dir() {
            return Err(StoreError::NoDirectory { root });
        }
        if creates != Creates::Nothing {
            return make_folder(&folder).map_err(|error| cannot_lock(&folder, error));
        }
        if !folder.is_dir() {
            let path = folder.join("CURRENT").display().to_string();
            return Err(StoreError::NotFound { path });
        }
        Ok(())
    })
    .await
}

/// Takes the audience's lock, and removes the half-written files of a killed writer.
fn lock_and_sweep(folder: &FilePath) -> io::Result<Try> {
    match take_and_sweep(folder, LOCK, &["manifests", "chunks"])? {
        // If it can be shared, its holders share it too.
        Try::Busy => match try_lock_shared(folder)? {
            Try::Taken(_) => Ok(Try::Busy),
            Try::Busy | Try::Held => Ok(Try::Held),
        },
        tried => Ok(tried),
    }
}

fn make_folder(folder: &FilePath) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    // object_store syncs what it creates below this folder, but not the folder itself.
    for parent in folder
        .ancestors()
        .skip(1)
        .take(2)
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        sync_dir(parent)?;
    }
    Ok(())
}

/// Shares the audience's lock. Busy if a writer holds it exclusively.
fn try_lock_shared(folder: &FilePath) -> io::Result<Try> {
    // Opened for reading too: some network file systems require it for shared locks.
    let lock = OpenOptions::new()
        .create(true)
        .read(true)
        .write(true)
        .truncate(false)
        .open(folder.join(LOCK))?;
    match FileLock::shared(lock) {
        Ok(lock) => Ok(Try::Taken(lock)),
        Err(TryLockError::WouldBlock) => Ok(Try::Busy),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Takes a lock, and removes the half-written files of a killed writer in these folders.
fn take_and_sweep(folder: &FilePath, name: &str, parts: &[&str]) -> io::Result<Try> {
    let lock = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(false)
        .open(folder.join(name))?;
    let lock = match FileLock::exclusive(lock) {
        Ok(lock) => lock,
        Err(TryLockError::WouldBlock) => return Ok(Try::Busy),
        Err(TryLockError::Error(error)) => return Err(error),
    };
    for part in parts {
        let entries = match std::fs::read_dir(folder.join(part)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            if entry.file_name().to_str().is_some_and(is_staged_name) {
                std::fs::remove_file(entry.path())?;
            }
        }
    }
    Ok(Try::Taken(lock))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_staged_writes_are_swept() {
        let digest = "0123456789abcdef".repeat(4);
        let ours = [
            "CURRENT#1",
            "12.json#0",
            "12.json.minisig#0",
            "0123456789abcdef-2-3#4",
            &format!("{digest}.chunk#5"),
            &format!("6-{digest}.delta#7"),
            &format!("6-{digest}.delta.minisig#7"),
        ];
        for name in ours {
            assert!(is_staged_name(name), "{name}");
        }
        let others = [
            "CURRENT",
            "#CURRENT#",
            "notes#old",
            "#1",
            "notes.txt#3",
            "mine#12",
            "CURRENT#+1",
            "012.json#1",
            "my-2-3#4",
        ];
        for name in others {
            assert!(!is_staged_name(name), "{name}");
        }
    }

    #[test]
    fn exclusive_lock_is_held_and_shared_lock_is_busy() {
        let folder = tempfile::tempdir().unwrap();
        let tried = || lock_and_sweep(folder.path()).unwrap();
        let Try::Taken(alone) = tried() else {
            panic!("nobody holds it")
        };
        assert!(matches!(tried(), Try::Held));
        drop(alone);
        let Try::Taken(shared) = try_lock_shared(folder.path()).unwrap() else {
            panic!("nobody holds it")
        };
        assert!(matches!(tried(), Try::Busy));
        drop(shared);
        assert!(matches!(tried(), Try::Taken(_)));
    }
}
