//! Reading segments, group by group.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _};
use std::path::Path;

use super::{
    FRAME_HEADER, Frame, GROUP_HEADER, GROUP_MAGIC, HEADER_BYTES, LogError, SEGMENT_MAGIC, VERSION,
    decode, take,
};

/// Bytes read at a time.
pub const READ_BYTES: usize = 256 << 10;

/// End of a segment, as `read_segment` found it.
#[derive(Debug, PartialEq, Eq)]
pub struct SegmentEnd {
    /// Number of the group after the last valid one.
    pub(crate) next_group: u64,
    /// Bytes after the last valid group.
    pub(crate) torn_bytes: u64,
}

/// Reads a segment: calls `each` with the payload of every group from `next_group` on. Memory: the
/// largest group.
///
/// # Errors
///
/// The file is unreadable, belongs to another window, or is damaged before its last group.
pub fn read_segment(
    path: &Path,
    id: u64,
    number: u64,
    mut next_group: u64,
    mut each: impl FnMut(&[u8]) -> Option<()>,
) -> Result<SegmentEnd, LogError> {
    let io = |source| LogError::Io {
        path: path.to_owned(),
        source,
    };
    let damaged = |offset, what| LogError::Damaged {
        path: path.to_owned(),
        offset,
        what,
    };
    let first_group = first_group(path, id, number)?;
    let mut segment = Reader::open(path).map_err(io)?;
    let Some(first_group) = first_group else {
        // The crash came before the header was durable.
        return Ok(SegmentEnd {
            next_group,
            torn_bytes: segment.bytes,
        });
    };
    if first_group != next_group {
        return Err(damaged(32, "the segment does not continue the one before"));
    }
    let mut offset = HEADER_BYTES as u64;
    let mut payload = Vec::new();
    while let Some((number, bytes)) = segment.group_at(offset).map_err(io)? {
        if number != next_group {
            return Err(damaged(offset, "a group is missing"));
        }
        payload.resize(bytes as usize, 0);
        segment
            .read(offset + GROUP_HEADER as u64, &mut payload)
            .map_err(io)?;
        each(&payload).ok_or_else(|| damaged(offset, "a group with unknown content"))?;
        next_group += 1;
        offset += GROUP_HEADER as u64 + bytes;
    }
    if segment.was_durable(offset, next_group).map_err(io)? {
        return Err(damaged(offset, "a broken group is followed by a valid one"));
    }
    Ok(SegmentEnd {
        next_group,
        torn_bytes: segment.bytes - offset,
    })
}

/// Segment that is read group by group.
struct Reader {
    file: BufReader<File>,
    /// Size of the file.
    bytes: u64,
}

