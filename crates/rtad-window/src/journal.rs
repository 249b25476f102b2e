//! Journal of an owner: groups, segments, and when a request may be answered.
//!
//! # Durability
//!
//! **Segments.** Segment n + 1 is created only after segment n, by whoever has read n, and only if
//! it does not exist. So segments are one history, whoever creates them. The owner is who created
//! the newest one. An owner that finds another segment under its next number has lost the window:
//! it answers nothing more.
//!
//! **`store`.** Each group is a segment. Its requests are answered once it is created: then all
//! before it is in the history too, and no owner that follows can be without it. One group is on
//! its way at a time, and 20 ms pass before the next one; requests queue meanwhile. So a directory,
//! which takes a segment in a millisecond, gets fewer and larger ones.
//!
//! **`disk`.** Each group is written to the local log and synced before its requests are answered.
//! The segment follows half a second after its first group, once the one before is created, or at
//! 8 MB: a slow store gets fewer and larger segments. The local log of segment n is removed once
//! the segment is created, and the next owner with the same directory takes the rest over. Without
//! the directory, groups that were in no segment are lost: of 10 seconds at most, as an owner with
//! older ones refuses requests.
//!
//! **Time.** A standby takes over if it has seen no new segment for 15 seconds. An owner refuses
//! requests if its newest created segment was *sent* more than 10 seconds ago, by a clock that goes
//! on while the process or the machine is stopped. It looks at this clock after each group, before
//! it answers. So a process that was paused answers nothing before it has created a segment.
//! A virtual machine that is suspended with this clock shows that when its wall clock is set ahead,
//! and then its owner refuses, too.
//! An idle owner creates a segment without groups every 5 seconds. In `store`, the answers of a
//! group with changes do not need this: their segment is created.
//!
//! **Removal.** Segments before the newest table are removed, which makes their numbers free again.
//! A process that was away so long must not become the owner by one of them. So the caller takes a
//! created take-over for its own only if it knew the segment before as the newest a short time ago,
//! or if a list of the segments then has no later one. An owner gives the window up if its newest
//! created segment was sent more than 10 minutes ago, or if an answer of the store took as long;
//! segments are removed half an hour after they were created at the earliest.
//!
//! **Failures.** A write or sync that fails ends the process, which leaves the local log as it is.
//! Events without an answer may be in it, or not.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::head::Identity;
use crate::local_log::LocalLog;
use crate::log::LogGroup;
use crate::outbox::{Outgoing, Sealed, Shipping};
use crate::replica::{LogSize, Replica};
use crate::segment::{SegmentHead, mark};
use crate::table_copy::LogEnd;
use crate::take_over::Durability;

/// Time from the first group of a segment to its end.
const SEGMENT_TIME: Duration = Duration::from_millis(500);
/// Bytes of groups after which a segment ends.
const SEGMENT_BYTES: usize = 8 << 20;
/// Least time between the segments of two groups in `store`. A start reads each of them.
const GROUP_SPACING: Duration = Duration::from_millis(20);
/// Time from a segment to the next one without groups.
const IDLE_SEGMENT: Duration = Duration::from_secs(5);

pub struct Journal {
    window: Identity,
    owner: u64,
    /// Number of the open segment.
    number: u64,
    /// Head and groups of the open segment. In `store`, nothing until it is sealed: a machine that
    /// is copied before must draw another mark.
    open: Vec<u8>,
    /// Bytes of its head.
    head_bytes: usize,
    /// Number of the next group.
    next_group: u64,
    /// When the first group of the open segment was written.
    open_since: Option<Duration>,
    last_sealed_at: Duration,
    /// When the last group was written.
    last_group_at: Option<Duration>,
    /// Number of the newest segment with groups. In `store`, its answers wait for it.
    last_with_groups: u64,
    /// `None`: an answer waits for its segment.
    local: Option<LocalLog>,
    shipping: Arc<Shipping>,
    /// Since the last table.
    log: LogSize,
    is_finishing: bool,
}

