//! Column chunk: the bytes of one column in one row group, as the `parquet` crate asks for them.

use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use super::access::FileSource;

/// Read at once for a page header. A longer one, with long statistics, takes several reads.
const HEADER_BYTES: usize = 4 << 10;
/// Read-ahead of one request to a URL, as each costs a round trip. Each selected column has its
/// own, as their pages are read in turn.
const WINDOW_BYTES: u64 = 8 << 20;

/// Never reads beyond `end`: a corrupt length must not fetch the rest of a remote file.
#[derive(Debug, Clone)]
pub struct Chunk {
    end: u64,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    source: Arc<FileSource>,
    window: Mutex<Window>,
    failure: Mutex<Option<io::Error>>,
}

/// A buffered range of a remote file.
#[derive(Debug, Default)]
struct Window {
    start: u64,
    bytes: Bytes,
}

impl Chunk {
    pub fn new(source: &Arc<FileSource>, end: u64) -> Self {
        let shared = Shared {
            source: Arc::clone(source),
            window: Mutex::default(),
            failure: Mutex::default(),
        };
        Self {
            end,
            shared: Arc::new(shared),
        }
    }

    /// The error of the file or server, which must not look like a corrupt page. The `parquet`
    /// crate returns only its text.
    pub fn take_failure(&self) -> Option<io::Error> {
        self.shared.failure.lock().take()
    }

    fn read(&self, part: Range<u64>) -> io::Result<Bytes> {
        let read = match &*self.shared.source {
            FileSource::File { .. } => self.shared.source.read(part).map(Bytes::from),
            FileSource::Remote(_) => self.read_ahead(part),
        };
        read.map_err(|error| {
            *self.shared.failure.lock() = Some(error);
            io::Error::other("could not be read")
        })
    }

    fn read_ahead(&self, part: Range<u64>) -> io::Result<Bytes> {
        let mut window = self.shared.window.lock();
        let window_end = window.start + window.bytes.len() as u64;
        if part.start < window.start || part.end > window_end {
            let end = self.end.min(part.start + WINDOW_BYTES).max(part.end);
            window.bytes = self.shared.source.read(part.start..end)?.into();
            window.start = part.start;
        }

        let first = (part.start - window.start) as usize;
        let last = (part.end - window.start) as usize;
        if last > window.bytes.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(window.bytes.slice(first..last))
    }
}

impl Length for Chunk {
    fn len(&self) -> u64 {
        self.end
    }
}

impl ChunkReader for Chunk {
    type T = BufReader<ChunkRead>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let read = ChunkRead {
            chunk: self.clone(),
            offset: start,
        };
        Ok(BufReader::with_capacity(HEADER_BYTES, read))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        match start.checked_add(length as u64) {
            Some(end) if end <= self.end => Ok(self.read(start..end)?),
            _ => Err(ParquetError::EOF("page beyond its column".to_owned())),
        }
    }
}

/// Sequential reader of a chunk.
#[derive(Debug)]
pub struct ChunkRead {
    chunk: Chunk,
    offset: u64,
}

impl Read for ChunkRead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.chunk.end.saturating_sub(self.offset);
        // The crate takes the end for skipped bytes, and may skip 2³¹ list items without progress.
        if left == 0 && !buffer.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let count = left.min(buffer.len() as u64) as usize;
        let end = self.offset + count as u64;
        if count > 0 {
            buffer[..count].copy_from_slice(&self.chunk.read(self.offset..end)?);
        }
        self.offset = end;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_at_the_end_of_a_column_is_an_error() {
        let file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut &file, b"01234567").unwrap();
        let source = Arc::new(FileSource::File { file, len: 8 });
        let mut read = Chunk::new(&source, 6).get_read(2).unwrap();
        let mut buffer = [0; 8];
        assert_eq!(read.read(&mut buffer).unwrap(), 4);
        assert_eq!(
            read.read(&mut buffer).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
    }
}
