//! Segments of a window's log: a head and groups.
//!
//! Segment n is created once and never changed. It continues segment n - 1: its groups carry on its
//! numbers. All segments of an owner have the owner's random number; a take-over is a segment of
//! another owner.

use rtad_core::random;
use serde::{Deserialize, Serialize};

use crate::error::OpenError;
use crate::head::{self, Identity};
use crate::log::{Group, take_group};

const MAGIC: [u8; 8] = *b"RTADWSEG";

/// Head of a segment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SegmentHead {
    pub number: u64,
    /// Random number of the take-over.
    pub owner: u64,
    /// Random number of the segment, see [`mark`].
    pub mark: String,
    /// The owner has stopped: anybody may take over at once.
    pub is_released: bool,
    /// Number of the first group, or of the next one if there is none.
    pub first_group: u64,
    pub window: Identity,
}

/// A random number of 16 hexadecimal digits. Copies of a running machine have the same owner, and
/// may count the same events: only by this number one of them finds that a segment is not its own.
pub fn mark() -> String {
    format!("{:016x}", random::number())
}

impl SegmentHead {
    /// A segment without groups.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        head::encode(MAGIC, self, &mut bytes);
        bytes
    }
}

/// A segment or local log that is read.
pub struct Segment<'a> {
    pub head: SegmentHead,
    /// All of the groups.
    pub groups: Vec<Group<'a>>,
    /// Bytes of the valid groups.
    pub group_bytes: &'a [u8],
    /// Bytes after the last valid group.
    pub rest: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Reads the head, and the groups up to the first invalid one.
    ///
    /// # Errors
    ///
    /// The head is damaged, or a group is missing.
    pub fn read(object: &str, bytes: &'a [u8]) -> Result<Self, OpenError> {
        let mut after_head = bytes;
        let head: SegmentHead = head::decode(MAGIC, &mut after_head)
            .map_err(|what| OpenError::damaged(object, what))?;

        let mut groups = Vec::new();
        let mut rest = after_head;
        while let Some(group) = take_group(&mut rest) {
            if group.number != head.first_group + groups.len() as u64 {
                return Err(OpenError::damaged(object, "a group is missing"));
            }
            groups.push(group);
        }
        let group_bytes = &after_head[..after_head.len() - rest.len()];
        Ok(Self {
            head,
            groups,
            group_bytes,
            rest,
        })
    }

    /// Number of the group after the last one.
    pub fn next_group(&self) -> u64 {
        self.head.first_group + self.groups.len() as u64
    }
}
