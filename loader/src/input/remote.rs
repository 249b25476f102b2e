//! An input behind a URL: read as it comes, or in parts.
//!
//! The store's own client does the work (`rtad_store::object`): it resumes what breaks off and gives up what stands still. Here it
//! becomes a [`Read`], for a thread of its own; an error keeps the store's reason inside.

use std::io::{self, Read};
use std::ops::Range;

use bytes::{Buf as _, Bytes};
use rtad_store::StoreError;
use rtad_store::object::Object;
use tokio::runtime::{Builder, Runtime};

/// An object, and the runtime that its reader drives.
#[derive(Debug)]
pub(super) struct Remote {
    object: Object,
    runtime: Runtime,
    /// What came and was not taken yet.
    left: Bytes,
}

impl Remote {
    /// Looks the object up.
    pub(super) fn open(url: &str) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let object = runtime.block_on(Object::open(url)).map_err(io::Error::other)?;
        Ok(Self { object, runtime, left: Bytes::new() })
    }

    pub(super) const fn size_bytes(&self) -> u64 {
        self.object.size_bytes()
    }

    /// What tells it from another at the same place.
    pub(super) fn version(&self) -> &str {
        self.object.version()
    }

    /// A part of it, which must lie within.
    pub(super) fn part(&mut self, part: Range<u64>) -> io::Result<Vec<u8>> {
        self.runtime.block_on(self.object.range(part)).map_err(io::Error::other)
    }
}

impl Read for Remote {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left.is_empty() {
            self.left = self.runtime.block_on(self.object.next()).map_err(io::Error::other)?;
        }
        let count = self.left.len().min(buffer.len());
        self.left.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}

/// The store's error in one of reading, if it is one.
pub(super) fn store_error(error: io::Error) -> Result<Box<StoreError>, io::Error> {
    error.downcast().map(Box::new)
}
