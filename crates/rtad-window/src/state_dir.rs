//! A window's directory, locked but not read yet: its owner may put a checkpoint into it first.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rtad_core::files::{self, FileLock, private, sync_dir};

use crate::checkpoint::checkpoint_path;
use crate::disk::{Disk, LocalDisk};
use crate::load::{self, Loaded, OpenError, Shape, number_of, numbered};

/// A window's directory that no other process can open.
pub struct StateDir {
    pub(crate) dir: PathBuf,
    pub(crate) disk: Arc<dyn Disk>,
    /// Held while the window is open: a second process must not write its files.
    _lock: FileLock,
}

/// Free space without which no window starts: its log would fail soon, and a start reads the table.
const SPARE_BYTES: u64 = 16 << 20;

impl StateDir {
    /// Creates the directory if it is missing, locks it, and removes files that were not finished.
    ///
    /// # Errors
    ///
    /// The directory cannot be written, is in use by another process, or its disk is full.
    pub fn lock(dir: &Path) -> Result<Self, OpenError> {
        Self::lock_on(dir, Arc::new(LocalDisk))
    }

    pub(crate) fn lock_on(dir: &Path, disk: Arc<dyn Disk>) -> Result<Self, OpenError> {
        let created = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        created.map_err(|source| OpenError::Io {
            path: dir.to_owned(),
            source,
        })?;
        let lock = lock_dir(dir)?;
        remove_temporary(dir).map_err(|source| OpenError::Io {
            path: dir.into(),
            source,
        })?;
        check_space(dir).map_err(|source| OpenError::Io {
            path: dir.into(),
            source,
        })?;
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

    /// The highest number of its checkpoints and log segments, which rises with each checkpoint;
    /// `None` without files.
    ///
    /// # Errors
    ///
    /// The directory cannot be read.
    pub fn last_number(&self) -> io::Result<Option<u64>> {
        let checkpoints = numbered(&self.dir, "checkpoint-")?;
        let segments = numbered(&self.dir, "log-")?;
        Ok(checkpoints.last().max(segments.last()).copied())
    }

    /// Reads the last checkpoint and the log after it; an empty directory is an empty window.
    /// Changes nothing but a torn end of the log.
    ///
    /// The window is at this tick, or at that of its last event if that is later. Cost: reading the
    /// files; a log of half the table at most.
    ///
    /// # Errors
    ///
    /// The files are unreadable, damaged, or of another spec.
    pub fn load(&self, shape: &Shape, tick: u64) -> Result<Loaded, OpenError> {
        load::load(&self.dir, shape, tick)
    }

    /// An empty file for a checkpoint from elsewhere; `install` makes it the window's.
    ///
    /// # Errors
    ///
    /// The file cannot be created.
    pub fn create_download(&self) -> io::Result<File> {
        private().open(self.download())
    }

    /// Loads the downloaded file, which is the checkpoint of this number.
    ///
    /// # Errors
    ///
    /// The errors of `load`. The download is then removed.
    pub fn load_download(
        &self,
        number: u64,
        shape: &Shape,
        tick: u64,
    ) -> Result<Loaded, OpenError> {
        let path = self.download();
        load::load_download(&path, number, shape, tick).inspect_err(|_| {
            // It has the size of the table; the next download would replace it.
            let _ = std::fs::remove_file(&path);
        })
    }

    /// Makes the downloaded file the checkpoint of this number, after `load_download`.
    ///
    /// # Errors
    ///
    /// The file cannot be renamed.
    pub fn install(&self, number: u64) -> io::Result<()> {
        std::fs::rename(self.download(), checkpoint_path(&self.dir, number))?;
        sync_dir(&self.dir)
    }

    fn download(&self) -> PathBuf {
        self.dir.join("download.tmp")
    }

    /// The claims under which these files may be the window's newest.
    ///
    /// # Errors
    ///
    /// The file `CLAIMS` cannot be read.
    pub fn claims(&self) -> io::Result<Vec<String>> {
        match std::fs::read_to_string(self.dir.join("CLAIMS")) {
            Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Replaces the claims, durably.
    ///
    /// # Errors
    ///
    /// The file `CLAIMS` cannot be written; the one before stays.
    pub fn set_claims(&self, claims: &[String]) -> io::Result<()> {
        files::replace(
            &self.dir,
            "CLAIMS",
            "CLAIMS.tmp",
            claims.join("\n").as_bytes(),
        )
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
    stem.is_some_and(|stem| {
        ["checkpoint", "download", "CLAIMS"].contains(&stem) || number_of(stem, "log-").is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_temporary_files_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let own = ["checkpoint.tmp", "CLAIMS.tmp", "log-0000000000000012.tmp"];
        let others = ["log-notes.tmp", "log-12.tmp", "notes.tmp", "log-20260101"];
        for name in [&own[..], &others].concat() {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }

        let state = StateDir::lock(folder.path()).unwrap();
        let is_there = |name: &&&str| folder.path().join(name).exists();
        assert_eq!(own.iter().filter(is_there).count(), 0);
        assert_eq!(others.iter().filter(is_there).count(), others.len());
        assert_eq!(state.last_number().unwrap(), None);
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
