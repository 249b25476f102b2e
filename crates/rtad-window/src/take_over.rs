//! Take-over: the segment that makes a process the owner.
//!
//! The owner of a window is who created its newest segment. A take-over is the next segment, with a
//! new random owner. Its groups are those that this process' directory has and the store has not,
//! if the directory's owner created the newest segment. So of two processes with copies of one
//! directory only one brings its groups in; the other finds a segment of another owner.

use std::time::Duration;

use bytes::Bytes;
use rtad_core::clock::uptime;
use rtad_core::random;

use crate::error::OpenError;
use crate::local_log::{TailLog, drop_tail, read_tail};
use crate::replica::Replica;
use crate::segment::{SegmentHead, mark};
use crate::state_dir::StateDir;

/// When an event is safe.
pub enum Durability {
    /// Before it is acknowledged, on the disk of this machine; a moment later, in the store.
    Disk(StateDir),
    /// Before it is acknowledged, in the store.
    Store,
}

impl Durability {
    /// The directory, if events are kept in one.
    pub(crate) const fn dir(&self) -> Option<&StateDir> {
        match self {
            Self::Disk(dir) => Some(dir),
            Self::Store => None,
        }
    }
}

/// A segment that makes this process the owner, once it is created.
pub struct TakeOver {
    /// Number of the segment.
    pub number: u64,
    /// Content of the segment.
    pub bytes: Bytes,
    /// Further segments with groups of the directory, which follow.
    pub(crate) rest: Vec<Bytes>,
    /// When it was made: a standby may have seen it from then on.
    pub(crate) made_at: Duration,
}

impl TakeOver {
    /// Whether a segment that was found under the number is this one: the store's answer was lost.
    pub fn is_ours(&self, found: &[u8]) -> bool {
        self.bytes == found
    }
}

impl Replica {
    /// Whether this process need not wait: the window is new or released, or its owner was an
    /// earlier process with this directory, which is locked.
    ///
    /// # Errors
    ///
    /// The directory cannot be read.
    pub fn may_take_over_at_once(&self, durability: &Durability) -> Result<bool, OpenError> {
        let Some(newest) = self.newest else {
            return Ok(true);
        };
        Ok(newest.is_released || is_own(durability, newest.owner)?)
    }

    /// The segment with which this process takes the window over. If another process creates one of
    /// its number first, apply that one, and make another take-over.
    ///
    /// Groups of the directory that belong to another history are removed, with a warning.
    ///
    /// # Errors
    ///
    /// The directory cannot be read or written, is damaged, or belongs to another store.
    pub fn take_over(&self, durability: &Durability) -> Result<TakeOver, OpenError> {
        self.take_over_as(durability, random::number(), uptime())
    }

    /// A take-over by a given owner, at a time.
    pub(crate) fn take_over_as(
        &self,
        durability: &Durability,
        owner: u64,
        made_at: Duration,
    ) -> Result<TakeOver, OpenError> {
        let mut segments = Vec::new();
        let mut next_group = self.newest.map_or(1, |newest| newest.next_group);
        if let Some(dir) = durability.dir() {
            let tail = self.prepare(dir, owner)?;
            for log in tail {
                let number = self.next_segment() + segments.len() as u64;
                let mut bytes = self.head(owner, number, log.first_group).encode();
                bytes.extend_from_slice(&log.groups);
                segments.push(Bytes::from(bytes));
                next_group = log.first_group;
            }
        }
        if segments.is_empty() {
            let head = self.head(owner, self.next_segment(), next_group);
            segments.push(head.encode().into());
        }

        let rest = segments.split_off(1);
        let bytes = segments.remove(0);
        Ok(TakeOver {
            number: self.next_segment(),
            bytes,
            rest,
            made_at,
        })
    }

    /// Writes the next owner, and reads the groups that it takes over.
    fn prepare(&self, dir: &StateDir, owner: u64) -> Result<Vec<TailLog>, OpenError> {
        let io = |source| OpenError::Io {
            path: dir.path().to_owned(),
            source,
        };
        let mut owners = dir.owners().map_err(io)?;
        let Some(newest) = self.newest else {
            if !dir.logs().map_err(io)?.is_empty() {
                return Err(OpenError::OtherStore {
                    dir: dir.path().to_owned(),
                });
            }
            owners.push(owner);
            dir.set_owners(&owners).map_err(io)?;
            return Ok(Vec::new());
        };

        if !owners.contains(&newest.owner) {
            drop_tail(dir)?;
            dir.set_owners(&[owner]).map_err(io)?;
            return Ok(Vec::new());
        }
        let tail = read_tail(dir, &newest)?;
        // Earlier owners stay until the local logs are rewritten: logs may be theirs, and a segment
        // that they sent may arrive late.
        owners.push(owner);
        dir.set_owners(&owners).map_err(io)?;
        Ok(tail)
    }

    pub(crate) fn head(&self, owner: u64, number: u64, first_group: u64) -> SegmentHead {
        SegmentHead {
            number,
            owner,
            mark: mark(),
            is_released: false,
            first_group,
            window: self.identity.clone(),
        }
    }
}

fn is_own(durability: &Durability, owner: u64) -> Result<bool, OpenError> {
    let Some(dir) = durability.dir() else {
        return Ok(false);
    };
    let owners = dir.owners().map_err(|source| OpenError::Io {
        path: dir.path().to_owned(),
        source,
    })?;
    Ok(owners.contains(&owner))
}
