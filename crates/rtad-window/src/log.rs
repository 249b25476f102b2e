//! Write-ahead log of a window: segments of groups of slot contents.
//!
//! ```text
//! segment   header, groups
//! header    magic "RTADWLOG", version u32, window id u64, segment number u64,
//!           number of the first group u64, crc u32
//! group     magic u32, payload bytes u32, group number u64,
//!           crc u32 (of all three and the payload), payload: frames
//! frame     kind u8, tick u64, records u32, then the records
//! record    of changes and erasures: slot u48, lanes u32 each
//! ```
//!
//! All numbers are little-endian. A group is written with one write and one sync; the next group
//! starts after the sync. So only the last group of a log can be torn: it is cut. A broken group
//! before a valid one is damage, and the log is refused. Records are contents, not events:
//! replaying one twice changes nothing.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use crate::answers::{Answer, Token};
use crate::table::{Change, LANES};

const SEGMENT_MAGIC: [u8; 8] = *b"RTADWLOG";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 40;
const GROUP_MAGIC: u32 = 0x5747_5452;
const GROUP_HEADER: usize = 20;
const FRAME_HEADER: usize = 13;
const SLOT_BYTES: usize = 6;

/// A damaged log, or one that does not belong to the window.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file could not be read or cut.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Content that no crash explains.
    #[error("{path}: damaged at byte {offset}: {what}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the damage begins.
        offset: u64,
        /// What was expected and found.
        what: &'static str,
    },
}

/// Content of a frame.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Frame {
    /// Slots after events.
    Changes { tick: u64, changes: Vec<Change> },
    /// Erased entries.
    Forgotten { tick: u64, changes: Vec<Change> },
    /// The answer to a request with a token; the tick is in seconds of the wall clock.
    Answered { token: Token, answer: Answer },
}

const CHANGES: u8 = 1;
const FORGOTTEN: u8 = 2;
const ANSWERED: u8 = 3;

/// Appends a frame of slot contents to a buffer.
pub(crate) fn encode_changes(
    into: &mut Vec<u8>,
    tick: u64,
    changes: &[Change],
    lanes: usize,
    is_forgotten: bool,
) {
    into.reserve(FRAME_HEADER + changes.len() * (SLOT_BYTES + 4 * lanes));
    into.push(if is_forgotten { FORGOTTEN } else { CHANGES });
    into.extend_from_slice(&tick.to_le_bytes());
    into.extend_from_slice(&(changes.len() as u32).to_le_bytes());
    for change in changes {
        into.extend_from_slice(&change.slot.to_le_bytes()[..SLOT_BYTES]);
        for word in &change.words[..lanes] {
            into.extend_from_slice(&word.to_le_bytes());
        }
    }
}

/// Appends a frame with the answer to a request.
pub(crate) fn encode_answer(into: &mut Vec<u8>, token: &Token, answer: &Answer) {
    into.push(ANSWERED);
    into.extend_from_slice(&answer.unix_seconds.to_le_bytes());
    into.extend_from_slice(&(answer.counts.len() as u32).to_le_bytes());
    into.extend_from_slice(&token.0);
    into.extend_from_slice(&answer.request);
    for count in answer.counts.iter() {
        into.extend_from_slice(&count.to_le_bytes());
    }
}

/// Splits a payload into frames; `None` if it is not one.
pub(crate) fn decode(mut payload: &[u8], lanes: usize) -> Option<Vec<Frame>> {
    let mut frames = Vec::new();
    while !payload.is_empty() {
        let kind = take::<1>(&mut payload)?[0];
        let tick = u64::from_le_bytes(take(&mut payload)?);
        let records = u32::from_le_bytes(take(&mut payload)?) as usize;
        frames.push(match kind {
            CHANGES | FORGOTTEN => {
                let bytes = split(&mut payload, records.checked_mul(SLOT_BYTES + 4 * lanes)?)?;
                let record = bytes.chunks_exact(SLOT_BYTES + 4 * lanes).map(|record| {
                    let mut slot = [0; 8];
                    slot[..SLOT_BYTES].copy_from_slice(&record[..SLOT_BYTES]);
                    let mut words = [0; LANES];
                    for (word, lane) in words.iter_mut().zip(record[SLOT_BYTES..].chunks_exact(4)) {
                        *word = u32::from_le_bytes([lane[0], lane[1], lane[2], lane[3]]);
                    }
                    Change { slot: u64::from_le_bytes(slot), words }
                });
                let changes = record.collect();
                match kind {
                    CHANGES => Frame::Changes { tick, changes },
                    _ => Frame::Forgotten { tick, changes },
                }
            }
            ANSWERED => {
                let token = Token(take(&mut payload)?);
                let request = take(&mut payload)?;
                let counts = split(&mut payload, records.checked_mul(2)?)?;
                let counts = counts.chunks_exact(2).map(|two| u16::from_le_bytes([two[0], two[1]]));
                let counts = counts.collect();
                Frame::Answered { token, answer: Answer { unix_seconds: tick, request, counts } }
            }
            _ => return None,
        });
    }
    Some(frames)
}

