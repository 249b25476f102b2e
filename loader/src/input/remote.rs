//! Remote input: an object behind a URL, read sequentially or by ranges.
//!
//! Wraps `rtad_store::object`, which resumes broken transfers and times out stalled ones, as a
//! blocking [`Read`]. Errors keep the [`StoreError`] inside.

use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use rtad_store::StoreError;
use rtad_store::object::Object;
use tokio::runtime::{Builder, Runtime};

/// An object, and the runtime that drives its client.
#[derive(Debug)]
pub struct Remote {
    object: Object,
    runtime: Arc<Runtime>,
    /// Received bytes not read yet.
    left: Bytes,
}

impl Remote {
    /// Requests the metadata of the object.
    pub fn open(url: &str) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let object = runtime
            .block_on(Object::open(url))
            .map_err(io::Error::other)?;
        Ok(Self::of(object, Arc::new(runtime)))
    }

    /// An open object, and the runtime of its client.
    pub fn of(object: Object, runtime: Arc<Runtime>) -> Self {
        Self {
            object,
            runtime,
            left: Bytes::new(),
        }
    }

    pub const fn size_bytes(&self) -> u64 {
        self.object.size_bytes()
    }

    pub fn version(&self) -> Option<String> {
        self.object.version()
    }

    /// A byte range, which must be within the object.
    pub fn part(&mut self, part: Range<u64>) -> io::Result<Vec<u8>> {
        self.runtime
            .block_on(self.object.range(part))
            .map_err(io::Error::other)
    }
}

impl Read for Remote {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left.is_empty() {
            self.left = self
                .runtime
                .block_on(self.object.next())
                .map_err(io::Error::other)?;
        }
        let count = self.left.len().min(buffer.len());
        self.left.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}

/// Extracts the [`StoreError`] of an I/O error, if it has one.
pub fn store_error(error: io::Error) -> Result<Box<StoreError>, io::Error> {
    error.downcast().map(Box::new)
}
