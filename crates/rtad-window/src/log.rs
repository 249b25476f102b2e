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
//!           of answers: count u16, after the request key and the digest of the request
//!           of answers without counts: one bit, `records` of them in whole bytes
//!           of a sync none: the tick is the number of the first group that may not be durable
//! ```
//!
//! All numbers are little-endian. A group is written with one write, and a torn end of the log is
//! cut. A group was durable before a later one was written, unless that one begins with a frame of
//! a sync and says otherwise. A broken group that was durable once is damage, and the log is
//! refused. Records are contents, not events: replaying one twice changes nothing. A segment
//! continues the one before.

mod read;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rtad_core::files::sync_dir;

use crate::answers::{Answer, Outcomes, RequestKey};
use crate::disk::{Disk, DiskFile};
use crate::table::{Change, LANES};

pub use read::read_segment;

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
pub enum Frame {
    /// Slots after events.
    Changes { tick: u64, changes: Vec<Change> },
    /// Erased entries.
    Forgotten { tick: u64, changes: Vec<Change> },
    /// The answer to a request with a request key; the tick is in seconds of the window's time.
    Answered {
        request_key: RequestKey,
        answer: Answer,
    },
    /// Groups before this number were durable when the group was written; later ones perhaps not.
    Synced(u64),
}

const CHANGES: u8 = 1;
const FORGOTTEN: u8 = 2;
const ANSWERED: u8 = 3;
const ANSWERED_NEWS: u8 = 4;
const SYNCED: u8 = 5;

/// A group that is being filled with frames.
#[derive(Debug, Clone)]
pub struct LogGroup {
    /// Header and payload.
    bytes: Vec<u8>,
    /// Bytes of an empty group.
    empty_bytes: usize,
    /// Bytes of answers.
    pub(crate) answer_bytes: u64,
}

impl LogGroup {
    pub fn new() -> Self {
        Self {
            bytes: vec![0; GROUP_HEADER],
            empty_bytes: GROUP_HEADER,
            answer_bytes: 0,
        }
    }

    /// A group that may be written while groups from this number on are not durable.
    pub fn after_sync(number: u64) -> Self {
        let mut group = Self::new();
        group.bytes.push(SYNCED);
        group.bytes.extend_from_slice(&number.to_le_bytes());
        group.bytes.extend_from_slice(&0_u32.to_le_bytes());
        group.empty_bytes = group.bytes.len();
        group
    }

    pub const fn is_empty(&self) -> bool {
        self.bytes.len() == self.empty_bytes
    }

    /// Bytes of the payload.
    pub const fn payload_bytes(&self) -> u64 {
        (self.bytes.len() - GROUP_HEADER) as u64
    }