fn split<'a>(bytes: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (head, tail) = bytes.split_at_checked(n)?;
    *bytes = tail;
    Some(head)
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    split(bytes, N)?.try_into().ok()
}

/// File of a segment.
pub(crate) fn segment_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("log-{number:016}"))
}

/// Segment being written.
pub(crate) struct Segment {
    file: File,
    pub(crate) number: u64,
    /// Number of the next group.
    pub(crate) next_group: u64,
    pub(crate) bytes: u64,
}

impl Segment {
    /// Creates a segment and makes it durable. A file of this number that exists is replaced: it
    /// was created by an attempt that failed.
    pub(crate) fn create(dir: &Path, id: u64, number: u64, next_group: u64) -> io::Result<Self> {
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend_from_slice(&SEGMENT_MAGIC);
        header.extend_from_slice(&VERSION.to_le_bytes());
        header.extend_from_slice(&id.to_le_bytes());
        header.extend_from_slice(&number.to_le_bytes());
        header.extend_from_slice(&next_group.to_le_bytes());
        let crc = crc32fast::hash(&header);
        header.extend_from_slice(&crc.to_le_bytes());
        let mut file = private(OpenOptions::new().create(true).truncate(true).write(true))
            .open(segment_path(dir, number))?;
        file.write_all(&header)?;
        file.sync_all()?;
        sync_dir(dir)?;
        Ok(Self { file, number, next_group, bytes: HEADER_BYTES as u64 })
    }

    /// Appends a group and makes it durable. After an error the segment must not be used further;
    /// the next one begins with the same group number.
    pub(crate) fn append(&mut self, payload: &[u8]) -> io::Result<()> {
        let mut header = [0; GROUP_HEADER];
        header[..4].copy_from_slice(&GROUP_MAGIC.to_le_bytes());
        header[4..8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        header[8..16].copy_from_slice(&self.next_group.to_le_bytes());
        let crc = group_crc(&header[..16], payload);
        header[16..].copy_from_slice(&crc.to_le_bytes());
        self.file.write_all(&header)?;
        self.file.write_all(payload)?;
        self.file.sync_data()?;
        self.next_group += 1;
        self.bytes += (GROUP_HEADER + payload.len()) as u64;
        Ok(())
    }
}

fn group_crc(header: &[u8], payload: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(header);
    crc.update(payload);
    crc.finalize()
}

/// Files that hold keys are readable by their owner only.
pub(crate) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    use std::os::unix::fs::OpenOptionsExt as _;
    options.mode(0o600)
}

pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// What `read_segment` found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SegmentEnd {
    /// Number of the group after the last valid one.
    pub(crate) next_group: u64,
    /// Bytes after the last valid group.
    pub(crate) torn_bytes: u64,
}

/// Reads a segment: calls `each` with the payload of every group from `next_group` on, before
/// group `until`.
///
/// A segment whose last write failed is continued by the next one at the same group: what the
/// failed write left behind does not count.
///
/// # Errors
///
/// The file is unreadable, belongs to another window, or is damaged before its last group.
pub(crate) fn read_segment(
    path: &Path,
    id: u64,
    number: u64,
    mut next_group: u64,
    until: Option<u64>,
    mut each: impl FnMut(&[u8]) -> Option<()>,
) -> Result<SegmentEnd, LogError> {
    let bytes = std::fs::read(path);
    let bytes = bytes.map_err(|source| LogError::Io { path: path.to_owned(), source })?;
    let damaged = |offset: usize, what| LogError::Damaged {
        path: path.to_owned(),
        offset: offset as u64,
        what,
    };
    let Some(first_group) = parse_header(&bytes, id, number).map_err(|what| damaged(0, what))?
    else {
        // The crash came before the header was durable.
        return Ok(SegmentEnd { next_group, torn_bytes: bytes.len() as u64 });
    };
    if first_group != next_group {
        return Err(damaged(32, "the segment does not continue the one before"));
    }
    let mut offset = HEADER_BYTES;
    while let Some((number, payload)) = parse_group(&bytes[offset..]) {
        if until == Some(next_group) {
            break;
        }
        if number != next_group {
            return Err(damaged(offset, "a group is missing"));
        }
        each(payload).ok_or_else(|| damaged(offset, "a group with unknown content"))?;
        next_group += 1;
        offset += GROUP_HEADER + payload.len();
    }
    match until {
        Some(until) if until == next_group => return Ok(SegmentEnd { next_group, torn_bytes: 0 }),
        Some(_) => return Err(damaged(offset, "the last groups are missing")),
        None => {}
    }
    // A later group that is valid proves that this one was durable once.
    let later = bytes[offset..].windows(4).skip(1).enumerate();
    for (at, _) in later.filter(|(_, four)| *four == GROUP_MAGIC.to_le_bytes()) {
        let group = parse_group(&bytes[offset + 1 + at..]);
        if group.is_some_and(|(number, _)| number > next_group) {
            return Err(damaged(offset, "a broken group is followed by a valid one"));
        }
    }
    Ok(SegmentEnd { next_group, torn_bytes: (bytes.len() - offset) as u64 })
}

