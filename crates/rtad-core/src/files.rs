//! Files that appear whole or not at all: written under another name, then renamed. Files that are
//! opened without blocking.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time between two readings of a changed file, which must be equal: a file that is saved in place
/// is empty, then cut, before it is whole.
pub const SETTLING: Duration = Duration::from_millis(500);

/// The temporary name of a file. Dropped without [`publish`](Self::publish), the file is removed:
/// it may be large, and the next attempt may find no space beside it.
#[derive(Debug)]
pub struct AtomicFile {
    aside: PathBuf,
    is_published: bool,
}

impl AtomicFile {
    /// Creates the file `aside`, in the folder of its later name.
    ///
    /// # Errors
    ///
    /// The file cannot be created.
    pub fn create(aside: PathBuf, options: &OpenOptions) -> io::Result<(Self, File)> {
        let file = options.open(&aside)?;
        Ok((
            Self {
                aside,
                is_published: false,
            },
            file,
        ))
    }

    /// Gives the file its name, and replaces the one before. A file that must survive a power loss
    /// is synced before, and its folder after (see [`sync_dir`]).
    ///
    /// # Errors
    ///
    /// The file cannot be renamed. It is removed.
    pub fn publish(mut self, path: &Path) -> io::Result<()> {
        std::fs::rename(&self.aside, path)?;
        self.is_published = true;
        Ok(())
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if !self.is_published {
            let _ = std::fs::remove_file(&self.aside);
        }
    }
}

/// A lock of an open file, for as long as this value lives. The kernel releases that of a killed
/// process.
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// Takes the lock alone.
    ///
    /// # Errors
    ///
    /// Somebody has it, or the file system cannot lock.
    pub fn exclusive(file: File) -> Result<Self, TryLockError> {
        file.try_lock().map(|()| Self(file))
    }

    /// Takes a share of the lock.
    ///
    /// # Errors
    ///
    /// Somebody has it alone, or the file system cannot lock.
    pub fn shared(file: File) -> Result<Self, TryLockError> {
        file.try_lock_shared().map(|()| Self(file))
    }
}

impl Drop for FileLock {
    /// Closing the file is not enough: a process that is being started has a copy of the
    /// descriptor until it runs its program, and the copy keeps the lock.
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// Replaces `name` in `folder`, durably. The file is private.
///
/// # Errors
///
/// The file cannot be written; the one before stays. If only the last step fails, the sync of the
/// folder, the new file is there.
pub fn replace(folder: &Path, name: &str, aside: &str, bytes: &[u8]) -> io::Result<()> {
    let (aside, mut file) = AtomicFile::create(folder.join(aside), &private())?;
    file.write_all(bytes)?;
    file.sync_all()?;
    aside.publish(&folder.join(name))?;
    sync_dir(folder)
}

/// Opens a regular file, or a link to one, for reading: opening a named pipe blocks until it has a
/// writer.
///
/// # Errors
///
/// The file cannot be opened, or it is a directory, a pipe, a socket or a device.
pub fn open_regular(path: &Path) -> io::Result<File> {
    if !std::fs::metadata(path)?.is_file() {
        let found = "found a directory, a pipe, a socket or a device, expected a regular file";
        return Err(io::Error::new(ErrorKind::InvalidInput, found));
    }
    File::open(path)
}

/// The contents of a regular file; see [`open_regular`].
///
/// # Errors
///
/// The file cannot be read, or it is a directory, a pipe, a socket or a device.
pub fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The contents of a regular file, read twice: see [`SETTLING`].
///
/// # Errors
///
/// The file cannot be read, or it is being written.
pub fn read_settled(path: &Path) -> io::Result<Vec<u8>> {
    let first = read_regular(path)?;
    std::thread::sleep(SETTLING);
    let second = read_regular(path)?;
    if first != second {
        let found = "found a file that is being written, expected a whole one";
        return Err(io::Error::new(ErrorKind::InvalidData, found));
    }
    Ok(second)
}

/// Whether a file may still be being written: it was changed within twice [`SETTLING`]. Two readings
/// of an older one would be equal too. Only a regular file may be read twice.
pub fn may_be_unfinished(path: &Path) -> bool {
    let Ok(found) = std::fs::metadata(path) else {
        return false;
    };
    // A time in the future is one of another clock.
    let changed = found.modified();
    found.is_file()
        && changed.is_ok_and(|changed| changed.elapsed().map_or(true, |age| age < 2 * SETTLING))
}

/// Makes the names in a folder durable.
///
/// # Errors
///
/// The folder cannot be opened, or its file system cannot sync folders.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    #[cfg(feature = "simulated")]
    if simulated::is_disk() {
        return Ok(());
    }
    File::open(dir)?.sync_all()
}

