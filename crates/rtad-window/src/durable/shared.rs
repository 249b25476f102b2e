//! State that callers and the writer share: window, queue of the log, kept answers.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, RwLock, mpsc};
use std::time::Duration;

use tokio::sync::watch;

use super::{Durability, Failure, Observed, Ticket};
use crate::Key;
use crate::answers::{Answer, Answers, Token};
use crate::log::{encode_answer, encode_changes, encode_wall_offset};
use crate::sync::guard;
use crate::table::Change;
use crate::window::{Seen, Window};

/// Bytes that may wait for the log; beyond it events are refused.
pub(super) const MAX_QUEUED: usize = 256 << 20;
/// Bytes that the writer writes before its interval is over.
pub(super) const WRITE_AT_ONCE: usize = MAX_QUEUED / 4;
/// Change of the wall offset that is logged.
const WALL_STEP_MILLIS: u64 = 1000;

pub(super) struct Shared {
    pub(super) window: Window,
    pub(super) durability: Durability,
    pub(super) files: Option<Files>,
    pub(super) order: RwLock<()>,
    pub(super) queue: Mutex<Queue>,
    /// Work for the writer.
    pub(super) wake: Condvar,
    /// Number of tickets whose outcome is known.
    pub(super) done: watch::Sender<u64>,
    /// Ranges of tickets that failed: after the first number, up to the second.
    pub(super) failed: Mutex<Vec<(u64, u64)>>,
    pub(super) answers: Mutex<Answers>,
    /// The window's time in seconds.
    pub(super) seconds: AtomicU64,
    /// Milliseconds that the wall clock is ahead of the window's time, as logged.
    pub(super) wall_offset_millis: AtomicI64,
    pub(super) is_writable: AtomicBool,
    pub(super) failures: AtomicU64,
    pub(super) log_bytes: AtomicU64,
    pub(super) checkpoint_unix_seconds: AtomicU64,
    #[cfg(test)]
    pub(super) broken: AtomicBool,
}

pub(super) struct Files {
    pub(super) dir: PathBuf,
    pub(super) id: u64,
    pub(super) clock: String,
}

#[derive(Default)]
pub(super) struct Queue {
    pub(super) payload: Vec<u8>,
    pub(super) undo: Vec<Undo>,
    /// Number of tickets. A payload has one, and so has an answer that depends on events that are
    /// not queued yet.
    pub(super) tickets: u64,
    /// Number of tickets that the writer has taken.
    pub(super) taken: u64,
    pub(super) is_stopping: bool,
    pub(super) sync: Option<SyncRequest>,
}

/// Asks the writer to write all that is queued.
pub(super) struct SyncRequest {
    /// Begin a new segment afterwards.
    pub(super) begins_segment: bool,
    /// Dropped after a failure.
    pub(super) reply: mpsc::Sender<LogPosition>,
}

/// End of the log.
#[derive(Clone, Copy)]
pub(super) struct LogPosition {
    pub(super) segment: u64,
    pub(super) next_group: u64,
    /// Bytes of log since the last checkpoint, in earlier segments if this one was begun.
    pub(super) log_bytes: u64,
}

pub(super) enum Undo {
    Changes(Vec<Change>),
    Forgotten(Vec<Change>),
    Answer(Token),
    /// The offset before.
    WallOffset(i64),
}

impl Shared {
    pub(super) fn new(window: Window, durability: Durability, files: Option<Files>) -> Self {
        Self {
            window,
            durability,
            files,
            order: RwLock::new(()),
            queue: Mutex::default(),
            wake: Condvar::new(),
            done: watch::Sender::new(0),
            failed: Mutex::default(),
            answers: Mutex::default(),
            seconds: AtomicU64::new(0),
            wall_offset_millis: AtomicI64::new(0),
            is_writable: AtomicBool::new(true),
            failures: AtomicU64::new(0),
            log_bytes: AtomicU64::new(0),
            checkpoint_unix_seconds: AtomicU64::new(0),
            #[cfg(test)]
            broken: AtomicBool::new(false),
        }
    }

    pub(super) fn observe(
        &self,
        keys: &[Key],
        retry: Option<(Token, [u8; 16])>,
        seconds: u64,
    ) -> Result<Observed, Failure> {
        let order = guard(self.order.read());
        if !self.is_writable.load(Ordering::Acquire) {
            return Err(Failure::NotWritable);
        }
        // Held until the answer is kept: a retry that overtakes its request waits here.
        let mut answers = retry.map(|_| guard(self.answers.lock()));
        if let (Some(answers), Some((token, request))) = (&answers, &retry)
            && let Some(answer) = answers.get(token, seconds)
        {
            if answer.request != *request || answer.counts.len() != keys.len() {
                return Err(Failure::TokenReused);
            }
            let seen = answer.counts.iter().map(|count| seen_of(*count)).collect();
            let ticket = Ticket(guard(self.queue.lock()).tickets);
            return Ok(Observed { seen, ticket, is_repeated: true });
        }
        let mut seen = Vec::with_capacity(keys.len());
        let mut changes = Vec::new();
        let is_kept = self.files.is_some();
        let tick = self.window.observe_with(
            keys,
            |outcome| seen.push(outcome),
            |change| {
                if is_kept {
                    changes.push(change);
                }
            },
        );
        let mut payload = Vec::new();
        if !changes.is_empty() {
            encode_changes(&mut payload, tick, &changes, self.window.lanes(), false);
        }
        let mut undo = vec![Undo::Changes(changes)];
        let answer = retry.map(|(token, request)| {
            let counts = seen.iter().map(|seen| code_of(*seen)).collect();
            (token, Answer { seconds, ticket: 0, request, counts })
        });
        if let Some((token, answer)) = answer.as_ref().filter(|_| is_kept) {
            encode_answer(&mut payload, token, answer);
            undo.push(Undo::Answer(*token));
        }
        let is_logged = !payload.is_empty();
        let mut ticket = self.enqueue(payload, undo);
        if let (Some(answers), Some((token, answer))) = (&mut answers, answer) {
            answers.insert(token, Answer { ticket: ticket.0, ..answer });
        }
        drop(answers);
        let failures = self.failures.load(Ordering::Acquire);
        drop(order);
        if !is_logged {
            ticket = self.ticket_of_duplicates(failures)?;
        }
        Ok(Observed { seen, ticket, is_repeated: false })
    }

