//! Replica: a window as it is in the store, built from a table and segments.
//!
//! A standby follows the segments with one, and an owner begins with one: see `take_over`.

use std::io::Read;

use rtad_core::random;

use crate::answers::Answers;
use crate::error::OpenError;
use crate::head::{Identity, Shape};
use crate::image;
use crate::log::{Frame, take_frame};
use crate::segment::Segment;
use crate::window::Window;

/// A segment that was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its number.
    pub number: u64,
    /// Random number of the take-over of its owner.
    pub owner: u64,
    /// Whether the owner has stopped: anybody may take over at once.
    pub is_released: bool,
    /// Number of its groups; an idle owner creates segments without one.
    pub groups: u64,
}

/// Size of the log since the last table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogSize {
    pub bytes: u64,
    pub segments: u64,
}

/// End of the segments that were applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Newest {
    pub number: u64,
    pub owner: u64,
    pub is_released: bool,
    /// Number of the next group.
    pub next_group: u64,
}

/// A window as it is in the store.
pub struct Replica {
    pub(crate) shape: Shape,
    pub(crate) identity: Identity,
    pub(crate) window: Window,
    pub(crate) answers: Answers,
    /// `None` before the first segment.
    pub(crate) newest: Option<Newest>,
    pub(crate) log: LogSize,
}

impl Replica {
    /// A window without a segment: of a store that has no table of it.
    ///
    /// # Errors
    ///
    /// A value of the spec is out of range, or there is no memory for the table.
    pub fn empty(shape: Shape) -> Result<Self, OpenError> {
        let window = Window::new(shape.spec, 0)?;
        let identity = Identity {
            id: random::number(),
            spec: shape.spec,
            secret: *window.secret(),
            clock: shape.clock.clone(),
        };
        Ok(Self {
            identity,
            window,
            answers: Answers::new(shape.answers),
            newest: None,
            log: LogSize::default(),
            shape,
        })
    }

    /// A window as a table has it. The segments from [`next_segment`](Self::next_segment) on
    /// complete it. Reads in small pieces.
    ///
    /// # Errors
    ///
    /// The table cannot be read, is damaged, or of another shape.
    pub fn from_table(shape: Shape, table: impl Read) -> Result<Self, OpenError> {
        shape.spec.validate()?;
        let image = image::read(&shape, table)?;
        let head = image.head;
        let newest = Newest {
            number: head.number - 1,
            owner: head.owner,
            is_released: false,
            next_group: head.first_group,
        };
        Ok(Self {
            identity: Identity {
                spec: shape.spec,
                ..head.window
            },
            window: image.window,
            answers: image.answers,
            newest: Some(newest),
            log: LogSize::default(),
            shape,
        })
    }

    /// Number of the segment to apply next.
    pub fn next_segment(&self) -> u64 {
        self.newest.map_or(1, |newest| newest.number + 1)
    }

    /// Whether the window has no segment.
    pub const fn is_new(&self) -> bool {
        self.newest.is_none()
    }

    /// Whether the owner has stopped: anybody may take over at once.
    pub fn is_released(&self) -> bool {
        self.newest.is_some_and(|newest| newest.is_released)
    }

    /// Random number of the owner: that of the newest segment. `None` for a new window.
    pub fn owner(&self) -> Option<u64> {
        self.newest.map(|newest| newest.owner)
    }

    /// Applies the next segment. All of it is checked before anything is changed.
    ///
    /// # Errors
    ///
    /// The segment is damaged, does not continue the ones before, or belongs to another window. The
    /// replica is of no use then.
    pub fn apply(&mut self, bytes: &[u8]) -> Result<SegmentInfo, OpenError> {
        let number = self.next_segment();
        let object = format!("segment {number}");
        let segment = Segment::read(&object, bytes)?;
        self.check(&object, &segment)?;

        if self.is_new() {
            self.identity = Identity {
                spec: self.shape.spec,
                ..segment.head.window.clone()
            };
            self.window.set_secret(self.identity.secret);
        }
        for group in &segment.groups {
            let replayed = replay(&mut self.window, &mut self.answers, group.payload);
            replayed.ok_or_else(|| OpenError::damaged(&object, "a group with unknown content"))?;
        }

        self.newest = Some(Newest {
            number,
            owner: segment.head.owner,
            is_released: segment.head.is_released,
            next_group: segment.next_group(),
        });
        self.log.bytes += segment.group_bytes.len() as u64;
        self.log.segments += 1;
        Ok(SegmentInfo {
            number,
            owner: segment.head.owner,
            is_released: segment.head.is_released,
            groups: segment.groups.len() as u64,
        })
    }

    fn check(&self, object: &str, segment: &Segment<'_>) -> Result<(), OpenError> {
        let damaged = |what| Err(OpenError::damaged(object, what));
        let head = &segment.head;
        head.window.check(object, &self.shape)?;
        if head.number != self.next_segment() {
            return damaged("a segment under the number of another");
        }
        let is_of_window =
            head.window.id == self.identity.id && head.window.secret == self.identity.secret;
        if !self.is_new() && !is_of_window {
            return damaged("a segment of another window");
        }
        if head.first_group != self.newest.map_or(1, |newest| newest.next_group) {
            return damaged("the segment does not continue the one before");
        }
        if !segment.rest.is_empty() {
            return damaged("a broken group");
        }
        Ok(())
    }
}

/// Replays the frames of a group; `None` if it has other content.
fn replay(window: &mut Window, answers: &mut Answers, mut payload: &[u8]) -> Option<()> {
    while !payload.is_empty() {
        match take_frame(&mut payload, window.lanes())? {
            Frame::Changes {
                tick,
                changes,
                is_forget,
            } => window.replay(tick, changes.iter(), is_forget)?,
            Frame::Answered {
                request_key,
                answer,
            } => answers.insert(request_key, answer),
        }
    }
    Some(())
}

#[cfg(test)]
mod tests;
