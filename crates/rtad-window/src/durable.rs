//! Window, log and checkpoints together: events that survive the process.
//!
//! An event changes the table first, then its slot's contents are queued for the log. A writer
//! thread writes all that is queued as one group, with one sync. Order: an event holds `order` for
//! reading from its change to its place in the queue. Changes of events commute when they are
//! replayed; erasures and undoing do not, and hold `order` for writing.

mod open;
mod state_dir;
#[cfg(test)]
mod tests;
mod writer;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::watch;

use crate::answers::{Answer, Answers, Token};
use crate::checkpoint::{self, Head};
use crate::log::{encode_answer, encode_changes};
use crate::table::Change;
use crate::window::{Seen, Window, WindowStats};
use crate::{Key, WindowSpec};

pub use open::OpenError;
pub use state_dir::StateDir;

/// Bytes that may wait for the log; beyond it events are refused.
const MAX_QUEUED: usize = 256 << 20;
/// Log after which a checkpoint is due, at least; else half of the table.
const MIN_LOG_BYTES: u64 = 64 << 20;

/// When an event is safe from the end of the process or machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Never: a restart begins empty.
    None,
    /// After at most this time; a crash loses the events of it.
    Interval(Duration),
    /// Before it is acknowledged.
    Fsync,
}

/// Events that were not accepted: nothing of them is in the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The log cannot be written.
    #[error("the log of the window cannot be written")]
    NotWritable,
    /// The token belongs to another request.
    #[error("the token was used for another request")]
    TokenReused,
}

/// Position in the log up to which an answer depends on it.
#[derive(Debug, Clone, Copy)]
#[must_use = "the events are acknowledged after `committed`"]
pub struct Ticket(u64);

/// Outcome of a batch.
#[derive(Debug)]
pub struct Observed {
    /// One outcome per event.
    pub seen: Vec<Seen>,
    /// Acknowledge after `committed` of it.
    pub ticket: Ticket,
    /// The request was repeated, and got its first answer: nothing was counted.
    pub is_repeated: bool,
}

/// State of the files of a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DurableStats {
    /// Fill of the window.
    pub window: WindowStats,
    /// Bytes of log since the last checkpoint.
    pub log_bytes: u64,
    /// Wall clock of the last checkpoint; 0 before the first.
    pub checkpoint_unix_seconds: u64,
    /// Whether events are accepted.
    pub is_writable: bool,
    /// Failed writes of the log.
    pub failures: u64,
}

/// A checkpoint that was written. The next one removes its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedCheckpoint {
    /// The file.
    pub path: PathBuf,
    /// Random number of the window's files.
    pub window_id: u64,
    /// Its number, which is in its name.
    pub number: u64,
}

/// A window whose events survive the process.
pub struct Durable {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
    checkpointing: Mutex<()>,
    /// Held while the window is open: a second process must not write its files.
    _lock: Option<File>,
}

struct Shared {
    window: Window,
    durability: Durability,
    files: Option<Files>,
    order: RwLock<()>,
    queue: Mutex<Queue>,
    /// Work for the writer.
    wake: Condvar,
    /// Number of tickets whose fate is known.
    done: watch::Sender<u64>,
    /// Ranges of tickets that failed: after the first number, up to the second.
    failed: Mutex<Vec<(u64, u64)>>,
    answers: Mutex<Answers>,
    is_writable: AtomicBool,
    failures: AtomicU64,
    log_bytes: AtomicU64,
    checkpoint_unix_seconds: AtomicU64,
    #[cfg(test)]
    broken: AtomicBool,
}

struct Files {
    dir: PathBuf,
    id: u64,
    clock: String,
}

#[derive(Default)]
struct Queue {
    payload: Vec<u8>,
    undo: Vec<Undo>,
    /// Number of tickets given.
    tickets: u64,
    is_stopping: bool,
    sync: Option<SyncRequest>,
}

/// Asks the writer to write all that is queued.
struct SyncRequest {
    /// Begin a new segment afterwards.
    begins_segment: bool,
    /// Gets the current segment and the next group; dropped after a failure.
    reply: mpsc::Sender<(u64, u64)>,
}

