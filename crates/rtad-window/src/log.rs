//! Groups of a window's log: slot contents and answers.
//!
//! ```text
//! group     magic u32, payload bytes u32, group number u64,
//!           crc u32 (of all three and the payload), payload: frames
//! frame     kind u8, tick u64, records u32, then the records
//! record    of changes and erasures: slot u48, lanes u32 each
//!           of answers: count u16, after the request key and the digest of the request
//!           of answers without counts: one bit, `records` of them in whole bytes
//! ```
//!
//! All numbers are little-endian. Records are contents, not events: replaying one twice changes
//! nothing.

use crate::answers::{Answer, Outcomes, RequestKey};
use crate::table::{Change, LANES};

const GROUP_MAGIC: u32 = 0x5747_5452;
pub const GROUP_HEADER: usize = 20;
const FRAME_HEADER: usize = 13;
const SLOT_BYTES: usize = 6;

const CHANGES: u8 = 1;
const FORGOTTEN: u8 = 2;
const ANSWERED: u8 = 3;
const ANSWERED_NEWS: u8 = 4;

/// Content of a frame.
#[derive(Debug, Clone, PartialEq)]
pub enum Frame<'a> {
    /// Slots after events, or erased entries.
    Changes {
        tick: u64,
        changes: Changes<'a>,
        is_forget: bool,
    },
    /// The answer to a request with a request key; the tick is in seconds of the window's time.
    Answered {
        request_key: RequestKey,
        answer: Answer,
    },
}

/// Records of slots, as they are in the log.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Changes<'a> {
    bytes: &'a [u8],
    lanes: usize,
}

impl<'a> Changes<'a> {
    pub const fn len(&self) -> usize {
        self.bytes.len() / record_bytes(self.lanes)
    }

    pub fn iter(&self) -> impl Iterator<Item = Change> + use<'a> {
        let records = self.bytes.chunks_exact(record_bytes(self.lanes));
        records.map(change)
    }
}

const fn record_bytes(lanes: usize) -> usize {
    SLOT_BYTES + 4 * lanes
}

fn change(record: &[u8]) -> Change {
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
}

/// A group that is being filled with frames.
#[derive(Debug, Clone)]
pub struct LogGroup {
    /// Header and payload.
    bytes: Vec<u8>,
}

impl LogGroup {
    pub fn new() -> Self {
        Self {
            bytes: vec![0; GROUP_HEADER],
        }
    }

    pub const fn is_empty(&self) -> bool {
        self.bytes.len() == GROUP_HEADER
    }

    /// Appends a frame of slot contents.
    pub fn add_changes(&mut self, tick: u64, changes: &[Change], lanes: usize, is_forget: bool) {
        let into = &mut self.bytes;
        into.reserve(FRAME_HEADER + changes.len() * record_bytes(lanes));
        into.push(if is_forget { FORGOTTEN } else { CHANGES });
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
        encode_answer(request_key, answer, &mut self.bytes);
    }

    /// Completes the header; returns all of the group.
    pub fn seal(&mut self, number: u64) -> &[u8] {
        let (header, payload) = self.bytes.split_at_mut(GROUP_HEADER);
        header[..4].copy_from_slice(&GROUP_MAGIC.to_le_bytes());
        header[4..8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        header[8..16].copy_from_slice(&number.to_le_bytes());
        let crc = group_crc(header, payload);
        header[16..].copy_from_slice(&crc.to_le_bytes());
        &self.bytes
    }
}

/// Appends a frame with the answer to a request.
pub fn encode_answer(request_key: &RequestKey, answer: &Answer, into: &mut Vec<u8>) {
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
}

fn group_crc(header: &[u8], payload: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&header[..16]);
    crc.update(payload);
    crc.finalize()
}

/// A valid group of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group<'a> {
    pub number: u64,
    /// Frames.
    pub payload: &'a [u8],
}

/// Takes a group off a log; `None` if it does not begin with a valid one.
pub fn take_group<'a>(log: &mut &'a [u8]) -> Option<Group<'a>> {
    let mut rest = *log;
    let header = split(&mut rest, GROUP_HEADER)?;
    let mut fields = header;
    let magic = u32::from_le_bytes(take(&mut fields)?);
    let bytes = u32::from_le_bytes(take(&mut fields)?);
    let number = u64::from_le_bytes(take(&mut fields)?);
    let crc = u32::from_le_bytes(take(&mut fields)?);
    if magic != GROUP_MAGIC {
        return None;
    }
    let payload = split(&mut rest, bytes as usize)?;
    if crc != group_crc(header, payload) {
        return None;
    }
    *log = rest;
    Some(Group { number, payload })
}

/// Whether a valid group of a later number is anywhere in the bytes after a broken group.
pub fn has_later_group(log: &[u8], number: u64) -> bool {
    let magic = GROUP_MAGIC.to_le_bytes();
    for at in 1..log.len().saturating_sub(GROUP_HEADER - 1) {
        if log[at..at + magic.len()] == magic {
            let later = take_group(&mut &log[at..]);
            if later.is_some_and(|group| group.number > number) {
                return true;
            }
        }
    }
    false
}

/// Takes the first frame off a payload; `None` if it is not one.
pub fn take_frame<'a>(payload: &mut &'a [u8], lanes: usize) -> Option<Frame<'a>> {
    let kind = take::<1>(payload)?[0];
    let tick = u64::from_le_bytes(take(payload)?);
    let records = u32::from_le_bytes(take(payload)?) as usize;
    if let CHANGES | FORGOTTEN = kind {
        let bytes = split(payload, records.checked_mul(record_bytes(lanes))?)?;
        return Some(Frame::Changes {
            tick,
            changes: Changes { bytes, lanes },
            is_forget: kind == FORGOTTEN,
        });
    }

    let request_key = RequestKey(take(payload)?);
    let request = take(payload)?;
    let outcomes = match kind {
        ANSWERED => {
            let counts = split(payload, records.checked_mul(2)?)?;
            let counts = counts.as_chunks().0.iter();
            Outcomes::Counts(counts.map(|two| u16::from_le_bytes(*two)).collect())
        }
        ANSWERED_NEWS => Outcomes::News {
            events: records as u32,
            bits: split(payload, records.div_ceil(8))?.into(),
        },
        _ => return None,
    };
    Some(Frame::Answered {
        request_key,
        answer: Answer {
            seconds: tick,
            request,
            outcomes,
        },
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

#[cfg(test)]
mod tests;
