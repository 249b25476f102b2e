//! Thread of a window: the only one that touches its table, answers and log.
//!
//! A *cycle* takes the queued requests, applies them in their order, writes one group, and replies.
//! Expiry, copies for a checkpoint, and lists of keys are steps of one region at its end. A failed
//! write or sync of the log refuses all requests and ends the thread, which ends the process: the
//! table holds changes that were not written, and the next start reads the files.

mod checkpoint_copy;
mod steps;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::Key;
use crate::answers::{Answer, Answers, Outcomes, Retry};
use crate::journal::Journal;
use crate::load::{Loaded, Shape};
use crate::log::LogGroup;
use crate::queue::{CheckpointReply, Failure, Observed, Queue, Reply, Request};
use crate::settings::{ChangeListener, Changed, Now, Settings, WindowState};
use crate::table::{Change, count_of, key_of};
use crate::window::Window;
use steps::{Listing, RunningCheckpoint, Sweep};

/// Maximum time between two cycles.
const IDLE: Duration = Duration::from_secs(1);
/// Time from a failed checkpoint to the next: each attempt writes the table.
const CHECKPOINT_RETRY: Duration = Duration::from_secs(60);
/// Minimum size of the log before a checkpoint; half of the table if that is larger.
const MIN_LOG_BYTES: u64 = 64 << 20;
/// A log with so many times the memory of answers is due for a checkpoint, too.
const ANSWER_LOGS: u64 = 4;

/// State that the thread publishes.
pub type Published = Arc<Mutex<WindowState>>;

pub struct Engine {
    queue: Arc<Queue>,
    published: Published,
    settings: Settings,
    shape: Shape,
    window: Window,
    answers: Answers,
    /// `None` for a window that is not kept.
    journal: Option<Journal>,
    /// The window's time.
    seconds: u64,
    /// The clock's tick: before the window's if the files are of a later one.
    tick: u64,
    changes: u64,
    checkpoint_unix_seconds: u64,
    running_checkpoint: Option<RunningCheckpoint>,
    /// Checkpoints that wait for the one being written.
    queued_checkpoints: VecDeque<(u64, CheckpointReply)>,
    checkpoint_failed_at: Option<Instant>,
    sweep: Sweep,
    lists: VecDeque<Listing>,
    /// A step has more work at once.
    is_busy: bool,
    buffers: GroupBuffers,
}

/// Buffers of one group, used again by the next.
#[derive(Default)]
struct GroupBuffers {
    requests: Vec<Request>,
    replies: Vec<Answered>,
    /// Slots that the current request has changed.
    changes: Vec<Change>,
    /// Keys that reached each threshold.
    reached: Vec<(u16, Vec<Key>)>,
    departed: Vec<Key>,
    has_changed: bool,
}

/// A request with its outcome, which is sent after the group is written.
enum Answered {
    Observe(Reply<Observed>, Result<Observed, Failure>),
    Counts(Reply<Vec<u16>>, Vec<u16>),
    Forget(Reply<Vec<bool>>, Vec<bool>),
}

impl Answered {
    fn send(self) {
        // A client that is gone needs no answer.
        match self {
            Self::Observe(reply, observed) => drop(reply.send(observed)),
            Self::Counts(reply, counts) => drop(reply.send(Ok(counts))),
            Self::Forget(reply, forgotten) => drop(reply.send(Ok(forgotten))),
        }
    }
}

impl Engine {
    pub fn new(
        loaded: Loaded,
        journal: Option<Journal>,
        checkpoint_unix_seconds: u64,
        settings: Settings,
        (queue, published): (Arc<Queue>, Published),
    ) -> Self {
        let thresholds = settings
            .listener
            .iter()
            .flat_map(|listener| &listener.thresholds);
        let reached = thresholds
            .map(|threshold| (*threshold, Vec::new()))
            .collect();
        let mut engine = Self {
            queue,
            published,
            shape: loaded.shape,
            window: loaded.window,
            answers: loaded.answers,
            journal,
            seconds: 0,
            tick: 0,
            changes: 0,
            checkpoint_unix_seconds,
            running_checkpoint: None,
            queued_checkpoints: VecDeque::new(),
            checkpoint_failed_at: None,
            sweep: Sweep {
                next: 0,
                remaining: 0,
            },
            lists: VecDeque::new(),
            is_busy: true,
            buffers: GroupBuffers {
                reached,
                ..GroupBuffers::default()
            },
            settings,
        };
        let now = (engine.settings.clock)();
        engine.window.set_tick(now.tick);
        // A process that was stopped over midnight has the entries of the day before.
        engine.begin_sweep();
        engine.publish();
        engine
    }