/// Makes the bytes of a file durable.
///
/// # Errors
///
/// The disk fails.
pub fn sync_data(file: &File) -> io::Result<()> {
    #[cfg(feature = "simulated")]
    if simulated::is_disk() {
        return simulated::note_sync(file);
    }
    file.sync_data()
}

/// Options of an empty file that only its owner can read: it may hold keys.
#[must_use]
pub fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options
}

/// Disks of a simulation, which lose what was not synced when their machine ends.
#[cfg(feature = "simulated")]
pub mod simulated {
    use std::cell::RefCell;
    use std::collections::HashMap;
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::os::unix::fs::MetadataExt as _;
    use std::path::Path;

    thread_local! {
        /// Bytes of each file at its last sync, by its inode.
        static SYNCED: RefCell<Option<HashMap<u64, u64>>> = const { RefCell::new(None) };
    }

    pub(super) fn is_disk() -> bool {
        SYNCED.with_borrow(Option::is_some)
    }

    pub(super) fn note_sync(file: &File) -> io::Result<()> {
        let found = file.metadata()?;
        SYNCED.with_borrow_mut(|synced| {
            let synced = synced.get_or_insert_default();
            synced.insert(found.ino(), found.len());
        });
        Ok(())
    }

    /// The disks of this thread are simulated from now on.
    pub fn begin() {
        SYNCED.replace(Some(HashMap::new()));
    }

    /// Cuts the files of a folder to what was synced, as the end of a machine does. Files that were
    /// never synced stay.
    ///
    /// # Errors
    ///
    /// The folder cannot be read, or a file cannot be cut.
    pub fn lose_unsynced(folder: &Path) -> io::Result<()> {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let inode = entry.metadata()?.ino();
            let synced = SYNCED.with_borrow(|synced| synced.as_ref()?.get(&inode).copied());
            if let Some(bytes) = synced {
                let file = OpenOptions::new().write(true).open(entry.path())?;
                file.set_len(bytes.min(file.metadata()?.len()))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn file_that_is_being_written_is_not_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "half").unwrap();
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| read_settled(file.path()));
            std::thread::sleep(SETTLING / 2);
            std::fs::write(file.path(), "half and half").unwrap();
            assert!(reading.join().unwrap().is_err());
        });
        assert_eq!(read_settled(file.path()).unwrap(), b"half and half");
    }

    #[test]
    fn file_that_was_changed_lately_may_be_unfinished() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let second = Duration::from_secs(1);
        for (changed, expected) in [
            (SystemTime::now() - 2 * second, false),
            (SystemTime::now(), true),
            (SystemTime::now() + 60 * second, true),
        ] {
            file.as_file().set_modified(changed).unwrap();
            assert_eq!(may_be_unfinished(file.path()), expected);
        }
        assert!(!may_be_unfinished(Path::new("/none")));
    }

    #[test]
    fn lock_ends_though_the_descriptor_was_copied() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::open(file.path()).unwrap();
        for lock in [FileLock::exclusive, FileLock::shared] {
            let locked = open();
            // As in a process between fork and exec.
            let _copy = locked.try_clone().unwrap();
            let held = lock(locked).unwrap();
            assert!(matches!(
                FileLock::exclusive(open()),
                Err(TryLockError::WouldBlock)
            ));
            drop(held);
            FileLock::exclusive(open()).unwrap();
        }
    }
}
