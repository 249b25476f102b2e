//! Settings of a window, and the state that it publishes.

use std::time::Duration;

use crate::Key;
use crate::window::WindowStats;

/// A reading of a window's clock.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// The current tick. One before those of earlier readings and of the segments changes nothing.
    pub tick: u64,
    /// Seconds since the Unix epoch: the time of kept answers. Earlier ones than before change
    /// nothing.
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
    /// Called by the window's engine.
    pub report: Box<dyn FnMut(Changed<'_>) + Send>,
}

/// How a window is run.
pub struct Settings {
    /// Read once per group.
    pub clock: Box<dyn FnMut() -> Now + Send>,
    /// Only for a window of whole keys.
    pub listener: Option<ChangeListener>,
}

/// State of a window.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct WindowState {
    /// Fill of the table.
    pub window: WindowStats,
    /// Bytes of the log since the last table.
    pub log_bytes: u64,
    /// Segments since the last table.
    pub log_segments: u64,
    /// Whether the log is so long that a table is due.
    pub is_table_due: bool,
    /// Memory of kept answers.
    pub answers_bytes: u64,
    /// Kept answers that left before their time.
    pub answers_evicted: u64,
    /// Number of the newest created segment.
    pub created: u64,
    /// Age of the oldest events that are in no created segment; zero if there are none.
    pub unshipped_age: Duration,
    /// Time since the newest created segment was sent.
    pub created_age: Duration,
    /// Whether requests are accepted and answered.
    pub is_writable: bool,
}
