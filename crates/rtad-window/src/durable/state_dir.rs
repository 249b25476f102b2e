//! A window's directory, locked but not read yet: its owner may put a checkpoint into it first.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use super::open::{self, Loaded, OpenError, lock_dir, numbered};
use crate::WindowSpec;
use crate::checkpoint::checkpoint_path;
use crate::log::{private, sync_dir};

/// A window's directory that no other process can open.
#[derive(Debug)]
pub struct StateDir {
    pub(super) dir: PathBuf,
    pub(super) lock: File,
}

impl StateDir {
    /// Creates the directory if it is missing, locks it, and removes files that were not finished.
    ///
    /// # Errors
    ///
    /// The directory cannot be written, or is in use by another process.
    pub fn lock(dir: &Path) -> Result<Self, OpenError> {
        let created = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        created.map_err(|source| OpenError::Io { path: dir.to_owned(), source })?;
        let lock = lock_dir(dir)?;
        open::remove_temporary(dir).map_err(|source| OpenError::Io { path: dir.into(), source })?;
        Ok(Self { dir: dir.to_owned(), lock })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Whether it has neither a checkpoint nor a log.
    ///
    /// # Errors
    ///
    /// The directory cannot be read.
    pub fn is_empty(&self) -> io::Result<bool> {
        Ok(numbered(&self.dir, "checkpoint-")?.is_empty()
            && numbered(&self.dir, "log-")?.is_empty())
    }

    /// Reads the last checkpoint and the log after it; an empty directory is an empty window.
    /// Changes nothing but a torn end of the log.
    ///
    /// `clock` says in the caller's words what a tick is; files of another clock are refused.
    /// `tick` gets the milliseconds that the wall clock was ahead of the window's time when that
    /// was last known, 0 for an empty window, and returns the current tick. Cost: reading the
    /// files; a log of half the table at most.
    ///
    /// # Errors
    ///
    /// The files are unreadable, damaged, or of another spec.
    pub fn load(
        &self,
        spec: WindowSpec,
        clock: &str,
        tick: impl FnOnce(i64) -> u64,
    ) -> Result<Loaded, OpenError> {
        open::load(&self.dir, spec, clock, tick)
    }

    /// An empty file for a checkpoint from elsewhere; `install` makes it the window's.
    ///
    /// # Errors
    ///
    /// The file cannot be created.
    pub fn create_download(&self) -> io::Result<File> {
        private(OpenOptions::new().create(true).truncate(true).write(true)).open(self.download())
    }

    /// Loads the downloaded file, which is the checkpoint of this number.
    ///
    /// # Errors
    ///
    /// The errors of `load`. The download is then removed.
    pub fn load_download(
        &self,
        number: u64,
        spec: WindowSpec,
        clock: &str,
        tick: impl FnOnce(i64) -> u64,
    ) -> Result<Loaded, OpenError> {
        let path = self.download();
        open::load_download(&path, number, spec, clock, tick).inspect_err(|_| {
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
        use io::Write as _;
        let path = self.dir.join("CLAIMS.tmp");
        let mut file =
            private(OpenOptions::new().create(true).truncate(true).write(true)).open(&path)?;
        file.write_all(claims.join("\n").as_bytes())?;
        file.sync_all()?;
        std::fs::rename(path, self.dir.join("CLAIMS"))?;
        sync_dir(&self.dir)
    }

    /// A random text for a new claim.
    ///
    /// # Errors
    ///
    /// The system has no random numbers.
    pub fn new_claim() -> io::Result<String> {
        Ok(format!("{:016x}", getrandom::u64()?))
    }
}
