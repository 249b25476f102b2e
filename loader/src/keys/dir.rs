//! Spill directory: files for keys that do not fit memory.
//!
//! The files have no name by default and end with the process, `kill -9` included. A directory from
//! `--spill-dir` gives them names, so that a later build can resume. Dropping the directory removes
//! them unless [`keep`](SpillDir::keep) was called. The directory itself is the lock.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};
use rtad_core::files::{self, FileLock};

use super::error::SpillError;
use super::partition::PARTITIONS;

/// Temporary name of a note until it is complete.
const HALF_WRITTEN: &str = "rtad-half-written";

/// Enough open files for any useful number of threads.
const FILES: u64 = 16_384;

/// A directory for spill files.
#[derive(Debug)]
pub struct SpillDir {
    path: PathBuf,
    named: Option<Named>,
}

#[derive(Debug)]
struct Named {
    /// The directory, locked.
    _lock: FileLock,
    /// Created by this process.
    is_ours: bool,
    is_kept: AtomicBool,
    /// Held while files are created or removed.
    changing: Mutex<()>,
    /// Names of files besides those of keys.
    notes: &'static [&'static str],
}

impl SpillDir {
    /// Files without a name, in the system's directory for temporary files.
    pub fn unnamed() -> Self {
        raise_file_limit();
        Self {
            path: std::env::temp_dir(),
            named: None,
        }
    }

    /// Locks the directory for this process and creates it if missing. `notes` names its other
    /// files.
    pub fn named(path: &Path, notes: &'static [&'static str]) -> Result<Self, SpillError> {
        raise_file_limit();
        let failed = |source: io::Error| {
            let dir = path.display().to_string();
            match source.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                    SpillError::NoDirectory { dir, source }
                }
                _ => SpillError::Create { dir, source },
            }
        };
        let created = DirBuilder::new().mode(0o700).create(path);
        let is_ours = created.is_ok();
        match created {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(error));
            }
            _ if !path.is_dir() => return Err(failed(io::ErrorKind::NotADirectory.into())),
            _ => {}
        }
        let lock = match FileLock::exclusive(File::open(path).map_err(failed)?) {
            Ok(lock) => lock,
            Err(TryLockError::WouldBlock) => {
                return Err(SpillError::InUse {
                    dir: path.display().to_string(),
                });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        };
        let named = Named {
            _lock: lock,
            is_ours,
            is_kept: AtomicBool::new(false),
            changing: Mutex::new(()),
            notes,
        };
        Ok(Self {
            path: path.to_owned(),
            named: Some(named),
        })
    }

    /// Whether its files have names and can be found again.
    pub const fn is_named(&self) -> bool {
        self.named.is_some()
    }

    /// Sets whether the files stay for a later build.
    pub fn keep(&self, is_kept: bool) {
        if let Some(named) = &self.named {
            named.is_kept.store(is_kept, Ordering::Relaxed);
        }
    }

    fn changing(&self) -> Option<MutexGuard<'_, ()>> {
        self.named.as_ref().map(|named| named.changing.lock())
    }

    /// Blocks creating and removing files from now on, before the process exits.
    pub fn freeze(&self) {
        std::mem::forget(self.changing());
    }

    /// Removes this build's files and, if this process created it, the directory. Ignores errors.
    pub fn clear(&self) {
        self.clear_files();
        if self.named.as_ref().is_some_and(|named| named.is_ours) {
            let _ = std::fs::remove_dir(&self.path);
        }
    }

    /// Removes this build's files. Ignores errors.
    pub fn clear_files(&self) {
        let Some(named) = &self.named else { return };
        // Only by name: others may have files there. Notes first, as they refer to the keys.
        for name in named.notes.iter().chain([&HALF_WRITTEN]) {
            let _ = std::fs::remove_file(self.path.join(name));
        }
        for partition in 0..PARTITIONS {
            let _ = std::fs::remove_file(self.keys_path(partition));
        }
    }

    /// Creates an empty file for a partition's keys.
    pub fn create(&self, partition: usize) -> Result<File, SpillError> {
        if !self.is_named() {
            return self.create_unnamed();
        }
        let _changing = self.changing();
        let created = files::private().read(true).open(self.keys_path(partition));
        created.map_err(|source| SpillError::Create {
            dir: self.shown(),
            source,
        })
    }

    /// Opens a partition's file of an earlier build, truncated to its valid `bytes`.
    pub fn reopen(&self, partition: usize, bytes: u64) -> Result<File, SpillError> {
        let open = || {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .open(self.keys_path(partition))?;
            // Never extend the file: a later build would read the zeros as keys.
            if file.metadata()?.len() < bytes {
                return Ok(None);
            }
            file.set_len(bytes)?;
            file.seek(SeekFrom::End(0))?;
            Ok(Some(file))
        };
        let file = open().map_err(|source| SpillError::Read {
            dir: self.shown(),
            source,
        })?;
        file.ok_or_else(|| SpillError::Changed { dir: self.shown() })
    }

    fn keys_path(&self, partition: usize) -> PathBuf {
        self.path.join(format!("rtad-{partition:02x}.keys"))
    }

    /// Creates a file that ends when it is closed.
    pub fn create_unnamed(&self) -> Result<File, SpillError> {
        tempfile::tempfile_in(&self.path).map_err(|source| SpillError::Create {
            dir: self.shown(),
            source,
        })
    }

    /// The bytes of a note, if it exists.
    pub fn read_note(&self, name: &str) -> Result<Option<Vec<u8>>, SpillError> {
        if !self.is_named() {
            return Ok(None);
        }
        match std::fs::read(self.path.join(name)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(SpillError::Read {
                dir: self.shown(),
                source,
            }),
        }
    }

    /// Replaces a note atomically and durably.
    pub fn write_note(&self, name: &str, bytes: &[u8]) -> Result<(), SpillError> {
        let _changing = self.changing();
        files::replace(&self.path, name, HALF_WRITTEN, bytes).map_err(|error| self.failed(error, 0))
    }

    /// Removes a note, if it exists.
    pub fn remove_note(&self, name: &str) -> Result<(), SpillError> {
        match std::fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.failed(error, 0)),
            _ => Ok(()),
        }
    }

    /// Opens a note for appending.
    pub fn open_note(&self, name: &str) -> Result<File, SpillError> {
        let opened = OpenOptions::new().append(true).open(self.path.join(name));
        opened.map_err(|source| SpillError::Create {
            dir: self.shown(),
            source,
        })
    }

    /// Free bytes, if the system reports them.
    pub fn free_bytes(&self) -> Option<u64> {
        let stat = rustix::fs::statvfs(&self.path).ok()?;
        Some(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// The error for a write that failed after `written` bytes.
    pub fn failed(&self, source: io::Error, written: u64) -> SpillError {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull, WriteZero};
        let dir = self.shown();
        match source.kind() {
            StorageFull | QuotaExceeded | FileTooLarge | WriteZero => SpillError::Full {
                dir,
                written,
                source,
            },
            _ => SpillError::Write { dir, source },
        }
    }

    pub fn shown(&self) -> String {
        self.path.display().to_string()
    }
}

