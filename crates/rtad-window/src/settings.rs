//! Settings of a window, and the state that its thread publishes.

use crate::Key;
use crate::journal::Durability;
use crate::window::WindowStats;

/// A reading of a window's clock.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// The current tick; one before an earlier reading's changes nothing.
    pub tick: u64,
    /// Seconds since the Unix epoch, which never go back: the time of kept answers.
    pub seconds: u64,
}

/// Change of what a window of whole keys contains, after it is as durable as its answer.
#[derive(Debug)]
pub enum Changed<'a> {
    /// Keys whose count has reached this threshold.
    Reached(u16, &'a [Key]),
    /// Keys that were erased or have expired, and may have come again.
    Left(&'a [Key]),
    /// Any keys.
    All,
}

/// Listener for changes of the keys of a window.
pub struct ChangeListener {
    /// Counts that are reported when a key reaches them.
    pub thresholds: Vec<u16>,
    /// Called by the window's thread.
    pub report: Box<dyn FnMut(Changed<'_>) + Send>,
}

/// How a window is run.
pub struct Settings {
    /// When an event is safe.
    pub durability: Durability,
    /// Read once per group.
    pub clock: Box<dyn FnMut() -> Now + Send>,
    /// Only for a window of whole keys.
    pub listener: Option<ChangeListener>,
}

/// State of a window, as its thread published it last.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct WindowState {
    /// Fill of the table.
    pub window: WindowStats,
    /// Number of changes of the table.
    pub changes: u64,
    /// Bytes of changes in the log since the last checkpoint.
    pub log_bytes: u64,
    /// Wall clock of the last checkpoint; 0 before the first.
    pub checkpoint_unix_seconds: u64,
    /// Whether a checkpoint may begin: none is being written, and none has failed within a minute.
    pub may_checkpoint: bool,
    /// Whether the log has grown so much that a checkpoint is due, and one may begin.
    pub is_checkpoint_due: bool,
    /// Whether requests are accepted.
    pub is_writable: bool,
    /// Memory of kept answers.
    pub answers_bytes: u64,
    /// Kept answers that left before their time.
    pub answers_evicted: u64,
}
