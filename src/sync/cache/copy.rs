//! Copies of chunks, written to the cache while they are read from the store. Everything here
//! blocks.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use super::errors::CacheErrors;
use super::files::create_unfinished;
use rtad_core::files::AtomicFile;
use rtad_store::ByteSink;

/// A chunk being copied into the cache. Dropped without [`ChunkCopy::keep`], it leaves no file.
#[derive(Debug)]
pub(crate) struct ChunkCopy {
    path: PathBuf,
    errors: Arc<CacheErrors>,
    state: CopyState,
}

#[derive(Debug)]
enum CopyState {
    /// No file yet: the first bytes create it, on the blocking pool.
    New,
    Open(AtomicFile, File),
    Failed(io::Error),
    Kept,
}

impl ChunkCopy {
    pub(super) fn new(path: PathBuf, errors: &Arc<CacheErrors>) -> Self {
        Self {
            path,
            errors: Arc::clone(errors),
            state: CopyState::New,
        }
    }

    /// Publishes the copy in the cache, after the chunk was verified.
    ///
    /// # Errors
    ///
    /// The reason that there is no copy. It has been counted.
    pub(crate) fn keep(mut self) -> io::Result<()> {
        match std::mem::replace(&mut self.state, CopyState::Kept) {
            CopyState::Open(aside, _) => {
                let renamed = aside.publish(&self.path);
                self.errors.report(&self.path, &renamed);
                renamed
            }
            CopyState::Failed(error) => Err(error),
            CopyState::New | CopyState::Kept => Ok(()),
        }
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if matches!(self.state, CopyState::New) {
            let (aside, file) = create_unfinished(&self.path)?;
            self.state = CopyState::Open(aside, file);
        }
        match &mut self.state {
            CopyState::Open(_, file) => file.write_all(bytes),
            _ => Ok(()),
        }
    }
}

impl ByteSink for ChunkCopy {
    fn take(&mut self, bytes: &[u8]) {
        let appended = self.append(bytes);
        self.errors.report(&self.path, &appended);
        if let Err(error) = appended {
            self.state = CopyState::Failed(error);
        }
    }
}
