//! Copies of chunks, written to the cache while they are read from the store. Everything here
//! blocks.

use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use super::errors::CacheErrors;
use super::files::stage;
use rtad_store::ByteSink;

/// A chunk being copied into the cache. Dropped without [`ChunkCopy::keep`], it leaves no file.
#[derive(Debug)]
pub(crate) struct ChunkCopy {
    folder: PathBuf,
    name: String,
    errors: Arc<CacheErrors>,
    state: CopyState,
}

#[derive(Debug)]
enum CopyState {
    /// No file yet: the first bytes create it, on the blocking pool.
    New,
    Open(File, PathBuf),
    Failed(io::Error),
    Kept,
}

impl ChunkCopy {
    pub(super) fn new(folder: PathBuf, name: String, errors: &Arc<CacheErrors>) -> Self {
        Self { folder, name, errors: Arc::clone(errors), state: CopyState::New }
    }

    /// Publishes the copy in the cache, after the chunk was verified.
    ///
    /// # Errors
    ///
    /// The reason that there is no copy. It has been counted.
    pub(crate) fn keep(mut self) -> io::Result<()> {
        if let CopyState::Open(_, staged) = &self.state {
            let renamed = std::fs::rename(staged, self.folder.join(&self.name));
            self.errors.report(&self.folder, &renamed);
            match renamed {
                Ok(()) => self.state = CopyState::Kept,
                Err(error) => self.give_up(error),
            }
        }
        match std::mem::replace(&mut self.state, CopyState::Kept) {
            CopyState::Failed(error) => Err(error),
            _ => Ok(()),
        }
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if matches!(self.state, CopyState::New) {
            let (file, staged) = stage(&self.folder)?;
            self.state = CopyState::Open(file, staged);
        }
        match &mut self.state {
            CopyState::Open(file, _) => file.write_all(bytes),
            _ => Ok(()),
        }
    }

    fn give_up(&mut self, error: io::Error) {
        if let CopyState::Open(_, staged) =
            std::mem::replace(&mut self.state, CopyState::Failed(error))
        {
            let _ = std::fs::remove_file(staged);
        }
    }
}

impl ByteSink for ChunkCopy {
    fn take(&mut self, bytes: &[u8]) {
        let appended = self.append(bytes);
        self.errors.report(&self.folder, &appended);
        if let Err(error) = appended {
            self.give_up(error);
        }
    }
}

impl Drop for ChunkCopy {
    fn drop(&mut self) {
        self.give_up(ErrorKind::Interrupted.into());
    }
}
