//! The locks of an audience in a directory, for whoever writes there: a loader, a rollback, a gc, an append.
//!
//! `LOCK` is for chunks and manifests, `CURRENT.LOCK` for `CURRENT` and deltas, taken last and let go first. `LOCK` is held from the first byte written to the last. The kernel drops it with its holder, however that ends. Object stores
//! have none: there conditional puts decide (`store/publish.rs`), and a mark keeps gc and loaders apart (`store/gc.rs`).

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::Path as FilePath;
use std::time::{Duration, Instant};

use super::super::{Backend, Store, StoreError, blocking};
use rtad_core::snapshot::AudienceName;

impl Store {
    /// Takes the audience's lock, and makes its folder for it; `None` in an object store. Waits a moment for chunks that are being
    /// written ahead, and for nobody who holds it alone: that may be hours.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`] if it is held.
    pub(crate) async fn lock(&self, audience: &AudienceName) -> Result<Option<File>, StoreError> {
        let reason = "another loader is publishing this audience";
        self.wait_for_lock(audience, LockRetry::LOCK, reason, lock_and_sweep).await
    }
}

impl Store {
    /// Takes the audience's lock with others that write chunks ahead of their publication: it keeps out who would sweep their files
    /// while they are being written. Held for one chunk; waits a while for a loader or a gc to end. `None` in an object store.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`] if it is held alone for long.
    pub(crate) async fn lock_shared(&self, audience: &AudienceName) -> Result<Option<File>, StoreError> {
        let reason = "another loader is publishing this audience, or a gc is at work";
        self.wait_for_lock(audience, LockRetry::SHARED_LOCK, reason, try_lock_shared).await
    }
}

/// Interval and limit of the attempts to take a lock.
struct LockRetry {
    poll: Duration,
    timeout: Duration,
}

impl LockRetry {
    /// A chunk is written in less, unless its disk is very slow.
    const LOCK: Self = Self { poll: Duration::from_millis(20), timeout: Duration::from_secs(2) };
    const SHARED_LOCK: Self = Self { poll: Duration::from_millis(50), timeout: Duration::from_secs(30) };
    /// To replace `CURRENT` takes milliseconds.
    const CURRENT_LOCK: Self = Self { poll: Duration::from_millis(5), timeout: Duration::from_secs(30) };
}

/// What came of one try to take a lock.
enum Try {
    Taken(File),
    /// Held by who lets it go soon.
    Busy,
    /// Held by who may hold it for hours.
    Held,
}

impl Store {
    /// Takes the lock under which `CURRENT` is replaced, for as long as that takes: a publish holds [`Store::lock`] for hours, and
    /// deltas are appended meanwhile. `None` in an object store.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`] if another writer holds it for long.
    pub(crate) async fn lock_current(&self, audience: &AudienceName) -> Result<Option<File>, StoreError> {
        let take = |folder: &FilePath| take_and_sweep(folder, "CURRENT.LOCK", &["", "deltas"]);
        self.wait_for_lock(audience, LockRetry::CURRENT_LOCK, "another writer holds CURRENT.LOCK", take).await
    }

    /// Tries to `take` a lock of the audience's folder, again and again while it is busy; [`StoreError::Conflict`] for this reason
    /// if that is for long, or it is held.
    async fn wait_for_lock(
        &self,
        audience: &AudienceName,
        retry: LockRetry,
        reason: &str,
        take: fn(&FilePath) -> io::Result<Try>,
    ) -> Result<Option<File>, StoreError> {
        let Backend::Directory(root) = &self.backend else { return Ok(None) };
        let begun = Instant::now();
        loop {
            let folder = root.join(audience.as_str());
            match blocking(move || take(&folder)).await {
                Ok(Try::Taken(lock)) => return Ok(Some(lock)),
                Ok(Try::Busy) if begun.elapsed() < retry.timeout => tokio::time::sleep(retry.poll).await,
                Ok(Try::Busy | Try::Held) => {
                    return Err(StoreError::Conflict {
                        audience: audience.clone(),
                        reason: reason.to_owned(),
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
}

/// Makes the audience's folder, takes its lock, and removes what a killed writer left half-written.
fn lock_and_sweep(folder: &FilePath) -> io::Result<Try> {
    make_folder(folder)?;
    match take_and_sweep(folder, "LOCK", &["manifests", "chunks"])? {
        // Whom it can be shared with does not hold it alone.
        Try::Busy => match try_lock_shared(folder)? {
            Try::Taken(_) => Ok(Try::Busy),
            Try::Busy | Try::Held => Ok(Try::Held),
        },
        tried => Ok(tried),
    }
}

fn make_folder(folder: &FilePath) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    // object_store syncs what it makes below; that the folder is there at all is ours to make sure of.
    for parent in folder.ancestors().skip(1).take(2).filter(|parent| !parent.as_os_str().is_empty()) {
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

/// Makes the audience's folder and shares its lock. Busy: it is held alone.
fn try_lock_shared(folder: &FilePath) -> io::Result<Try> {
    make_folder(folder)?;
    // Opened for reading too: some network file systems share a lock of such a file only.
    let lock =
        OpenOptions::new().create(true).read(true).write(true).truncate(false).open(folder.join("LOCK"))?;
    match lock.try_lock_shared() {
        Ok(()) => Ok(Try::Taken(lock)),
        Err(TryLockError::WouldBlock) => Ok(Try::Busy),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Takes a lock, and removes what a killed writer that held it left half-written in these folders.
fn take_and_sweep(folder: &FilePath, name: &str, parts: &[&str]) -> io::Result<Try> {
    let lock = OpenOptions::new().create(true).write(true).truncate(false).open(folder.join(name))?;
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
            // object_store stages a write under the final name, a '#' and a number; no name of ours has a '#'.
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
    fn whoever_holds_it_alone_is_told_from_those_who_share_it() {
        let folder = tempfile::tempdir().unwrap();
        let tried = || lock_and_sweep(folder.path()).unwrap();
        let Try::Taken(alone) = tried() else { panic!("nobody holds it") };
        assert!(matches!(tried(), Try::Held));
        drop(alone);
        let Try::Taken(shared) = try_lock_shared(folder.path()).unwrap() else { panic!("nobody holds it") };
        assert!(matches!(tried(), Try::Busy));
        drop(shared);
        assert!(matches!(tried(), Try::Taken(_)));
    }
}
