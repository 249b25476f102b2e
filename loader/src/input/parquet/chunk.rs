//! Column chunk: the bytes of one column in one row group, as the `parquet` crate asks for them.

use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use super::access::FileSource;
use super::fault::PageFault;

/// Read at once for a page header. A longer one, with long statistics, takes several reads.
const HEADER_BYTES: usize = 4 << 10;

/// Never reads beyond `end`: a corrupt length must not fetch the rest of a remote file.
#[derive(Debug, Clone)]
pub struct Chunk {
    pub(super) access: Arc<FileSource>,
    pub(super) end: u64,
}

impl Chunk {
    fn read(&self, part: Range<u64>) -> io::Result<Vec<u8>> {
        // An error of the file or server must not look like a corrupt page.
        self.access
            .read(part, self.end)
            .map_err(|error| io::Error::other(PageFault::Read(error)))
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
            Some(end) if end <= self.end => Ok(self.read(start..end)?.into()),
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
        let chunk = Chunk {
            access: Arc::new(FileSource::File { file, len: 8 }),
            end: 6,
        };
        let mut read = chunk.get_read(2).unwrap();
        let mut buffer = [0; 8];
        assert_eq!(read.read(&mut buffer).unwrap(), 4);
        assert_eq!(
            read.read(&mut buffer).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
    }
}
