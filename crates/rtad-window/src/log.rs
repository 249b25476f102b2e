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
//!           of answers: count u16, after the token and the digest of the request
//!           of the wall offset none: the tick holds it
//! ```
//!
//! All numbers are little-endian. A group is written with one write and one sync; the next group
//! starts after the sync. So only the last group of a log can be torn: it is cut. A broken group
//! before a valid one is damage, and the log is refused. Records are contents, not events:
//! replaying one twice changes nothing.

mod read;

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::answers::{Answer, Token};
use crate::table::{Change, LANES};

pub(crate) use read::{first_group, read_segment};

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
        /// The fault: expected and found content.
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
    /// The answer to a request with a token; the tick is in seconds of the window's time.
    Answered { token: Token, answer: Answer },
    /// Milliseconds that the wall clock is ahead of the window's time.
    WallOffset(i64),
}

const CHANGES: u8 = 1;
const FORGOTTEN: u8 = 2;
const ANSWERED: u8 = 3;
const WALL_OFFSET: u8 = 4;

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
    into.extend_from_slice(&answer.seconds.to_le_bytes());
    into.extend_from_slice(&(answer.counts.len() as u32).to_le_bytes());
    into.extend_from_slice(&token.0);
    into.extend_from_slice(&answer.request);
    for count in answer.counts.iter() {
        into.extend_from_slice(&count.to_le_bytes());
    }
}

/// Appends a frame with the offset of the wall clock.
pub(crate) fn encode_wall_offset(into: &mut Vec<u8>, millis: i64) {
    into.push(WALL_OFFSET);
    into.extend_from_slice(&millis.to_le_bytes());
    into.extend_from_slice(&0_u32.to_le_bytes());
}

/// Takes the first frame off a payload; `None` if it is not one.
pub(crate) fn decode(payload: &mut &[u8], lanes: usize) -> Option<Frame> {
    let kind = take::<1>(payload)?[0];
    let tick = u64::from_le_bytes(take(payload)?);
    let records = u32::from_le_bytes(take(payload)?) as usize;
    Some(match kind {
        CHANGES | FORGOTTEN => {
            let bytes = split(payload, records.checked_mul(SLOT_BYTES + 4 * lanes)?)?;
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
            let token = Token(take(payload)?);
            let request = take(payload)?;
            let counts = split(payload, records.checked_mul(2)?)?;
            let counts = counts.chunks_exact(2).map(|two| u16::from_le_bytes([two[0], two[1]]));
            let counts = counts.collect();
            Frame::Answered { token, answer: Answer { seconds: tick, ticket: 0, request, counts } }
        }
        WALL_OFFSET if records == 0 => Frame::WallOffset(tick as i64),
        _ => return None,
    })
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
    /// Bytes that are durable.
    bytes: u64,
    #[cfg(test)]
    fails_sync: bool,
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
        let bytes = HEADER_BYTES as u64;
        Ok(Self {
            file,
            number,
            next_group,
            bytes,
            #[cfg(test)]
            fails_sync: false,
        })
    }

    /// Appends a group and makes it durable. An error makes the segment unusable; the next one
    /// begins with the same group number.
    pub(crate) fn append(&mut self, payload: &[u8]) -> io::Result<()> {
        let appended = self.write_group(payload);
        if appended.is_ok() {
            self.next_group += 1;
            self.bytes += (GROUP_HEADER + payload.len()) as u64;
        } else {
            // It may be whole in the page cache, and a start before the next segment would replay
            // what was refused.
            let _ = self.file.set_len(self.bytes).and_then(|()| self.file.sync_data());
        }
        appended
    }

    fn write_group(&mut self, payload: &[u8]) -> io::Result<()> {
        let mut header = [0; GROUP_HEADER];
        header[..4].copy_from_slice(&GROUP_MAGIC.to_le_bytes());
        header[4..8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        header[8..16].copy_from_slice(&self.next_group.to_le_bytes());
        let crc = group_crc(&header[..16], payload);
        header[16..].copy_from_slice(&crc.to_le_bytes());
        self.file.write_all(&header)?;
        self.file.write_all(payload)?;
        #[cfg(test)]
        if self.fails_sync {
            return Err(io::ErrorKind::Other.into());
        }
        self.file.sync_data()
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

#[cfg(test)]
mod tests;