impl Journal {
    /// Begins the first open segment after those of the take-over, which are applied. `rest` are
    /// the ones that are not created yet.
    ///
    /// # Errors
    ///
    /// The local log cannot be written.
    pub fn begin(
        replica: &Replica,
        rest: Vec<Bytes>,
        durability: Durability,
        shipping: Arc<Shipping>,
    ) -> io::Result<Self> {
        let newest = replica.newest.expect("a take-over is a segment");
        let number = newest.number + 1;
        let first_rest = number - rest.len() as u64;
        let mut journal = Self {
            window: replica.identity.clone(),
            owner: newest.owner,
            number,
            open: Vec::new(),
            head_bytes: 0,
            next_group: newest.next_group,
            open_since: None,
            last_sealed_at: shipping.now(),
            last_group_at: None,
            last_with_groups: newest.number,
            local: None,
            shipping,
            log: replica.log,
            is_finishing: false,
        };
        if let Durability::Disk(dir) = durability {
            let head = journal.head(false);
            journal.begin_open(&head);
            let mut taken_over = Vec::new();
            for (number, bytes) in (first_rest..).zip(&rest) {
                taken_over.push((number, &bytes[..]));
            }
            journal.local = Some(LocalLog::begin(dir, &taken_over, &head, &journal.open)?);
        }
        let now = journal.shipping.now();
        for (number, bytes) in (first_rest..).zip(rest) {
            let outgoing = Outgoing {
                number,
                bytes,
                is_last: false,
            };
            journal.shipping.add(Sealed {
                outgoing,
                since: Some(now),
            });
        }
        Ok(journal)
    }

    fn head(&self, is_released: bool) -> SegmentHead {
        SegmentHead {
            number: self.number,
            owner: self.owner,
            mark: mark(),
            is_released,
            first_group: self.next_group,
            window: self.window.clone(),
        }
    }

    fn begin_open(&mut self, head: &SegmentHead) {
        self.open = head.encode();
        self.head_bytes = self.open.len();
    }

    pub const fn shipping(&self) -> &Arc<Shipping> {
        &self.shipping
    }

    pub const fn window(&self) -> &Identity {
        &self.window
    }

    pub const fn owner(&self) -> u64 {
        self.owner
    }

    /// Number of the next group.
    pub const fn next_group(&self) -> u64 {
        self.next_group
    }

    /// Size of the log since the last table.
    pub const fn log(&self) -> LogSize {
        self.log
    }

    /// A table without the newest part of the log was completed; `before` is the older part.
    pub const fn forget_before(&mut self, before: LogSize) {
        self.log.bytes -= before.bytes;
        self.log.segments -= before.segments;
    }

    const fn has_groups(&self) -> bool {
        self.open.len() > self.head_bytes
    }

    /// Writes a group.
    ///
    /// # Errors
    ///
    /// The local log cannot be written.
    pub fn commit(&mut self, group: &mut LogGroup) -> io::Result<()> {
        if self.open.is_empty() {
            self.begin_open(&self.head(false));
        }
        let bytes = group.seal(self.next_group);
        self.open.extend_from_slice(bytes);
        self.log.bytes += bytes.len() as u64;
        self.next_group += 1;
        if let Some(local) = &mut self.local {
            local.append(bytes)?;
        }

        self.last_with_groups = self.number;
        let now = self.shipping.now();
        self.last_group_at = Some(now);
        self.open_since.get_or_insert(now);
        self.shipping.set_open_since(now);
        if self.local.is_none() {
            self.seal()?;
        }
        Ok(())
    }

    /// Whether the last group is as durable as its answers must be.
    pub fn is_durable(&self) -> bool {
        self.local.is_some() || self.is_created(self.last_with_groups)
    }

    /// Time until requests of the next group may be taken: in `store`, it is a segment.
    pub fn pause(&self) -> Duration {
        match self.last_group_at {
            Some(at) if self.local.is_none() => {
                (at + GROUP_SPACING).saturating_sub(self.shipping.now())
            }
            _ => Duration::ZERO,
        }
    }

    fn is_created(&self, number: u64) -> bool {
        self.shipping.progress().created >= number
    }

