//! Where keys are spilled to.
//!
//! By default into files without a name, which are gone with the process however it ends, `kill -9` included. In a directory that
//! was asked for they have names, so that a build can go on where another was interrupted; they are removed when the directory
//! is dropped, unless it was said to [`keep`](SpillDir::keep) them. The directory itself is the lock: one build at a time.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use super::{PARTITIONS, SpillError};

/// What is being written, before it replaces a note.
const HALF_WRITTEN: &str = "rtad-half-written";

/// Open files that are enough for any number of threads that is of use.
const FILES: u64 = 16_384;

/// A directory for spill files.
#[derive(Debug)]
pub(crate) struct SpillDir {
    path: PathBuf,
    named: Option<Named>,
}

#[derive(Debug)]
struct Named {
    /// The directory, locked.
    lock: File,
    /// It was not there before.
    is_ours: bool,
    is_kept: AtomicBool,
    /// Held while files come or go.
    changing: Mutex<()>,
    /// Files besides those of keys.
    notes: &'static [&'static str],
}

impl SpillDir {
    /// Files without a name, in the system's directory for temporary files.
    pub(crate) fn unnamed() -> Self {
        raise_file_limit();
        Self { path: std::env::temp_dir(), named: None }
    }

    /// Takes the directory for this process alone, and makes it if need be. Besides keys it will hold files called `notes`.
    pub(crate) fn named(path: &Path, notes: &'static [&'static str]) -> Result<Self, SpillError> {
        raise_file_limit();
        let failed = |source| SpillError::Create { dir: path.display().to_string(), source };
        let made = DirBuilder::new().mode(0o700).create(path);
        let is_ours = made.is_ok();
        match made {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(error));
            }
            _ => {}
        }
        let lock = File::open(path).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(SpillError::InUse { dir: path.display().to_string() });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let named = Named {
            lock,
            is_ours,
            is_kept: AtomicBool::new(false),
            changing: Mutex::new(()),
            notes,
        };
        Ok(Self { path: path.to_owned(), named: Some(named) })
    }

    /// Whether what is written there has a name, and can be found again.
    pub(crate) const fn is_named(&self) -> bool {
        self.named.is_some()
    }

    /// Whether everything is left there for a later build.
    pub(crate) fn keep(&self, is_kept: bool) {
        if let Some(named) = &self.named {
            named.is_kept.store(is_kept, Ordering::Relaxed);
        }
    }

    fn changing(&self) -> Option<MutexGuard<'_, ()>> {
        self.named
            .as_ref()
            .map(|named| named.changing.lock().expect("nothing panics under this lock"))
    }

    /// Lets no file come or go any more: whoever wants it waits. For a process that is about to end.
    pub(crate) fn freeze(&self) {
        std::mem::forget(self.changing());
    }

    /// Removes what a build put there. What cannot be removed stays: there is nobody to tell who could do better.
    pub(crate) fn clear(&self) {
        self.clear_files();
        if self.named.as_ref().is_some_and(|named| named.is_ours) {
            let _ = std::fs::remove_dir(&self.path);
        }
    }

    /// The same, but for the directory itself.
    pub(crate) fn clear_files(&self) {
        let Some(named) = &self.named else { return };
        // By name, as others may have files there too; and first what says that the keys are there.
        for name in named.notes.iter().chain([&HALF_WRITTEN]) {
            let _ = std::fs::remove_file(self.path.join(name));
        }
        for partition in 0..PARTITIONS {
            let _ = std::fs::remove_file(self.keys_path(partition));
        }
    }

    /// An empty file for a partition's keys.
    pub(super) fn create(&self, partition: usize) -> Result<File, SpillError> {
        if !self.is_named() {
            return self.create_unnamed();
        }
        let _changing = self.changing();
        let made = private().read(true).truncate(true).open(self.keys_path(partition));
        made.map_err(|source| SpillError::Create { dir: self.shown(), source })
    }

    /// A partition's file as another build left it, cut to what that build says is good.
    pub(super) fn reopen(&self, partition: usize, bytes: u64) -> Result<File, SpillError> {
        let open = || {
            let mut file =
                OpenOptions::new().read(true).write(true).open(self.keys_path(partition))?;
            // Never made longer: the next to come would believe the zeros.
            if file.metadata()?.len() < bytes {
                return Ok(None);
            }
            file.set_len(bytes)?;
            file.seek(SeekFrom::End(0))?;
            Ok(Some(file))
        };
        let file = open().map_err(|source| SpillError::Read { dir: self.shown(), source })?;
        file.ok_or_else(|| SpillError::Changed { dir: self.shown() })
    }

    fn keys_path(&self, partition: usize) -> PathBuf {
        self.path.join(format!("rtad-{partition:02x}.keys"))
    }

    /// A file that is gone when it is closed.
    pub(super) fn create_unnamed(&self) -> Result<File, SpillError> {
        tempfile::tempfile_in(&self.path)
            .map_err(|source| SpillError::Create { dir: self.shown(), source })
    }

    /// The bytes of a note, if it is there.
    pub(crate) fn read_note(&self, name: &str) -> Result<Option<Vec<u8>>, SpillError> {
        if !self.is_named() {
            return Ok(None);
        }
        match std::fs::read(self.path.join(name)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(SpillError::Read { dir: self.shown(), source }),
        }
    }

    /// Replaces a note, all of it or nothing, durably.
    pub(crate) fn write_note(&self, name: &str, bytes: &[u8]) -> Result<(), SpillError> {
        let _changing = self.changing();
        let write = || {
            let half = self.path.join(HALF_WRITTEN);
            let mut file = private().truncate(true).open(&half)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            std::fs::rename(&half, self.path.join(name))?;
            self.named.as_ref().map_or(Ok(()), |named| named.lock.sync_all())
        };
        write().map_err(|error| self.failed(error, 0))
    }

    /// Removes a note, if it is there.
    pub(crate) fn remove_note(&self, name: &str) -> Result<(), SpillError> {
        match std::fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.failed(error, 0)),
            _ => Ok(()),
        }
    }

    /// A note to append to.
    pub(crate) fn open_note(&self, name: &str) -> Result<File, SpillError> {
        let opened = OpenOptions::new().append(true).open(self.path.join(name));
        opened.map_err(|source| SpillError::Create { dir: self.shown(), source })
    }

    /// Bytes that can still be written, if the system says.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        let stat = rustix::fs::statvfs(&self.path).ok()?;
        Some(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// What a failed write means, after so many bytes.
    pub(crate) fn failed(&self, source: io::Error, written: u64) -> SpillError {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull, WriteZero};
        let dir = self.shown();
        match source.kind() {
            StorageFull | QuotaExceeded | FileTooLarge | WriteZero => {
                SpillError::Full { dir, written, source }
            }
            _ => SpillError::Write { dir, source },
        }
    }

    pub(crate) fn shown(&self) -> String {
        self.path.display().to_string()
    }
}

