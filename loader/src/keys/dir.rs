//! Spill directory: unnamed files for keys that do not fit memory.
//!
//! A file without a name ends with the process, `kill -9` included.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use super::error::SpillError;

/// Enough open files for any useful number of threads.
const FILES: u64 = 16_384;

/// A directory for spill files.
#[derive(Debug)]
pub struct SpillDir(PathBuf);

impl SpillDir {
    /// `$TMPDIR`, or else `/tmp`.
    pub fn temporary() -> Self {
        raise_file_limit();
        Self(std::env::temp_dir())
    }

    /// Creates a file that ends when it is closed.
    pub fn create_file(&self) -> Result<File, SpillError> {
        tempfile::tempfile_in(&self.0).map_err(|source| SpillError::Create {
            dir: self.shown(),
            source,
        })
    }

    /// Free bytes, if the system reports them.
    pub fn free_bytes(&self) -> Option<u64> {
        let stat = rustix::fs::statvfs(&self.0).ok()?;
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
        self.0.display().to_string()
    }
}

/// One file per partition is open, and at times one per unit of a large partition in each thread.
/// Failure is ignored: the limit may still be high enough.
fn raise_file_limit() {
    let _ = rlimit::increase_nofile_limit(FILES);
}