    pub fn run(mut self) {
        /// Refuses requests after the end of the thread, also by a panic.
        struct Refuse(Arc<Queue>);
        impl Drop for Refuse {
            fn drop(&mut self) {
                self.0.refuse();
            }
        }
        let _refuse = Refuse(Arc::clone(&self.queue));
        let error = loop {
            match self.run_cycle(self.idle_time()) {
                Ok(false) => {}
                Ok(true) => return,
                Err(error) => break error,
            }
        };

        let dir = self.journal.as_ref().map(|journal| journal.dir.path());
        tracing::error!(
            dir = dir.map(|dir| dir.display().to_string()),
            error = error.to_string(),
            "log of a window not written; its events are refused, and the process ends"
        );
    }

    /// Time until there is work without a request.
    fn idle_time(&self) -> Duration {
        if self.is_busy {
            return Duration::ZERO;
        }
        let sync_due = self.journal.as_ref().and_then(Journal::sync_due);
        sync_due.unwrap_or(IDLE).min(IDLE)
    }

    /// Runs one cycle, which waits for a request at most `wait`; whether the window is closed.
    ///
    /// # Errors
    ///
    /// The log was not written. No request of the group is answered, and no further cycle may
    /// follow.
    fn run_cycle(&mut self, wait: Duration) -> io::Result<bool> {
        let mut requests = std::mem::take(&mut self.buffers.requests);
        let is_closed = self.queue.take(wait, &mut requests);
        let mut group = self
            .journal
            .as_ref()
            .map_or_else(LogGroup::new, Journal::group);
        self.read_clock();
        for request in requests.drain(..) {
            self.apply(request, &mut group);
        }
        self.buffers.requests = requests;
        if let Some(checkpoint) = &mut self.running_checkpoint {
            checkpoint.copy.add_answers(&self.answers, &mut group);
        }
        self.changes += u64::from(std::mem::take(&mut self.buffers.has_changed));

        self.commit(group)?;
        self.report();
        self.publish();
        self.buffers.replies.drain(..).for_each(Answered::send);

        self.is_busy = self.run_steps()?;
        let has_checkpoint =
            self.running_checkpoint.is_some() || !self.queued_checkpoints.is_empty();
        if !is_closed || has_checkpoint {
            return Ok(false);
        }
        if let Some(journal) = &mut self.journal {
            journal.sync()?;
        }
        Ok(true)
    }

    fn commit(&mut self, group: LogGroup) -> io::Result<()> {
        match &mut self.journal {
            Some(journal) if !group.is_empty() => journal.commit(group),
            _ => Ok(()),
        }
    }

    fn read_clock(&mut self) {
        let Now { tick, seconds } = (self.settings.clock)();
        self.seconds = seconds;
        self.tick = tick;
        self.answers.shrink(seconds);
        if tick > self.window.tick() {
            self.window.set_tick(tick);
            self.begin_sweep();
        }
    }

    fn apply(&mut self, request: Request, group: &mut LogGroup) {
        let answered = match request {
            Request::Observe {
                keys,
                at,
                retry,
                reply,
            } => Answered::Observe(reply, self.observe(&keys, at, retry, group)),
            Request::Counts { keys, reply } => Answered::Counts(reply, self.window.counts(&keys)),
            Request::Forget { keys, reply } => Answered::Forget(reply, self.forget(&keys, group)),
            Request::List { min_count, reply } => {
                let entries = self.window.stats().entries;
                return self
                    .lists
                    .push_back(Listing::new(min_count, entries, reply));
            }
            Request::Checkpoint {
                unix_seconds,
                reply,
            } => {
                return self.queued_checkpoints.push_back((unix_seconds, reply));
            }
        };
        self.buffers.replies.push(answered);
    }

