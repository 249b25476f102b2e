//! Window, log and checkpoints together: events that survive the process.
//!
//! An event changes the table first, then its slot's contents are queued for the log. A writer
//! thread writes all that is queued as one group, with one sync. Order: an event holds `order` for
//! reading from its change until it is queued. Changes of events commute when they are replayed;
//! erasures and undoing do not, and hold `order` for writing.
//!
//! The writer holds `order` for writing while it takes the queue. So a group has every change that
//! was visible before, and an answer that depends on such a change waits for that group.

mod open;
mod shared;
mod state_dir;
#[cfg(test)]
mod tests;
mod writer;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::answers::Token;
use crate::checkpoint::{self, Head};
use crate::sync::guard;
use crate::window::{Seen, Window, WindowStats};
use crate::{Key, WindowSpec};

pub use open::{Loaded, OpenError};
use shared::{LogPosition, Shared};
pub use state_dir::StateDir;

/// Minimum size of the log before a checkpoint; half of the table if that is larger.
const MIN_LOG_BYTES: u64 = 64 << 20;
/// Time from a failed checkpoint to the next: each attempt writes the table.
const CHECKPOINT_RETRY: Duration = Duration::from_secs(60);

/// When an event is safe from the end of the process or machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Never: a restart begins empty.
    None,
    /// The event is safe after at most this time; a crash loses the last events.
    Interval(Duration),
    /// The event is safe before it is acknowledged.
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
    /// Time of the last checkpoint, if it failed. Held during a checkpoint.
    checkpointing: Mutex<Option<Instant>>,
    /// Held while the window is open: a second process must not write its files.
    _lock: Option<File>,
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
        let dir = StateDir::lock(dir)?;
        let loaded = dir.load(spec, clock, |_| tick)?;
        Self::start(dir, loaded, durability)
    }

    /// Opens a directory with the content that was loaded from it.
    ///
    /// # Errors
    ///
    /// The directory cannot be written.
    pub fn start(dir: StateDir, loaded: Loaded, durability: Durability) -> Result<Self, OpenError> {
        open::start(&dir.dir, dir.lock, loaded, durability)
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
            checkpointing: Mutex::default(),
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
    /// its digest, `seconds` the window's time. The events are acknowledged to the client after
    /// `committed` of the ticket.
    ///
    /// # Errors
    ///
    /// The log cannot be written, or the token belongs to another request.
    pub fn observe(
        &self,
        keys: &[Key],
        retry: Option<(Token, [u8; 16])>,
        seconds: u64,
    ) -> Result<Observed, Failure> {
        self.shared.observe(keys, retry, seconds)
    }

    /// Sets the window's time, which no step of the wall clock changes, and the wall clock at it;
    /// both since the Unix epoch. A start learns from the last pair how long the process was gone.
    ///
    /// Call it about every second. A step of the wall clock of more than a second is logged.
    pub fn set_time(&self, time: Duration, wall: Duration) {
        self.shared.set_time(time, wall);
    }

    /// Milliseconds that the wall clock is ahead of the window's time, as last known.
    pub fn wall_offset_millis(&self) -> i64 {
        self.shared.wall_offset_millis.load(Ordering::Acquire)
    }

    /// Erases keys; whether each had an entry. Acknowledge after `committed` of the ticket.
    ///
    /// # Errors
    ///
    /// The log cannot be written.
    pub fn forget(&self, keys: &[Key]) -> Result<(Vec<bool>, Ticket), Failure> {
        self.shared.forget(keys)
    }

    /// Waits until the outcome of a ticket is known. With `fsync` that is the sync of its group;
    /// the other settings do not wait.
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

    /// Whether a checkpoint may begin: none is being written, and none has failed within a minute.
    /// Each attempt takes the disk space of a table, and copies the kept answers to a new segment.
    pub fn may_checkpoint(&self) -> bool {
        let failed_at = match self.checkpointing.try_lock() {
            Ok(failed_at) => *failed_at,
            Err(TryLockError::Poisoned(failed_at)) => *failed_at.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        failed_at.is_none_or(|at| at.elapsed() >= CHECKPOINT_RETRY)
    }

    /// Whether the log has grown so much that a checkpoint is due, and one may begin: half of the
    /// table, at least 64 MiB.
    pub fn is_checkpoint_due(&self) -> bool {
        if !self.may_checkpoint() {
            return false;
        }
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
        let mut failed_at = guard(self.checkpointing.lock());
        let saved = self.write_checkpoint(unix_seconds);
        *failed_at = if matches!(saved, Ok(Some(_))) { None } else { Some(Instant::now()) };
        saved
    }

    fn write_checkpoint(&self, unix_seconds: u64) -> std::io::Result<Option<SavedCheckpoint>> {
        let shared = &self.shared;
        let Some(files) = &shared.files else { return Ok(None) };
        let failures = shared.failures.load(Ordering::Acquire);
        // Events from here on are in the new segment; those before are in the table already.
        let Some(begun) = shared.sync(true) else { return Ok(None) };
        let LogPosition { segment, next_group, log_bytes } = begun;
        let head = Head {
            spec: *shared.window.spec(),
            secret: *shared.window.secret(),
            id: files.id,
            segment,
            next_group,
            clock: files.clock.clone(),
            tick: shared.window.tick(),
            wall_offset_millis: shared.wall_offset_millis.load(Ordering::Acquire),
            regions: shared.window.regions() as u64,
        };
        let written = checkpoint::write(&files.dir, &head, &shared.window)?;
        // The image may hold events that are not in the log yet: they must not fail afterwards.
        if shared.sync(false).is_none() || shared.failures.load(Ordering::Acquire) != failures {
            return Ok(None);
        }
        let path = checkpoint::publish(&files.dir, written, &head)?;
        open::remove_before(&files.dir, segment);
        shared.log_bytes.fetch_sub(log_bytes, Ordering::Relaxed);
        shared.checkpoint_unix_seconds.store(unix_seconds, Ordering::Relaxed);
        Ok(Some(SavedCheckpoint { path, window_id: files.id, number: segment }))
    }

    /// Writes what is queued, and a checkpoint: the next start reads no log. Events and checkpoints
    /// are refused afterwards.
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
        guard(self.shared.queue.lock()).is_stopping = true;
        self.shared.wake.notify_one();
        if let Some(writer) = guard(self.writer.lock()).take() {
            let _ = writer.join();
        }
    }
}

impl Drop for Durable {
    fn drop(&mut self) {
        self.stop();
    }
}