    /// Appends a frame of slot contents.
    pub fn add_changes(&mut self, tick: u64, changes: &[Change], lanes: usize, is_forgotten: bool) {
        let into = &mut self.bytes;
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
    pub fn add_answer(&mut self, request_key: &RequestKey, answer: &Answer) {
        let before = self.bytes.len();
        let into = &mut self.bytes;
        let (kind, records) = match &answer.outcomes {
            Outcomes::News { events, .. } => (ANSWERED_NEWS, *events),
            Outcomes::Counts(counts) => (ANSWERED, counts.len() as u32),
        };
        into.push(kind);
        into.extend_from_slice(&answer.seconds.to_le_bytes());
        into.extend_from_slice(&records.to_le_bytes());
        into.extend_from_slice(&request_key.0);
        into.extend_from_slice(&answer.request);
        match &answer.outcomes {
            Outcomes::News { bits, .. } => into.extend_from_slice(bits),
            Outcomes::Counts(counts) => {
                into.extend(counts.iter().flat_map(|count| count.to_le_bytes()));
            }
        }
        self.answer_bytes += (self.bytes.len() - before) as u64;
    }

    /// Completes the header.
    fn seal(&mut self, number: u64) {
        let (header, payload) = self.bytes.split_at_mut(GROUP_HEADER);
        header[..4].copy_from_slice(&GROUP_MAGIC.to_le_bytes());
        header[4..8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        header[8..16].copy_from_slice(&number.to_le_bytes());
        let mut crc = crc32fast::Hasher::new();
        crc.update(&header[..16]);
        crc.update(payload);
        header[16..].copy_from_slice(&crc.finalize().to_le_bytes());
    }
}

/// Takes the first frame off a payload; `None` if it is not one.
pub fn decode(payload: &mut &[u8], lanes: usize) -> Option<Frame> {
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
                Change {
                    slot: u64::from_le_bytes(slot),
                    words,
                }
            });
            let changes = record.collect();
            match kind {
                CHANGES => Frame::Changes { tick, changes },
                _ => Frame::Forgotten { tick, changes },
            }
        }
        ANSWERED => {
            let request_key = RequestKey(take(payload)?);
            let request = take(payload)?;
            let counts = split(payload, records.checked_mul(2)?)?;
            let counts = counts
                .chunks_exact(2)
                .map(|two| u16::from_le_bytes([two[0], two[1]]));
            let outcomes = Outcomes::Counts(counts.collect());
            Frame::Answered {
                request_key,
                answer: Answer {
                    seconds: tick,
                    request,
                    outcomes,
                },
            }
        }
        ANSWERED_NEWS => {
            let request_key = RequestKey(take(payload)?);
            let request = take(payload)?;
            let bits = split(payload, records.div_ceil(8))?.into();
            let outcomes = Outcomes::News {
                events: records as u32,
                bits,
            };
            Frame::Answered {
                request_key,
                answer: Answer {
                    seconds: tick,
                    request,
                    outcomes,
                },
            }
        }
        SYNCED if records == 0 => Frame::Synced(tick),
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
pub fn segment_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("log-{number:016}"))
}

/// Segment being written.
pub struct Segment {
    file: DiskFile,
    pub(crate) number: u64,
    /// Number of the next group.
    pub(crate) next_group: u64,
    /// Bytes of whole groups.
    bytes: u64,
    /// Bytes of the last group.
    last_bytes: u64,
}

impl Segment {
    /// Creates a durable segment without groups.
    pub fn create(
        disk: &Arc<dyn Disk>,
        dir: &Path,
        id: u64,
        number: u64,
        first_group: u64,
    ) -> io::Result<Self> {
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend_from_slice(&SEGMENT_MAGIC);
        header.extend_from_slice(&VERSION.to_le_bytes());
        header.extend_from_slice(&id.to_le_bytes());
        header.extend_from_slice(&number.to_le_bytes());
        header.extend_from_slice(&first_group.to_le_bytes());
        let crc = crc32fast::hash(&header);
        header.extend_from_slice(&crc.to_le_bytes());
        let path = segment_path(dir, number);
        let (aside, mut file) = DiskFile::create(disk, path.with_extension("tmp"))?;
        file.write_all(&header)?;
        file.sync()?;
        aside.publish(&path)?;
        sync_dir(dir)?;
        Ok(Self {
            file,
            number,
            next_group: first_group,
            bytes: HEADER_BYTES as u64,
            last_bytes: 0,
        })
    }

    /// Writes a group. After an error nothing of it is left, if the disk allows that.
    pub fn append(&mut self, group: &mut LogGroup) -> io::Result<()> {
        group.seal(self.next_group);
        if let Err(error) = self.file.write_all(&group.bytes) {
            self.cut(self.bytes);
            return Err(error);
        }
        self.next_group += 1;
        self.last_bytes = group.bytes.len() as u64;
        self.bytes += self.last_bytes;
        Ok(())
    }

    /// Makes all groups durable.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    /// A handle with which another thread may sync.
    pub fn file(&self) -> io::Result<DiskFile> {
        self.file.try_clone()
    }

    /// Removes the last group, which was refused after a failed sync: it may be whole in the page
    /// cache, and the next start would replay it.
    pub fn remove_last(&mut self) {
        self.next_group -= 1;
        self.bytes -= std::mem::take(&mut self.last_bytes);
        self.cut(self.bytes);
    }

    fn cut(&self, bytes: u64) {
        // The next start counts what is left after an error.
        let _ = self
            .file
            .file
            .set_len(bytes)
            .and_then(|()| self.file.sync());
    }
}

#[cfg(test)]
mod tests;
