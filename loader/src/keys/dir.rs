//! Where keys are spilled to.
//!
//! Into files without a name, which are gone with the process however it ends, `kill -9` included.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use super::SpillError;

/// A directory for spill files.
#[derive(Debug)]
pub(crate) struct SpillDir {
    path: PathBuf,
}

impl SpillDir {
    /// The system's directory for temporary files.
    pub(crate) fn unnamed() -> Self {
        Self { path: std::env::temp_dir() }
    }

    /// A file that is gone when it is closed.
    pub(super) fn create_unnamed(&self) -> Result<File, SpillError> {
        tempfile::tempfile_in(&self.path).map_err(|source| SpillError::Create { dir: self.shown(), source })
    }

    /// What a failed write means, after so many bytes.
    pub(super) fn failed(&self, source: io::Error, written: u64) -> SpillError {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull, WriteZero};
        let dir = self.shown();
        match source.kind() {
            StorageFull | QuotaExceeded | FileTooLarge | WriteZero => {
                SpillError::Full { dir, written, source }
            }
            _ => SpillError::Write { dir, source },
        }
    }

    pub(super) fn shown(&self) -> String {
        self.path.display().to_string()
    }
}
