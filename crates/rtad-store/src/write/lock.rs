//! Locks of an audience in a directory, for all writers: publish, rollback, append, gc, delete.
//!
//! `LOCK` is for chunks and manifests, and held from the first byte written to the last. It can be
//! shared by writers of chunks ahead of a publication. `CURRENT.LOCK` is for `CURRENT` and deltas;
//! it is taken last and released first. The kernel releases a lock with its holder, however that
//! ends. Object stores have no locks: there conditional puts decide (`write/put.rs`), and a mark
//! keeps gc and publications apart (`write/gc.rs`).

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::Path as FilePath;
use std::time::{Duration, Instant};

use crate::backend::Backend;
use crate::blocking::blocking;
use crate::error::StoreError;
use rtad_core::snapshot::AudienceName;

/// The retry interval and time-out of a lock that is busy.
struct LockRetry {
    interval: Duration,
    timeout: Duration,
}

impl LockRetry {
    /// A chunk is written in less, unless its disk is very slow.
    const EXCLUSIVE: Self =
        Self { interval: Duration::from_millis(20), timeout: Duration::from_secs(2) };
    const SHARED: Self =
        Self { interval: Duration::from_millis(50), timeout: Duration::from_secs(30) };
    /// To replace `CURRENT` takes milliseconds.
    const CURRENT: Self =
        Self { interval: Duration::from_millis(5), timeout: Duration::from_secs(30) };
}

/// The outcome of one try to take a lock.
enum Try {
    Taken(File),
    /// The holder releases it soon.
    Busy,
    /// The holder may keep it for hours.
    Held,
}

/// Takes the audience's lock, and makes its folder for it; `None` in an object store. Waits a
/// moment for chunks that are being written ahead, and not at all for an exclusive holder.
///
/// # Errors
///
/// [`StoreError::Conflict`] if it is held.
pub(super) async fn lock(
    backend: &Backend,
    audience: &AudienceName,
) -> Result<Option<File>, StoreError> {
    let reason = "another loader is publishing this audience";
    retry(backend, audience, LockRetry::EXCLUSIVE, reason, lock_and_sweep).await
}

/// Shares the audience's lock with other writers of chunks ahead of their publication. It keeps out
/// writers that sweep half-written files. Held for one chunk; waits a while for an exclusive
/// holder. `None` in an object store.
///
/// # Errors
///
/// [`StoreError::Conflict`] if it is held alone for long.
pub(crate) async fn lock_shared(
    backend: &Backend,
    audience: &AudienceName,
) -> Result<Option<File>, StoreError> {
    let reason = "another loader is publishing this audience, or a gc is at work";
    retry(backend, audience, LockRetry::SHARED, reason, try_lock_shared).await
}

/// Takes the lock under which `CURRENT` is replaced, for that short time: a publish holds [`lock`]
/// for hours, and deltas are appended meanwhile. `None` in an object store.
///
/// # Errors
///
/// [`StoreError::Conflict`] if another writer holds it for long.
pub(super) async fn lock_current(
    backend: &Backend,
    audience: &AudienceName,
) -> Result<Option<File>, StoreError> {
    let take = |folder: &FilePath| take_and_sweep(folder, "CURRENT.LOCK", &["", "deltas"]);
    retry(backend, audience, LockRetry::CURRENT, "another writer holds CURRENT.LOCK", take).await
}

/// Tries to `take` a lock of the audience's folder until it is taken, held, or busy for too long.
async fn retry(
    backend: &Backend,
    audience: &AudienceName,
    retry: LockRetry,
    reason: &str,
    take: fn(&FilePath) -> io::Result<Try>,
) -> Result<Option<File>, StoreError> {
    let Backend::Directory(root) = backend else { return Ok(None) };
    let begun = Instant::now();
    loop {
        let folder = root.join(audience.as_str());
        match blocking(move || take(&folder)).await {
            Ok(Try::Taken(lock)) => return Ok(Some(lock)),
            Ok(Try::Busy) if begun.elapsed() < retry.timeout => {
                tokio::time::sleep(retry.interval).await
            }
            Ok(Try::Busy | Try::Held) => {
                let reason = reason.to_owned();
                return Err(StoreError::Conflict {
                    audience: audience.clone(),
                    reason,
                    passes: true,
                });
            }
            Err(error) => {
                let (path, source) = (audience.to_string(), error.into());
                return Err(StoreError::Backend { action: "lock", path, source });
            }
        }
    }
}

/// Makes the audience's folder, takes its lock, and removes the half-written files of a killed
/// writer.
fn lock_and_sweep(folder: &FilePath) -> io::Result<Try> {
    make_folder(folder)?;
    match take_and_sweep(folder, "LOCK", &["manifests", "chunks"])? {
        // A holder that lets it be shared does not hold it alone.
        Try::Busy => match try_lock_shared(folder)? {
            Try::Taken(_) => Ok(Try::Busy),
            Try::Busy | Try::Held => Ok(Try::Held),
        },
        tried => Ok(tried),
    }
}

fn make_folder(folder: &FilePath) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    // object_store syncs the files and folders that it makes below this one, but not this one.
    for parent in folder.ancestors().skip(1).take(2).filter(|parent| !parent.as_os_str().is_empty())
    {
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

/// Makes the audience's folder and shares its lock. Busy: one writer holds it alone.
fn try_lock_shared(folder: &FilePath) -> io::Result<Try> {
    make_folder(folder)?;
    // Opened for reading too: some network file systems share a lock of such a file only.
    let lock = OpenOptions::new()
        .create(true)
        .read(true)
        .write(true)
        .truncate(false)
        .open(folder.join("LOCK"))?;
    match lock.try_lock_shared() {
        Ok(()) => Ok(Try::Taken(lock)),
        Err(TryLockError::WouldBlock) => Ok(Try::Busy),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Takes a lock, and removes the half-written files in these folders of a killed writer that held
/// it.
fn take_and_sweep(folder: &FilePath, name: &str, parts: &[&str]) -> io::Result<Try> {
    let lock =
        OpenOptions::new().create(true).write(true).truncate(false).open(folder.join(name))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(Try::Busy),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    for part in parts {
        let entries = match std::fs::read_dir(folder.join(part)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            // object_store stages a write under the final name, a '#' and a number; no name of ours
            // has a '#'.
            if entry.file_name().as_encoded_bytes().contains(&b'#') {
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
    fn exclusive_holder_is_told_from_shared_holders() {
        let folder = tempfile::tempdir().unwrap();
        let tried = || lock_and_sweep(folder.path()).unwrap();
        let Try::Taken(alone) = tried() else { panic!("nobody holds it") };
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
