//! A window in `GET /v1/windows`.

use serde::Serialize;

use rtad_core::snapshot::AudienceName;
use rtad_window::Durability;

use super::super::counters::Results;
use super::ServedWindow;

impl ServedWindow {
    /// Entry of `GET /v1/windows`.
    pub fn info(&self) -> WindowInfo<'_> {
        let stats = self.handle.state();
        WindowInfo {
            window: &self.config.name,
            length: self.config.length.to_string(),
            time_zone: self.config.length.time_zone(),
            capacity: self.config.spec.capacity,
            count: self.config.spec.count,
            entries: stats.window.entries,
            fill_ratio: stats.window.entries as f64 / self.config.spec.capacity as f64,
            expected_fpr: stats.window.expected_fpr,
            memory_bytes: stats.window.memory_bytes,
            durability: match self.config.durability {
                Durability::None => "none",
                Durability::Interval(_) => "interval",
                Durability::Fsync => "fsync",
            },
            writable: stats.is_writable && self.is_held(),
            log_bytes: stats.log_bytes,
            checkpoint_unix_seconds: stats.checkpoint_unix_seconds,
            answers_bytes: stats.answers_bytes,
            answers_evicted: stats.answers_evicted,
            events: Results {
                full: stats.window.full,
                ..self.counters.events.totals()
            },
        }
    }
}

#[derive(Debug, Serialize)]
pub struct WindowInfo<'a> {
    window: &'a AudienceName,
    length: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_zone: Option<&'a str>,
    capacity: u64,
    count: u16,
    entries: u64,
    fill_ratio: f64,
    expected_fpr: f64,
    memory_bytes: u64,
    durability: &'static str,
    writable: bool,
    log_bytes: u64,
    checkpoint_unix_seconds: u64,
    answers_bytes: u64,
    answers_evicted: u64,
    events: Results,
}