impl Reader {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self {
            file: BufReader::with_capacity(READ_BYTES, file),
            bytes,
        })
    }

    fn seek(&mut self, offset: u64) -> io::Result<()> {
        let at = self.file.stream_position()?;
        // Keeps the buffer, if the offset is within it.
        self.file.seek_relative(offset as i64 - at as i64)
    }

    fn read(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.seek(offset)?;
        self.file.read_exact(into)
    }

    /// Number and payload bytes of the group at an offset, if it is valid. A broken length asks for
    /// no memory: the payload is read piece by piece.
    fn group_at(&mut self, offset: u64) -> io::Result<Option<(u64, u64)>> {
        let mut header = [0; GROUP_HEADER];
        let Some(rest) = self.bytes.checked_sub(offset + GROUP_HEADER as u64) else {
            return Ok(None);
        };
        self.read(offset, &mut header)?;
        let Some((number, payload, crc)) = parse_group_header(&header) else {
            return Ok(None);
        };
        if payload > rest {
            return Ok(None);
        }
        let mut found = crc32fast::Hasher::new();
        found.update(&header[..16]);
        let mut left = payload;
        while left > 0 {
            let bytes = self.file.fill_buf()?;
            if bytes.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let read = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            found.update(&bytes[..read]);
            self.file.consume(read);
            left -= read as u64;
        }
        Ok((found.finalize() == crc).then_some((number, payload)))
    }

    /// Number up to which groups were durable before the valid group at an offset, if it says so.
    fn synced_before(&mut self, offset: u64, payload_bytes: u64) -> io::Result<Option<u64>> {
        let mut frame = [0; FRAME_HEADER];
        if payload_bytes < FRAME_HEADER as u64 {
            return Ok(None);
        }
        self.read(offset + GROUP_HEADER as u64, &mut frame)?;
        Ok(match decode(&mut frame.as_slice(), 1) {
            Some(Frame::Synced(number)) => Some(number),
            _ => None,
        })
    }

    /// Whether a later group that is valid proves that the group at an offset was durable.
    fn was_durable(&mut self, offset: u64, number: u64) -> io::Result<bool> {
        let magic = GROUP_MAGIC.to_le_bytes();
        let mut piece = vec![0; READ_BYTES];
        let mut at = offset + 1;
        while at + (GROUP_HEADER as u64) <= self.bytes {
            let read = (self.bytes - at).min(READ_BYTES as u64);
            let piece = &mut piece[..read as usize];
            self.read(at, piece)?;
            let found = piece
                .windows(magic.len())
                .enumerate()
                .filter(|(_, four)| *four == magic);
            for (index, _) in found {
                let later_at = at + index as u64;
                if let Some((later, bytes)) = self.group_at(later_at)?
                    && later > number
                    && self
                        .synced_before(later_at, bytes)?
                        .is_none_or(|synced| synced > number)
                {
                    return Ok(true);
                }
            }
            // The magic may begin in this piece and end in the next.
            at += (read + 1).saturating_sub(magic.len() as u64).max(1);
        }
        Ok(false)
    }
}

/// Number, payload bytes and checksum; `None` for other bytes.
fn parse_group_header(header: &[u8; GROUP_HEADER]) -> Option<(u64, u64, u32)> {
    let mut fields = header.as_slice();
    let magic = u32::from_le_bytes(take(&mut fields)?);
    let payload = u32::from_le_bytes(take(&mut fields)?);
    let number = u64::from_le_bytes(take(&mut fields)?);
    let crc = u32::from_le_bytes(take(&mut fields)?);
    (magic == GROUP_MAGIC).then_some((number, u64::from(payload), crc))
}

/// Number of the first group of a segment; `None` if its header was never complete.
///
/// # Errors
///
/// The file is unreadable, or not a segment of this window.
fn first_group(path: &Path, id: u64, number: u64) -> Result<Option<u64>, LogError> {
    let io = |source| LogError::Io {
        path: path.to_owned(),
        source,
    };
    let mut bytes = Vec::with_capacity(HEADER_BYTES + 1);
    let file = File::open(path).map_err(io)?;
    file.take(HEADER_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(io)?;
    let damaged = |what| LogError::Damaged {
        path: path.to_owned(),
        offset: 0,
        what,
    };
    parse_header(&bytes, id, number).map_err(damaged)
}

/// Number of the first group; `None` for a header that was never complete.
fn parse_header(bytes: &[u8], id: u64, number: u64) -> Result<Option<u64>, &'static str> {
    let Some((header, rest)) = bytes.split_at_checked(HEADER_BYTES) else {
        return Ok(None);
    };
    let mut fields = header;
    let magic: Option<[u8; 8]> = take(&mut fields);
    let version = take(&mut fields).map(u32::from_le_bytes);
    let found_id = take(&mut fields).map(u64::from_le_bytes);
    let found_number = take(&mut fields).map(u64::from_le_bytes);
    let first_group = take(&mut fields).map(u64::from_le_bytes);
    let crc = take(&mut fields).map(u32::from_le_bytes);
    if crc != Some(crc32fast::hash(&header[..HEADER_BYTES - 4])) {
        // Groups are written after the header is durable.
        return if rest.is_empty() {
            Ok(None)
        } else {
            Err("a header with a wrong checksum")
        };
    }
    if magic != Some(SEGMENT_MAGIC) {
        return Err("not a log of a window");
    }
    if version != Some(VERSION) {
        return Err("a version of the format that this program does not know");
    }
    if found_id != Some(id) || found_number != Some(number) {
        return Err("a segment of another window");
    }
    Ok(first_group)
}
