//! Writer thread: the only one that writes the log.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Durability;
use super::shared::{LogPosition, Queue, Shared, SyncRequest, Undo, WRITE_AT_ONCE};
use crate::log::{Segment, encode_answer};
use crate::sync::guard;

/// Time between attempts to write a log that failed.
const RETRY: Duration = Duration::from_secs(1);
/// Ranges of failed tickets that are remembered.
const MAX_FAILED: usize = 1000;

/// Runs until the window is closed and everything queued is written.
pub(super) fn run(shared: &Shared, segment: Segment) {
    let (number, group, taken_at) = (segment.number, segment.next_group, Instant::now());
    Writer { shared, number, group, segment: Some(segment), taken_at }.run();
}

struct Writer<'a> {
    shared: &'a Shared,
    /// `None` after a failure.
    segment: Option<Segment>,
    /// Number of the last segment.
    number: u64,
    /// Number of the next group.
    group: u64,
    /// Time at which the queue was taken: its earlier content waits since then at most.
    taken_at: Instant,
}

impl Writer<'_> {
    fn run(mut self) {
        let mut held = Queue::default();
        loop {
            self.wait(!held.payload.is_empty());
            // Waits for the events that have changed the table and are not queued yet.
            let order = guard(self.shared.order.write());
            let mut queue = guard(self.shared.queue.lock());
            if held.payload.is_empty() {
                std::mem::swap(&mut held.payload, &mut queue.payload);
            } else {
                held.payload.append(&mut queue.payload);
            }
            held.undo.append(&mut queue.undo);
            held.tickets = queue.tickets;
            queue.taken = queue.tickets;
            self.taken_at = Instant::now();
            held.sync = queue.sync.take();
            let is_stopping = queue.is_stopping;
            drop(queue);
            if is_stopping {
                // Nobody would write the events after these.
                self.shared.is_writable.store(false, Ordering::Release);
            }
            drop(order);
            match self.write(&held.payload) {
                Ok(()) => {
                    held.payload.clear();
                    held.undo.clear();
                    self.shared.done.send_replace(held.tickets);
                    self.shared.is_writable.store(!is_stopping, Ordering::Release);
                    if let Some(SyncRequest { begins_segment, reply }) = held.sync.take()
                        && let Some(position) = self.position(begins_segment, held.tickets)
                    {
                        // A caller that is gone needs no answer.
                        let _ = reply.send(position);
                    }
                }
                Err(error) => {
                    if is_stopping || self.shared.is_writable.load(Ordering::Acquire) {
                        let dir = self.shared.files.as_ref().map(|files| files.dir.display());
                        let dir = dir.map(tracing::field::display);
                        let error = error.to_string();
                        tracing::error!(
                            dir,
                            error,
                            "log of a window not written; events are refused"
                        );
                    }
                    self.segment = None;
                    self.fail(&mut held);
                    // Dropped without an answer: no checkpoint.
                    held.sync = None;
                }
            }
            if is_stopping {
                return;
            }
        }
    }

    /// Waits for work: a group, a new segment, the end; after a failure, for the next attempt.
    fn wait(&self, is_retry: bool) {
        let mut queue = guard(self.shared.queue.lock());
        if self.segment.is_none() || is_retry {
            if !queue.is_stopping {
                drop(self.shared.wake.wait_timeout(queue, RETRY));
            }
            return;
        }
        let interval = match self.shared.durability {
            // The wait takes one half of the interval, the sync the other.
            Durability::Interval(interval) => Some(interval / 2),
            _ => None,
        };
        let has_work = |queue: &Queue| {
            queue.is_stopping
                || queue.sync.is_some()
                || (queue.tickets > queue.taken && interval.is_none())
                || queue.payload.len() > WRITE_AT_ONCE
        };
        match interval {
            None => {
                while !has_work(&queue) {
                    queue = guard(self.shared.wake.wait(queue));
                }
            }
            Some(interval) => {
                let rest = interval.saturating_sub(self.taken_at.elapsed());
                let waited =
                    self.shared.wake.wait_timeout_while(queue, rest, |queue| !has_work(queue));
                drop(waited);
            }
        }
    }

    fn write(&mut self, payload: &[u8]) -> std::io::Result<()> {
        #[cfg(test)]
        if self.shared.broken.load(Ordering::Relaxed) {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        if self.segment.is_none() {
            self.begin(self.group)?;
        }
        if let Some(segment) = self.segment.as_mut().filter(|_| !payload.is_empty()) {
            segment.append(payload)?;
            self.group = segment.next_group;
            let bytes = payload.len() as u64;
            self.shared.log_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Begins the segment after the last one.
    fn begin(&mut self, group: u64) -> std::io::Result<()> {
        let Some(files) = &self.shared.files else { return Ok(()) };
        self.segment = Some(Segment::create(&files.dir, files.id, self.number + 1, group)?);
        self.number += 1;
        Ok(())
    }

    /// The end of the log, in a new segment if asked for.
    fn position(&mut self, begins_segment: bool, written: u64) -> Option<LogPosition> {
        if begins_segment { self.rotate(written) } else { Some(self.end()) }
    }

    fn end(&self) -> LogPosition {
        let log_bytes = self.shared.log_bytes.load(Ordering::Relaxed);
        LogPosition { segment: self.number, next_group: self.group, log_bytes }
    }

    /// Begins a segment for a checkpoint. The answers that retries may ask for move to it, except
    /// those whose events wait in the queue: an answer must not be durable before its events.
    fn rotate(&mut self, written: u64) -> Option<LogPosition> {
        let mut payload = Vec::new();
        let now = self.shared.seconds.load(Ordering::Relaxed);
        for (token, answer) in guard(self.shared.answers.lock()).kept(now, written) {
            encode_answer(&mut payload, token, answer);
        }
        let begun = self.begin(self.group).and_then(|()| {
            let first = self.end();
            self.write(&payload).map(|()| first)
        });
        if let Err(error) = &begun {
            tracing::warn!(error = error.to_string(), "new segment of a window's log not written");
            self.segment = None;
        }
        begun.ok()
    }

    /// Undoes what was not acknowledged, or keeps what was.
    fn fail(&mut self, held: &mut Queue) {
        let shared = self.shared;
        let _order = guard(shared.order.write());
        shared.is_writable.store(false, Ordering::Release);
        shared.failures.fetch_add(1, Ordering::AcqRel);
        if shared.durability != Durability::Fsync {
            // Acknowledged: written at the next attempt.
            return;
        }
        let mut queue = guard(shared.queue.lock());
        held.payload.clear();
        queue.payload.clear();
        held.undo.append(&mut queue.undo);
        for undo in held.undo.drain(..).rev() {
            match undo {
                Undo::Changes(changes) => changes.iter().rev().for_each(|c| shared.window.undo(c)),
                Undo::Forgotten(changes) => {
                    changes.iter().rev().for_each(|c| shared.window.restore(c));
                }
                Undo::Answer(token) => guard(shared.answers.lock()).remove(&token),
                Undo::WallOffset(before) => {
                    shared.wall_offset_millis.store(before, Ordering::Release);
                }
            }
        }
        let done = *shared.done.borrow();
        if queue.tickets > done {
            let mut failed = guard(shared.failed.lock());
            if failed.len() >= MAX_FAILED {
                failed.remove(0);
            }
            failed.push((done, queue.tickets));
        }
        held.tickets = queue.tickets;
        queue.taken = queue.tickets;
        shared.done.send_replace(queue.tickets);
    }
}