    /// Whether requests may be applied and answered.
    pub fn is_fresh(&self) -> bool {
        self.shipping.progress().is_fresh
    }

    /// Whether the answers of a durable group may be sent.
    pub fn may_answer(&self, has_changes: bool) -> bool {
        let is_in_store = self.local.is_none() && has_changes;
        is_in_store || self.is_fresh()
    }

    /// The segments that a copy of the table must wait for.
    pub fn log_end(&self) -> LogEnd {
        LogEnd {
            last_with_groups: self.last_with_groups,
            created: self.shipping.progress().created,
        }
    }

    /// Ends the open segment if it has groups; returns the number of the next one.
    ///
    /// # Errors
    ///
    /// The local log cannot be written.
    pub fn begin_segment(&mut self) -> io::Result<u64> {
        if self.has_groups() {
            self.seal()?;
        }
        Ok(self.number)
    }

    /// Hands the open segment to the shipper, and begins the next one.
    fn seal(&mut self) -> io::Result<()> {
        if self.open.is_empty() {
            self.begin_open(&self.head(false));
        }
        let bytes = std::mem::take(&mut self.open);
        self.head_bytes = 0;
        self.send(bytes, false);
        self.number += 1;
        if self.local.is_some() {
            self.begin_open(&self.head(false));
        }
        if let Some(local) = &mut self.local {
            local.begin_next(self.number, &self.open)?;
        }
        Ok(())
    }

    fn send(&mut self, bytes: Vec<u8>, is_last: bool) {
        let outgoing = Outgoing {
            number: self.number,
            bytes: bytes.into(),
            is_last,
        };
        let since = self.open_since.take();
        self.shipping.add(Sealed { outgoing, since });
        self.last_sealed_at = self.shipping.now();
        self.log.segments += 1;
    }

    /// Time until `keep_up` has work.
    pub fn due(&self) -> Duration {
        if self.is_finishing {
            // The shipper wakes the engine.
            return IDLE_SEGMENT;
        }
        if self.open.len() >= SEGMENT_BYTES {
            return Duration::ZERO;
        }

        let progress = self.shipping.progress();
        if progress.created < self.number - 1 {
            // One at a time: the store may be away, or slower than segments become due. The shipper
            // wakes the engine.
            return IDLE_SEGMENT;
        }
        if !progress.is_fresh {
            // Only a created segment shows that this process is still the owner.
            return Duration::ZERO;
        }
        let segment_due = match self.open_since {
            Some(since) => since + SEGMENT_TIME,
            None => self.last_sealed_at + IDLE_SEGMENT,
        };
        segment_due.saturating_sub(self.shipping.now())
    }

    /// Ends the open segment if it is due, and removes local logs that the store has.
    ///
    /// # Errors
    ///
    /// The ownership is lost, or the local log cannot be written.
    pub fn keep_up(&mut self) -> io::Result<()> {
        self.shipping.check_owned()?;
        let created = self.shipping.progress().created;
        if let Some(local) = &mut self.local {
            local.remove_through(created);
        }
        if self.due().is_zero() {
            self.seal()?;
        }
        Ok(())
    }

    /// Hands the rest to the shipper, and gives the window back.
    ///
    /// # Errors
    ///
    /// The local log cannot be written.
    pub fn finish(&mut self) -> io::Result<()> {
        if self.is_finishing {
            return Ok(());
        }
        self.begin_segment()?;
        let released = self.head(true).encode();
        self.send(released, true);
        self.is_finishing = true;
        Ok(())
    }

    /// Whether the last segment is created.
    pub fn is_finished(&self) -> bool {
        self.is_finishing && self.is_created(self.number)
    }

    /// For messages.
    pub fn dir(&self) -> Option<String> {
        let local = self.local.as_ref()?;
        Some(local.dir().path().display().to_string())
    }

    /// Bytes of the segment that has the last group.
    #[cfg(test)]
    pub fn last_segment_with_groups(&self) -> Bytes {
        if self.has_groups() {
            return self.open.clone().into();
        }
        self.shipping.last_with_groups()
    }
}
