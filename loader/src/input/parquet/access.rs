//! Random access to a file: on disk, or behind a URL.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use parking_lot::Mutex;

use super::super::remote::Remote;

/// Read-ahead of one request to a URL, as each costs a round trip.
const WINDOW_BYTES: u64 = 8 << 20;

/// Source of a Parquet file. May be used from any number of threads.
#[derive(Debug)]
pub enum FileSource {
    File { file: File, len: u64 },
    Remote(Box<Mutex<Window>>),
}

/// A buffered range of a remote file.
#[derive(Debug)]
pub struct Window {
    remote: Remote,
    start: u64,
    bytes: Vec<u8>,
}

impl FileSource {
    pub fn remote(remote: Remote) -> Self {
        Self::Remote(Box::new(Mutex::new(Window {
            remote,
            start: 0,
            bytes: Vec::new(),
        })))
    }

    pub fn len(&self) -> u64 {
        match self {
            Self::File { len, .. } => *len,
            Self::Remote(window) => window.lock().remote.size_bytes(),
        }
    }

    /// Reads a range within the file. The bytes after it, up to `until`, are likely to be read
    /// next.
    pub fn read(&self, part: Range<u64>, until: u64) -> io::Result<Vec<u8>> {
        let len = (part.end - part.start) as usize;
        match self {
            Self::File { file, .. } => {
                let mut bytes = vec![0; len];
                file.read_exact_at(&mut bytes, part.start)?;
                Ok(bytes)
            }
            Self::Remote(window) => {
                let mut window = window.lock();
                let known = window.start..window.start + window.bytes.len() as u64;
                if part.start < known.start || part.end > known.end {
                    let end = until.min(part.start + WINDOW_BYTES).max(part.end);
                    window.bytes = window.remote.part(part.start..end)?;
                    window.start = part.start;
                }
                let from = (part.start - window.start) as usize;
                let bytes = window.bytes.get(from..from + len);
                Ok(bytes.ok_or(io::ErrorKind::UnexpectedEof)?.to_vec())
            }
        }
    }
}