    fn observe(
        &mut self,
        keys: &[Key],
        at: Option<u64>,
        retry: Option<Retry>,
        group: &mut LogGroup,
    ) -> Result<Observed, Failure> {
        if let Some((request_key, request)) = &retry
            && let Some(answer) = self.answers.get(request_key, self.seconds)
        {
            if !answer.is_of(request, keys.len()) {
                return Err(Failure::RequestKeyReused);
            }
            return Ok(Observed {
                seen: answer.outcomes.seen(),
                is_repeated: true,
            });
        }
        let lifetime = u64::from(self.window.spec().lifetime);
        if at.is_some_and(|at| at.saturating_add(lifetime) <= self.tick) {
            return Err(Failure::Late);
        }
        let GroupBuffers {
            changes,
            reached,
            has_changed,
            ..
        } = &mut self.buffers;
        let seen = self.window.observe_with(keys, changes);

        if !changes.is_empty() {
            group.add_changes(self.window.tick(), changes, self.window.lanes(), false);
            *has_changed = true;
        }
        for (threshold, keys) in reached {
            // A key has each count once: the highest stays without a change.
            let passed = changes
                .iter()
                .filter(|change| count_of(&change.words) == *threshold);
            keys.extend(passed.map(|change| key_of(&change.words)));
        }

        if let Some((request_key, request)) = retry {
            let outcomes = Outcomes::new(&seen);
            let answer = Answer {
                seconds: self.seconds,
                request,
                outcomes,
            };
            group.add_answer(&request_key, &answer);
            self.answers.insert(request_key, answer);
        }
        Ok(Observed {
            seen,
            is_repeated: false,
        })
    }

    fn forget(&mut self, keys: &[Key], group: &mut LogGroup) -> Vec<bool> {
        let GroupBuffers {
            changes,
            departed,
            has_changed,
            ..
        } = &mut self.buffers;
        changes.clear();
        let mut forgotten = Vec::with_capacity(keys.len());
        for key in keys {
            let change = self.window.forget(key);
            forgotten.push(change.is_some());
            changes.extend(change);
        }
        if !changes.is_empty() {
            group.add_changes(self.window.tick(), changes, self.window.lanes(), true);
        }
        // An erased key may have expired, and be in an audience still.
        departed.extend(keys);
        *has_changed = true;
        forgotten
    }

    /// Reports the changes of a group that is written.
    fn report(&mut self) {
        let GroupBuffers {
            reached, departed, ..
        } = &mut self.buffers;
        for (threshold, keys) in reached {
            if !keys.is_empty() {
                report(
                    &mut self.settings.listener,
                    Changed::Reached(*threshold, keys),
                );
                keys.clear();
            }
        }
        if !departed.is_empty() {
            report(&mut self.settings.listener, Changed::Left(departed));
            departed.clear();
        }
    }

    fn publish(&self) {
        let journal = self.journal.as_ref();
        let log = journal.map(|journal| journal.bytes).unwrap_or_default();
        let window = self.window.stats();
        let may_checkpoint = self.running_checkpoint.is_none()
            && self.queued_checkpoints.is_empty()
            && self
                .checkpoint_failed_at
                .is_none_or(|at| at.elapsed() >= CHECKPOINT_RETRY);
        let answers_memory = self.shape.answers.memory_bytes;
        let is_long = log.changes > (window.memory_bytes / 2).max(MIN_LOG_BYTES)
            || log.answers > (answers_memory * ANSWER_LOGS).max(MIN_LOG_BYTES);
        let state = WindowState {
            window,
            changes: self.changes,
            log_bytes: log.changes,
            checkpoint_unix_seconds: self.checkpoint_unix_seconds,
            may_checkpoint,
            is_checkpoint_due: may_checkpoint && is_long,
            // The queue knows.
            is_writable: false,
            answers_bytes: self.answers.bytes,
            answers_evicted: self.answers.evicted,
        };
        *self
            .published
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = state;
    }
}

fn report(listener: &mut Option<ChangeListener>, changed: Changed<'_>) {
    if let Some(listener) = listener {
        (listener.report)(changed);
    }
}