/// A file for each partition is open, and for some time one for each unit of a large one in each thread. Where this fails there
/// may still be enough.
fn raise_file_limit() {
    let _ = rlimit::increase_nofile_limit(FILES);
}

/// For its owner only.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    options
}

impl Drop for SpillDir {
    fn drop(&mut self) {
        if self.named.as_ref().is_some_and(|named| !named.is_kept.load(Ordering::Relaxed)) {
            let _changing = self.changing();
            self.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        std::fs::read_dir(dir)
            .into_iter()
            .flatten()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn nothing_is_left_after_a_panic_and_all_that_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spill");
        let open = || SpillDir::named(&path, &["note"]).unwrap();
        let panicked = std::panic::catch_unwind(|| {
            let dir = open();
            dir.create(7).unwrap().write_all(&[1; 32]).unwrap();
            dir.write_note("note", b"1").unwrap();
            assert!(matches!(SpillDir::named(&path, &[]), Err(SpillError::InUse { .. })));
            assert_eq!(names(&path).len(), 2);
            panic!("as anything may");
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
            "what is not good is cut off"
        );
        assert!(matches!(dir.reopen(7, 64), Err(SpillError::Changed { .. })));
        drop(dir);
        assert!(path.exists() && names(&path).is_empty(), "it was there before");
    }
}