enum Undo {
    Changes(Vec<Change>),
    Forgotten(Vec<Change>),
    Answer(Token),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Durable {
    /// Opens a window's directory, or creates it. Reads the last checkpoint and the log after it.
    ///
    /// `clock` says in the caller's words what a tick is; files of another clock are refused.
    /// `tick` is the current tick. Cost: reading the files; a log of half the table at most.
    ///
    /// # Errors
    ///
    /// The directory is in use by another process, its files are unreadable, damaged, or of another
    /// spec.
    pub fn open(
        dir: &Path,
        spec: WindowSpec,
        clock: &str,
        tick: u64,
        durability: Durability,
    ) -> Result<Self, OpenError> {
        Self::open_locked(StateDir::lock(dir)?, spec, clock, tick, durability)
    }

    /// As [`Self::open`], of a locked directory.
    ///
    /// # Errors
    ///
    /// As of [`Self::open`].
    pub fn open_locked(
        dir: StateDir,
        spec: WindowSpec,
        clock: &str,
        tick: u64,
        durability: Durability,
    ) -> Result<Self, OpenError> {
        open::open(dir, spec, clock, tick, durability)
    }

    /// Makes an empty window that is not kept.
    ///
    /// # Errors
    ///
    /// A value of the spec is out of range.
    pub fn in_memory(spec: WindowSpec, tick: u64) -> Result<Self, crate::SpecError> {
        let shared = Shared::new(Window::new(spec, tick)?, Durability::None, None);
        Ok(Self {
            shared: Arc::new(shared),
            writer: Mutex::new(None),
            checkpointing: Mutex::new(()),
            _lock: None,
        })
    }

    /// The window.
    pub fn window(&self) -> &Window {
        &self.shared.window
    }

    /// Counts events in their order; one outcome each.
    ///
    /// A request with a token is answered again as the first time, within ten minutes; `request` is
    /// its digest. The events are acknowledged to the client after `committed` of the ticket.
    ///
    /// # Errors
    ///
    /// The log cannot be written, or the token belongs to another request.
    pub fn observe(
        &self,
        keys: &[Key],
        retry: Option<(Token, [u8; 16])>,
        unix_seconds: u64,
    ) -> Result<Observed, Failure> {
        self.shared.observe(keys, retry, unix_seconds)
    }

    /// Erases keys; whether each had an entry. Acknowledge after `committed` of the ticket.
    ///
    /// # Errors
    ///
    /// The log cannot be written.
    pub fn forget(&self, keys: &[Key]) -> Result<(Vec<bool>, Ticket), Failure> {
        self.shared.forget(keys)
    }

    /// Waits until the fate of a ticket is known. With `fsync` that is the sync of its group; else
    /// there is nothing to wait for.
    ///
    /// # Errors
    ///
    /// The group could not be written, and its events were undone.
    pub async fn committed(&self, ticket: Ticket) -> Result<(), Failure> {
        if self.shared.durability != Durability::Fsync {
            return Ok(());
        }
        self.shared.resolved(ticket).await
    }

    /// Fill and state of the files.
    pub fn stats(&self) -> DurableStats {
        let shared = &self.shared;
        DurableStats {
            window: shared.window.stats(),
            log_bytes: shared.log_bytes.load(Ordering::Relaxed),
            checkpoint_unix_seconds: shared.checkpoint_unix_seconds.load(Ordering::Relaxed),
            is_writable: shared.is_writable.load(Ordering::Acquire),
            failures: shared.failures.load(Ordering::Relaxed),
        }
    }

    /// Whether the log has grown so much that a checkpoint is due: 64 MiB, or half of the table.
    pub fn is_checkpoint_due(&self) -> bool {
        let bound = (self.shared.window.stats().memory_bytes / 2).max(MIN_LOG_BYTES);
        self.shared.log_bytes.load(Ordering::Relaxed) > bound
    }

    /// Writes a checkpoint beside traffic, and removes the log before it. Blocks for the time that
    /// it takes to compress and write the table.
    ///
    /// Returns the checkpoint; `None` for a window that is not kept, and if the log failed
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// The checkpoint could not be written; the one before stays.
    pub fn checkpoint(&self, unix_seconds: u64) -> std::io::Result<Option<SavedCheckpoint>> {
        let _one = lock(&self.checkpointing);
        let shared = &self.shared;
        let Some(files) = &shared.files else { return Ok(None) };
        let failures = shared.failures.load(Ordering::Acquire);
        // Events from here on are in the new segment; those before are in the table already.
        let Some((segment, next_group)) = shared.sync(true) else { return Ok(None) };
        let head = Head {
            spec: *shared.window.spec(),
            secret: *shared.window.secret(),
            id: files.id,
            segment,
            next_group,
            clock: files.clock.clone(),
            tick: shared.window.tick(),
            regions: shared.window.regions() as u64,
        };
        let written = checkpoint::write(&files.dir, &head, &shared.window)?;
        // The image may hold events that are not in the log yet: they must not fail afterwards.
        if shared.sync(false).is_none() || shared.failures.load(Ordering::Acquire) != failures {
            return Ok(None);
        }
        let path = checkpoint::publish(&files.dir, &written, &head)?;
        open::remove_before(&files.dir, segment);
        shared.checkpoint_unix_seconds.store(unix_seconds, Ordering::Relaxed);
        Ok(Some(SavedCheckpoint { path, window_id: files.id, number: segment }))
    }

    /// Writes what is queued, and a checkpoint: the next start reads no log.
    ///
    /// # Errors
    ///
    /// The checkpoint could not be written; the one before and the log stay.
    pub fn close(&self, unix_seconds: u64) -> std::io::Result<Option<SavedCheckpoint>> {
        let checkpoint = self.checkpoint(unix_seconds);
        self.stop();
        checkpoint
    }

    fn stop(&self) {
        lock(&self.shared.queue).is_stopping = true;
        self.shared.wake.notify_one();
        if let Some(writer) = lock(&self.writer).take() {
            let _ = writer.join();
        }
    }
}

impl Drop for Durable {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn new(window: Window, durability: Durability, files: Option<Files>) -> Self {
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
            is_writable: AtomicBool::new(true),
            failures: AtomicU64::new(0),
            log_bytes: AtomicU64::new(0),
            checkpoint_unix_seconds: AtomicU64::new(0),
            #[cfg(test)]
            broken: AtomicBool::new(false),
        }
    }

