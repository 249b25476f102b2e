//! Engine of a window: the only task that touches its table, answers and log. It computes, and
//! waits for the disk: its caller gives it a thread of its own.
//!
//! A *cycle* takes the queued requests, applies them in their order, writes one group, and replies
//! once the group is durable: at once, or in a later cycle. No request is taken meanwhile. Expiry,
//! copies of the table, and lists of keys are steps of one region at the end of a cycle. A log that
//! cannot be written, and a lost window, refuse all requests and end the engine, which ends the
//! process: the table holds changes that were not written, and the next start reads the segments.

mod steps;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::timeout;

use crate::Key;
use crate::answers::{Answer, Answers, Outcomes, Retry};
use crate::journal::Journal;
use crate::log::LogGroup;
use crate::outbox::Shipping;
use crate::queue::{Failure, Observed, Queue, Reply, Request};
use crate::replica::LogSize;
use crate::settings::{ChangeListener, Changed, Now, Settings, WindowState};
use crate::table::{Change, count_of, key_of};
use crate::table_copy::{RunningCopy, TableCopy};
use crate::window::Window;
use steps::{Listing, Sweep};

/// Maximum time between two cycles.
const IDLE: Duration = Duration::from_secs(1);
/// Log after which a table is due; that of the table's size if it is larger.
const MIN_LOG_BYTES: u64 = 64 << 20;
/// Number of segments after which a table is due.
const MIN_LOG_SEGMENTS: u64 = 10_000;
/// A segment costs a start as much as so many bytes of a table: a large table allows more segments.
const SEGMENT_TABLE_BYTES: u64 = 64 << 10;

/// State that the engine publishes.
pub type Published = Arc<Mutex<WindowState>>;

/// The work of a window, until its end. Dropped, it ends the window.
pub struct Engine {
    queue: Arc<Queue>,
    published: Published,
    settings: Settings,
    window: Window,
    answers: Answers,
    journal: Journal,
    /// The window's time.
    seconds: u64,
    /// The clock's tick: before the window's if an owner before had a clock that was ahead.
    tick: u64,
    /// Whether the group whose answers wait has changes.
    has_changes: bool,
    table_request: Option<Reply<TableCopy>>,
    table_copy: Option<RunningCopy>,
    sweep: Sweep,
    lists: VecDeque<Listing>,
    /// A step has more work at once.
    is_busy: bool,
    buffers: GroupBuffers,
    /// The last field: the directory is not locked any more when the window has ended.
    _end: EndOnDrop,
}

