//! Directory of an owner: its groups that the store does not have yet.
//!
//! ```text
//! LOCK          locked by the process
//! OWNERS        owners of its logs, and those under which it may have created the newest segment
//! log-{n:020}   the bytes of segment n, until the store has it
//! ```
//!
//! `OWNERS` has the next owner before its segment is sent: the store's answer may be lost.

use std::ffi::OsStr;
use std::fs::{DirBuilder, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rtad_core::files::{AtomicFile, FileLock, private};

use crate::disk::{Disk, DiskFile, LocalDisk};
use crate::error::OpenError;

/// Free space without which no window starts: its log would fail soon.
const SPARE_BYTES: u64 = 16 << 20;
const OWNERS: &str = "OWNERS";

/// A window's directory that no other process can open.
pub struct StateDir {
    dir: PathBuf,
    pub(crate) disk: Arc<dyn Disk>,
    /// Held while the window is open: a second process must not write its files.
    _lock: FileLock,
}

impl StateDir {
    /// Creates the directory if it is missing, locks it, and removes files that were not finished.
    ///
    /// # Errors
    ///
    /// The directory cannot be written, is in use by another process, or its disk is full.
    pub fn open(dir: &Path) -> Result<Self, OpenError> {
        Self::open_on(dir, Arc::new(LocalDisk))
    }

    pub(crate) fn open_on(dir: &Path, disk: Arc<dyn Disk>) -> Result<Self, OpenError> {
        let io = |source| OpenError::Io {
            path: dir.to_owned(),
            source,
        };
        let created = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        created.map_err(io)?;
        let lock = lock_dir(dir)?;
        remove_temporary(dir).map_err(io)?;
        check_space(dir).map_err(io)?;
        Ok(Self {
            dir: dir.to_owned(),
            disk,
            _lock: lock,
        })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn log_path(&self, number: u64) -> PathBuf {
        self.dir.join(format!("log-{number:020}"))
    }

    /// Numbers of the local logs, ascending.
    pub(crate) fn logs(&self) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for entry in std::fs::read_dir(&self.dir)? {
            let name = entry?.file_name();
            numbers.extend(name.to_str().and_then(log_number));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Owners of the logs, and of segments that this directory may have created, oldest first.
    pub(crate) fn owners(&self) -> io::Result<Vec<u64>> {
        let text = match std::fs::read_to_string(self.dir.join(OWNERS)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut owners = Vec::new();
        for line in text.lines() {
            let owner = u64::from_str_radix(line, 16).map_err(|_| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    "OWNERS: a line that is no owner",
                )
            })?;
            owners.push(owner);
        }
        Ok(owners)
    }

    /// Replaces the owners, durably.
    pub(crate) fn set_owners(&self, owners: &[u64]) -> io::Result<()> {
        let mut text = String::new();
        for owner in owners {
            text.push_str(&format!("{owner:016x}\n"));
        }
        self.create(&self.dir.join(OWNERS), text.as_bytes())?;
        Ok(())
    }

    /// Creates or replaces a file, durably; returns it open.
    pub(crate) fn create(&self, path: &Path, bytes: &[u8]) -> io::Result<DiskFile> {
        let aside = path.with_extension("tmp");
        let (aside, file) = AtomicFile::create(aside, &private())?;
        let mut file = DiskFile::new(file, Arc::clone(&self.disk));
        file.write(bytes)?;
        file.sync()?;
        aside.publish(path)?;
        self.disk.sync_dir(&self.dir)?;
        Ok(file)
    }
}

fn check_space(dir: &Path) -> io::Result<()> {
    let disk = rustix::fs::statvfs(dir)?;
    check_free(disk.f_bavail.saturating_mul(disk.f_frsize))
}

fn check_free(bytes: u64) -> io::Result<()> {
    if bytes < SPARE_BYTES {
        let message = format!(
            "the disk is full: expected {} MiB free, found {} MiB",
            SPARE_BYTES >> 20,
            bytes >> 20
        );
        return Err(io::Error::new(io::ErrorKind::StorageFull, message));
    }
    Ok(())
}

fn lock_dir(dir: &Path) -> Result<FileLock, OpenError> {
    let path = dir.join("LOCK");
    let file = private().truncate(false).open(&path);
    let file = file.map_err(|source| OpenError::Io {
        path: path.clone(),
        source,
    })?;
    match FileLock::exclusive(file) {
        Ok(lock) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(OpenError::Locked {
            dir: dir.to_owned(),
        }),
        Err(TryLockError::Error(source)) => Err(OpenError::Io { path, source }),
    }
}

/// Removes what a killed process did not finish: the log may need the space.
fn remove_temporary(dir: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.file_name().is_some_and(is_temporary) {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Whether the name is that of a file which gets another name once it is whole.
fn is_temporary(name: &OsStr) -> bool {
    let stem = name.to_str().and_then(|name| name.strip_suffix(".tmp"));
    stem.is_some_and(|stem| stem == OWNERS || log_number(stem).is_some())
}

/// The number of a local log; `None` for another name.
fn log_number(name: &str) -> Option<u64> {
    let number: u64 = name.strip_prefix("log-")?.parse().ok()?;
    (format!("log-{number:020}") == name).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_temporary_files_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let own = ["OWNERS.tmp", "log-00000000000000000012.tmp"];
        let others = ["log-notes.tmp", "log-12.tmp", "notes.tmp", "log-20260101"];
        for name in [&own[..], &others].concat() {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }

        let state = StateDir::open(folder.path()).unwrap();
        let is_there = |name: &&&str| folder.path().join(name).exists();
        assert_eq!(own.iter().filter(is_there).count(), 0);
        assert_eq!(others.iter().filter(is_there).count(), others.len());
        assert!(state.logs().unwrap().is_empty());
    }

    #[test]
    fn owners_survive_and_other_lines_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::open(folder.path()).unwrap();
        assert!(state.owners().unwrap().is_empty());
        state.set_owners(&[1, u64::MAX]).unwrap();
        assert_eq!(state.owners().unwrap(), [1, u64::MAX]);
        std::fs::write(folder.path().join(OWNERS), "1\nx\n").unwrap();
        state.owners().unwrap_err();
    }

    #[test]
    fn second_process_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let _state = StateDir::open(folder.path()).unwrap();
        let second = StateDir::open(folder.path());
        assert!(matches!(second, Err(OpenError::Locked { .. })));
    }

    #[test]
    fn a_full_disk_is_refused_with_the_space_that_must_be_free() {
        assert!(check_free(SPARE_BYTES).is_ok());
        let error = check_free(SPARE_BYTES - 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(
            error.to_string(),
            "the disk is full: expected 16 MiB free, found 15 MiB"
        );
    }
}
