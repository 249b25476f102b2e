//! Random access to a file: on disk, or behind a URL.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use parking_lot::Mutex;

use super::super::remote::Remote;

/// Source of a Parquet file. May be used from any number of threads.
#[derive(Debug)]
pub enum FileSource {
    File { file: File, len: u64 },
    Remote(Box<Mutex<Remote>>),
}

impl FileSource {
    pub fn remote(remote: Remote) -> Self {
        Self::Remote(Box::new(Mutex::new(remote)))
    }

    pub fn len(&self) -> u64 {
        match self {
            Self::File { len, .. } => *len,
            Self::Remote(remote) => remote.lock().size_bytes(),
        }
    }

    /// Reads a range within the file.
    pub fn read(&self, part: Range<u64>) -> io::Result<Vec<u8>> {
        match self {
            Self::File { file, .. } => {
                let mut bytes = vec![0; (part.end - part.start) as usize];
                file.read_exact_at(&mut bytes, part.start)?;
                Ok(bytes)
            }
            Self::Remote(remote) => remote.lock().part(part),
        }
    }
}