    fn observe(
        &self,
        keys: &[Key],
        retry: Option<(Token, [u8; 16])>,
        unix_seconds: u64,
    ) -> Result<Observed, Failure> {
        let _order = self.order.read().unwrap_or_else(PoisonError::into_inner);
        if !self.is_writable.load(Ordering::Acquire) {
            return Err(Failure::NotWritable);
        }
        // Held until the answer is kept: a retry that overtakes its request waits here.
        let mut answers = retry.map(|_| lock(&self.answers));
        if let (Some(answers), Some((token, request))) = (&answers, &retry)
            && let Some(answer) = answers.get(token, unix_seconds)
        {
            if answer.request != *request || answer.counts.len() != keys.len() {
                return Err(Failure::TokenReused);
            }
            let seen = answer.counts.iter().map(|count| seen_of(*count)).collect();
            let ticket = Ticket(lock(&self.queue).tickets);
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
        if let (Some(answers), Some((token, request))) = (&mut answers, retry) {
            let counts = seen.iter().map(|seen| code_of(*seen)).collect();
            let answer = Answer { unix_seconds, request, counts };
            if is_kept {
                encode_answer(&mut payload, &token, &answer);
                undo.push(Undo::Answer(token));
            }
            answers.insert(token, answer);
        }
        Ok(Observed { seen, ticket: self.enqueue(payload, undo), is_repeated: false })
    }

    fn forget(&self, keys: &[Key]) -> Result<(Vec<bool>, Ticket), Failure> {
        let _order = self.order.write().unwrap_or_else(PoisonError::into_inner);
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

    /// Queues a payload. Without one, the ticket is that of the last queued payload: the answer may
    /// depend on it.
    fn enqueue(&self, payload: Vec<u8>, undo: Vec<Undo>) -> Ticket {
        let mut queue = lock(&self.queue);
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
        let is_fsync = self.durability == Durability::Fsync;
        drop(queue);
        if is_fsync {
            self.wake.notify_one();
        }
        ticket
    }

    async fn resolved(&self, ticket: Ticket) -> Result<(), Failure> {
        // The sender lives as long as `self`.
        let _ = self.done.subscribe().wait_for(|done| *done >= ticket.0).await;
        let failed = lock(&self.failed);
        let is_failed = failed.iter().any(|(after, upto)| (after + 1..=*upto).contains(&ticket.0));
        if is_failed { Err(Failure::NotWritable) } else { Ok(()) }
    }

    /// Waits until everything queued is durable; the current segment, and the next group in it.
    fn sync(&self, begins_segment: bool) -> Option<(u64, u64)> {
        let (reply, answer) = mpsc::channel();
        lock(&self.queue).sync = Some(SyncRequest { begins_segment, reply });
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