/// Refuses requests, and ends the outbox, after the end of the engine, also by a panic.
struct EndOnDrop {
    queue: Arc<Queue>,
    shipping: Arc<Shipping>,
}

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.queue.abandon();
        self.shipping.end();
    }
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
    pub(crate) fn new(
        window: Window,
        answers: Answers,
        journal: Journal,
        settings: Settings,
        queue: Arc<Queue>,
        published: Published,
    ) -> Self {
        let mut buffers = GroupBuffers::default();
        if let Some(listener) = &settings.listener {
            for threshold in &listener.thresholds {
                buffers.reached.push((*threshold, Vec::new()));
            }
        }
        let end = EndOnDrop {
            queue: Arc::clone(&queue),
            shipping: Arc::clone(journal.shipping()),
        };
        let mut engine = Self {
            queue,
            published,
            seconds: answers.seconds,
            window,
            answers,
            journal,
            tick: 0,
            has_changes: false,
            table_request: None,
            table_copy: None,
            sweep: Sweep {
                next: 0,
                remaining: 0,
            },
            lists: VecDeque::new(),
            is_busy: true,
            buffers,
            settings,
            _end: end,
        };
        let now = (engine.settings.clock)();
        engine.window.set_tick(now.tick);
        // The caller lists all keys at its start.
        let _ = engine.window.take_evicted(|_, _| {});
        // A process that was stopped over midnight has the entries of the day before.
        engine.begin_sweep();
        engine.publish();
        engine
    }

    /// Runs cycles until the window has ended.
    pub async fn run(mut self) {
        let error = loop {
            self.wait().await;
            match self.run_cycle() {
                Ok(false) => {}
                Ok(true) => return,
                Err(error) => break error,
            }
        };

        tracing::error!(
            dir = self.journal.dir(),
            error = error.to_string(),
            "window ended: its log cannot be written, or it has another owner"
        );
    }

    /// Time until there is work without a request.
    fn idle_time(&self) -> Duration {
        if self.is_busy {
            return Duration::ZERO;
        }
        let idle_time = self.journal.due().min(IDLE);
        let pause = self.journal.pause();
        if pause.is_zero() {
            idle_time
        } else {
            idle_time.min(pause)
        }
    }

    /// Whether a cycle takes requests: none while answers wait for the store, and none in a pause
    /// between groups. Stale, it refuses them all.
    fn takes_requests(&self) -> bool {
        let may_begin = self.buffers.replies.is_empty() && self.journal.pause().is_zero();
        may_begin || !self.journal.is_fresh()
    }

    /// Waits for work of the next cycle.
    async fn wait(&mut self) {
        let idle_time = self.idle_time();
        if idle_time.is_zero() {
            tokio::task::yield_now().await;
            return;
        }
        let _ = timeout(idle_time, self.queue.wait(self.takes_requests())).await;
    }

    /// Runs one cycle; whether the window has ended.
    ///
    /// # Errors
    ///
    /// The log was not written, or the window has another owner. No request of the group is
    /// answered, and no further cycle may follow.
    fn run_cycle(&mut self) -> io::Result<bool> {
        let is_waiting = !self.buffers.replies.is_empty();
        let mut requests = std::mem::take(&mut self.buffers.requests);
        if self.takes_requests() {
            self.queue.take(&mut requests);
        }
        if self.queue.is_abandoned() {
            return Ok(true);
        }

        self.journal.keep_up()?;
        self.read_clock();
        if is_waiting || !self.journal.is_fresh() {
            // Refuses what was taken: nobody may answer it now.
            requests.clear();
        }
        let mut group = LogGroup::new();
        for request in requests.drain(..) {
            self.apply(request, &mut group);
        }
        self.buffers.requests = requests;
        if !group.is_empty() {
            self.journal.commit(&mut group)?;
            self.has_changes = true;
        }
        if self.journal.is_durable() {
            self.answer();
        }

        self.is_busy = self.run_steps()?;
        if !self.queue.is_done() || !self.buffers.replies.is_empty() {
            return Ok(false);
        }
        self.table_copy = None;
        self.journal.finish()?;
        Ok(self.journal.is_finished())
    }

    /// Answers the requests of a group that is durable.
    fn answer(&mut self) {
        self.report();
        self.publish();
        let has_changes = std::mem::take(&mut self.has_changes);
        if self.journal.may_answer(has_changes) {
            self.buffers.replies.drain(..).for_each(Answered::send);
        } else {
            // They are counted, but another owner may have answered meanwhile.
            self.buffers.replies.clear();
        }
    }

    fn read_clock(&mut self) {
        let Now { tick, seconds } = (self.settings.clock)();
        self.seconds = self.seconds.max(seconds);
        self.tick = tick;
        self.answers.shrink(self.seconds);
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
            Request::Table { reply } => {
                // One at a time: another one is refused.
                if self.table_copy.is_none() {
                    self.table_request = Some(reply);
                }
                return;
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
            changes, reached, ..
        } = &mut self.buffers;
        let seen = self.window.observe_with(keys, changes);

        if !changes.is_empty() {
            group.add_changes(self.window.tick(), changes, self.window.lanes(), false);
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
            changes, departed, ..
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
        let LogSize { bytes, segments } = self.journal.log();
        let window = self.window.stats();
        let table = window.memory_bytes + self.answers.bytes;
        let is_long = bytes > table.max(MIN_LOG_BYTES)
            || segments > (table / SEGMENT_TABLE_BYTES).max(MIN_LOG_SEGMENTS);
        let state = WindowState {
            window,
            log_bytes: bytes,
            log_segments: segments,
            is_table_due: is_long && self.table_copy.is_none(),
            answers_bytes: self.answers.bytes,
            answers_evicted: self.answers.evicted,
            // The outbox and the queue know the rest.
            ..WindowState::default()
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