    /// Ticket of an answer without a payload. It depends on events of others, which may not be
    /// queued yet. `failures` were counted while `order` was held.
    ///
    /// # Errors
    ///
    /// The log has failed since: the events may be undone, and later tickets do not report it.
    pub(super) fn ticket_of_duplicates(&self, failures: u64) -> Result<Ticket, Failure> {
        let is_quiet = self.order.try_write().is_ok();
        let mut queue = guard(self.queue.lock());
        if !is_quiet && self.durability == Durability::Fsync {
            queue.tickets += 1;
            self.wake.notify_one();
        }
        // `fail` counts before it ends the tickets so far.
        if self.failures.load(Ordering::Acquire) == failures {
            Ok(Ticket(queue.tickets))
        } else {
            Err(Failure::NotWritable)
        }
    }

    pub(super) fn forget(&self, keys: &[Key]) -> Result<(Vec<bool>, Ticket), Failure> {
        let _order = guard(self.order.write());
        if !self.is_writable.load(Ordering::Acquire) {
            return Err(Failure::NotWritable);
        }
        let mut payload = Vec::new();
        let mut undo = Vec::new();
        let mut forgotten = Vec::with_capacity(keys.len());
        for key in keys {
            let found = self.window.forget_one(key);
            forgotten.push(found.is_some());
            if let Some((change, tick)) = found.filter(|_| self.files.is_some()) {
                encode_changes(&mut payload, tick, &[change], self.window.lanes(), true);
                undo.push(Undo::Forgotten(vec![change]));
            }
        }
        Ok((forgotten, self.enqueue(payload, undo)))
    }

    pub(super) fn set_time(&self, time: Duration, wall: Duration) {
        self.seconds.store(time.as_secs(), Ordering::Relaxed);
        let offset = wall.as_millis() as i64 - time.as_millis() as i64;
        let known = self.wall_offset_millis.load(Ordering::Acquire);
        if known.abs_diff(offset) <= WALL_STEP_MILLIS {
            return;
        }
        let _order = guard(self.order.read());
        if !self.is_writable.load(Ordering::Acquire) {
            // Logged at a later call.
            return;
        }
        self.wall_offset_millis.store(offset, Ordering::Release);
        if self.files.is_some() {
            let mut payload = Vec::new();
            encode_wall_offset(&mut payload, offset);
            // Nobody waits for it.
            let _ = self.enqueue(payload, vec![Undo::WallOffset(known)]);
        }
    }

    /// Queues a payload. An empty payload gets the last ticket: an erasure that found nothing
    /// depends on all that is queued.
    pub(super) fn enqueue(&self, payload: Vec<u8>, undo: Vec<Undo>) -> Ticket {
        let mut queue = guard(self.queue.lock());
        if payload.is_empty() {
            return Ticket(queue.tickets);
        }
        queue.tickets += 1;
        queue.payload.extend_from_slice(&payload);
        if self.durability == Durability::Fsync {
            queue.undo.extend(undo);
        }
        if queue.payload.len() > MAX_QUEUED {
            // The disk is slower than the events. The writer makes the window writable again.
            self.is_writable.store(false, Ordering::Release);
        }
        let ticket = Ticket(queue.tickets);
        let has_work = self.durability == Durability::Fsync || queue.payload.len() > WRITE_AT_ONCE;
        drop(queue);
        if has_work {
            self.wake.notify_one();
        }
        ticket
    }

    pub(super) async fn resolved(&self, ticket: Ticket) -> Result<(), Failure> {
        // The sender lives as long as `self`.
        let _ = self.done.subscribe().wait_for(|done| *done >= ticket.0).await;
        let failed = guard(self.failed.lock());
        let is_failed = failed.iter().any(|(after, upto)| (after + 1..=*upto).contains(&ticket.0));
        if is_failed { Err(Failure::NotWritable) } else { Ok(()) }
    }

    /// Waits until everything queued is durable; the end of the log then.
    pub(super) fn sync(&self, begins_segment: bool) -> Option<LogPosition> {
        let (reply, answer) = mpsc::channel();
        {
            let mut queue = guard(self.queue.lock());
            if queue.is_stopping {
                // The writer may have ended: nobody would answer.
                return None;
            }
            queue.sync = Some(SyncRequest { begins_segment, reply });
        }
        self.wake.notify_one();
        answer.recv().ok()
    }
}

/// Outcome as one number: 0 new, `u16::MAX` full, else the count.
const fn code_of(seen: Seen) -> u16 {
    match seen {
        Seen::New => 0,
        Seen::Duplicate(count) => count,
        Seen::Full => u16::MAX,
    }
}

const fn seen_of(code: u16) -> Seen {
    match code {
        0 => Seen::New,
        u16::MAX => Seen::Full,
        count => Seen::Duplicate(count),
    }
}