/// Number of the first group of a segment; `None` if its header was never complete.
///
/// # Errors
///
/// The file is unreadable, or not a segment of this window.
pub(crate) fn first_group(path: &Path, id: u64, number: u64) -> Result<Option<u64>, LogError> {
    let io = |source| LogError::Io { path: path.to_owned(), source };
    let mut bytes = Vec::with_capacity(HEADER_BYTES + 1);
    let file = File::open(path).map_err(io)?;
    file.take(HEADER_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(io)?;
    let damaged = |what| LogError::Damaged { path: path.to_owned(), offset: 0, what };
    parse_header(&bytes, id, number).map_err(damaged)
}

/// Number of the first group; `None` for a header that was never complete.
fn parse_header(bytes: &[u8], id: u64, number: u64) -> Result<Option<u64>, &'static str> {
    let Some((header, rest)) = bytes.split_at_checked(HEADER_BYTES) else { return Ok(None) };
    let mut fields = header;
    let magic: Option<[u8; 8]> = take(&mut fields);
    let version = take(&mut fields).map(u32::from_le_bytes);
    let found_id = take(&mut fields).map(u64::from_le_bytes);
    let found_number = take(&mut fields).map(u64::from_le_bytes);
    let first_group = take(&mut fields).map(u64::from_le_bytes);
    let crc = take(&mut fields).map(u32::from_le_bytes);
    if crc != Some(crc32fast::hash(&header[..HEADER_BYTES - 4])) {
        // Groups are written after the header is durable.
        return if rest.is_empty() { Ok(None) } else { Err("a header with a wrong checksum") };
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

fn parse_group(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (header, rest) = bytes.split_at_checked(GROUP_HEADER)?;
    let mut fields = header;
    let magic = u32::from_le_bytes(take(&mut fields)?);
    let length = u32::from_le_bytes(take(&mut fields)?) as usize;
    let number = u64::from_le_bytes(take(&mut fields)?);
    let crc = u32::from_le_bytes(take(&mut fields)?);
    let payload = rest.get(..length)?;
    let is_valid = magic == GROUP_MAGIC && crc == group_crc(&header[..16], payload);
    is_valid.then_some((number, payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(slot: u64) -> Change {
        Change { slot, words: [slot as u32, 2, 3, 4, 5, 6] }
    }

    fn write(dir: &Path, groups: &[&[u8]]) -> PathBuf {
        let mut segment = Segment::create(dir, 7, 3, 10).unwrap();
        for group in groups {
            segment.append(group).unwrap();
        }
        segment_path(dir, 3)
    }

    fn read(path: &Path) -> Result<(Vec<Vec<u8>>, SegmentEnd), LogError> {
        let mut groups = Vec::new();
        let end = read_segment(path, 7, 3, 10, None, |payload| {
            groups.push(payload.to_vec());
            Some(())
        })?;
        Ok((groups, end))
    }

    #[test]
    fn frames_survive_encoding() {
        let mut bytes = Vec::new();
        encode_changes(&mut bytes, 9, &[change(1), change(1 << 40)], LANES, false);
        encode_changes(&mut bytes, 10, &[change(2)], LANES, true);
        let answer = Answer { unix_seconds: 5, request: [7; 16], counts: [1, 0, 65535].into() };
        encode_answer(&mut bytes, &Token([8; 16]), &answer);
        let expected = [
            Frame::Changes { tick: 9, changes: vec![change(1), change(1 << 40)] },
            Frame::Forgotten { tick: 10, changes: vec![change(2)] },
            Frame::Answered { token: Token([8; 16]), answer },
        ];
        assert_eq!(decode(&bytes, LANES).unwrap(), expected);
        for end in 1..bytes.len() {
            if let Some(frames) = decode(&bytes[..end], LANES) {
                assert!(frames.len() < 3);
            }
        }
    }

    #[test]
    fn torn_tail_is_cut_at_every_byte() {
        let dir = tempfile::tempdir().unwrap();
        let path = write(dir.path(), &[b"first", b"second, longer"]);
        let whole = std::fs::read(&path).unwrap();
        let second = whole.len() - GROUP_HEADER - 14;
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let (groups, end) = read(&path).unwrap();
            let expected = if length >= second { 1 } else { 0 };
            assert_eq!((groups.len(), end.next_group), (expected, 10 + expected as u64));
        }
    }

    #[test]
    fn every_flipped_byte_before_the_last_group_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = write(dir.path(), &[b"first", b"second, longer"]);
        let whole = std::fs::read(&path).unwrap();
        let second = whole.len() - GROUP_HEADER - 14;
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            std::fs::write(&path, &bytes).unwrap();
            assert_eq!(read(&path).is_err(), at < second, "byte {at}");
        }
    }

    #[test]
    fn missing_group_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = write(dir.path(), &[b"first", b"second", b"third"]);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.drain(HEADER_BYTES..HEADER_BYTES + GROUP_HEADER + 5);
        std::fs::write(&path, &bytes).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("a group is missing"));
    }
}
