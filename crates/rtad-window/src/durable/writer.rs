//! Writer thread: the only one that writes the log.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use super::{Durability, MAX_QUEUED, Queue, Shared, SyncRequest, Undo, lock};
use crate::log::{Segment, encode_answer};

/// Time between attempts to write a log that failed.
const RETRY: Duration = Duration::from_secs(1);
/// Ranges of failed tickets that are remembered.
const MAX_FAILED: usize = 1000;

/// Runs until the window is closed and everything queued is written.
pub(super) fn run(shared: &Shared, segment: Segment) {
    Writer { shared, number: segment.number, group: segment.next_group, segment: Some(segment) }
        .run();
}

struct Writer<'a> {
    shared: &'a Shared,
    /// `None` after a failure.
    segment: Option<Segment>,
    /// Number of the last segment.
    number: u64,
    /// Number of the next group.
    group: u64,
}

impl Writer<'_> {
    fn run(mut self) {
        let mut held = Queue::default();
        loop {
            self.wait(!held.payload.is_empty());
            let mut queue = lock(&self.shared.queue);
            if held.payload.is_empty() {
                std::mem::swap(&mut held.payload, &mut queue.payload);
            } else {
                held.payload.append(&mut queue.payload);
            }
            held.undo.append(&mut queue.undo);
            held.tickets = queue.tickets;
            held.sync = queue.sync.take();
            let is_stopping = queue.is_stopping;
            drop(queue);
            match self.write(&held.payload) {
                Ok(()) => {
                    held.payload.clear();
                    held.undo.clear();
                    self.shared.done.send_replace(held.tickets);
                    self.shared.is_writable.store(true, Ordering::Release);
                    if let Some(SyncRequest { begins_segment, reply }) = held.sync.take()
                        && let Some(position) = self.position(begins_segment)
                    {
                        // A caller that is gone needs no answer.
                        let _ = reply.send(position);
                    }
                }
                Err(error) => {
                    if self.shared.is_writable.load(Ordering::Acquire) {
                        let error = error.to_string();
                        tracing::error!(error, "log of a window not written; events are refused");
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
        let mut queue = lock(&self.shared.queue);
        if self.segment.is_none() || is_retry {
            if !queue.is_stopping {
                drop(self.shared.wake.wait_timeout(queue, RETRY));
            }
            return;
        }
        let interval = match self.shared.durability {
            // Half for the wait, half for the sync.
            Durability::Interval(interval) => Some(interval / 2),
            _ => None,
        };
        let has_work = |queue: &Queue| {
            let has_payload = !queue.payload.is_empty();
            queue.is_stopping
                || queue.sync.is_some()
                || (has_payload && interval.is_none())
                || queue.payload.len() > MAX_QUEUED / 4
        };
        match interval {
            None => {
                while !has_work(&queue) {
                    queue = self.shared.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
                }
            }
            Some(interval) => {
                let waited =
                    self.shared.wake.wait_timeout_while(queue, interval, |queue| !has_work(queue));
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

    /// The current segment and its next group, in a new segment if asked for.
    fn position(&mut self, begins_segment: bool) -> Option<(u64, u64)> {
        if begins_segment { self.rotate() } else { Some((self.number, self.group)) }
    }

    /// Begins a segment for a checkpoint. The answers that retries may ask for move to it.
    fn rotate(&mut self) -> Option<(u64, u64)> {
        let mut payload = Vec::new();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        for (token, answer) in lock(&self.shared.answers).kept(now.as_secs()) {
            encode_answer(&mut payload, token, answer);
        }
        let begun = self.begin(self.group).and_then(|()| {
            self.shared.log_bytes.store(0, Ordering::Relaxed);
            let first = (self.number, self.group);
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
        let _order = shared.order.write().unwrap_or_else(PoisonError::into_inner);
        shared.is_writable.store(false, Ordering::Release);
        shared.failures.fetch_add(1, Ordering::AcqRel);
        if shared.durability != Durability::Fsync {
            // Acknowledged: written at the next attempt.
            return;
        }
        let mut queue = lock(&shared.queue);
        held.payload.clear();
        queue.payload.clear();
        held.undo.append(&mut queue.undo);
        for undo in held.undo.drain(..).rev() {
            match undo {
                Undo::Changes(changes) => changes.iter().rev().for_each(|c| shared.window.undo(c)),
                Undo::Forgotten(changes) => {
                    changes.iter().rev().for_each(|c| shared.window.restore(c));
                }
                Undo::Answer(token) => lock(&shared.answers).remove(&token),
            }
        }
        let done = *shared.done.borrow();
        if queue.tickets > done {
            let mut failed = lock(&shared.failed);
            if failed.len() >= MAX_FAILED {
                failed.remove(0);
            }
            failed.push((done, queue.tickets));
        }
        held.tickets = queue.tickets;
        shared.done.send_replace(queue.tickets);
    }
}