/// One file per partition is open, and at times one per unit of a large partition in each thread.
/// Failure is ignored: the limit may still be high enough.
fn raise_file_limit() {
    let _ = rlimit::increase_nofile_limit(FILES);
}

impl Drop for SpillDir {
    fn drop(&mut self) {
        if self
            .named
            .as_ref()
            .is_some_and(|named| !named.is_kept.load(Ordering::Relaxed))
        {
            let _changing = self.changing();
            self.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        std::fs::read_dir(dir)
            .into_iter()
            .flatten()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn files_are_removed_after_a_panic_and_stay_if_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spill");
        let open = || SpillDir::named(&path, &["note"]).unwrap();
        let panicked = std::panic::catch_unwind(|| {
            let dir = open();
            dir.create(7).unwrap().write_all(&[1; 32]).unwrap();
            dir.write_note("note", b"1").unwrap();
            assert!(matches!(
                SpillDir::named(&path, &[]),
                Err(SpillError::InUse { .. })
            ));
            assert_eq!(names(&path).len(), 2);
            panic!("on purpose");
        });
        assert!(panicked.is_err() && !path.exists());

        let dir = open();
        dir.create(7).unwrap().write_all(&[1; 40]).unwrap();
        dir.write_note("note", b"1").unwrap();
        dir.keep(true);
        drop(dir);
        let dir = open();
        assert_eq!(dir.read_note("note").unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(
            dir.reopen(7, 32).unwrap().metadata().unwrap().len(),
            32,
            "truncated to its valid bytes"
        );
        assert!(matches!(dir.reopen(7, 64), Err(SpillError::Changed { .. })));
        drop(dir);
        assert!(
            path.exists() && names(&path).is_empty(),
            "the directory existed before"
        );
    }
}
