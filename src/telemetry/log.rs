//! Metrics of the decision log.

use std::time::Duration;

use metrics::{Counter, Gauge};

use super::registry::Telemetry;

/// Why a row is not in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogDrop {
    /// Over `max_rate`.
    Rate,
    /// The log's thread was behind.
    Ring,
    /// The row has more bytes than a ring takes.
    TooLarge,
    /// The file could not be written.
    Disk,
    /// The file waited too long for its upload.
    Upload,
}

impl LogDrop {
    const ALL: [(Self, &str); 5] = [
        (Self::Rate, "rate"),
        (Self::Ring, "ring"),
        (Self::TooLarge, "too_large"),
        (Self::Disk, "disk"),
        (Self::Upload, "upload"),
    ];
}

/// Metrics of a pod's decision log.
#[derive(Clone)]
pub struct LogMetrics {
    rows: Counter,
    bytes: Counter,
    dropped: [Counter; LogDrop::ALL.len()],
    deleted: Counter,
    failures: [Counter; 3],
    open_age: Gauge,
    waiting: Gauge,
    upload_lag: Gauge,
}

/// A step of the log that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogStep {
    /// Writing a file.
    Write,
    /// Uploading one.
    Upload,
    /// Deleting old ones.
    Retention,
}

impl std::fmt::Debug for LogMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogMetrics").finish_non_exhaustive()
    }
}

impl Telemetry {
    /// The metrics of a decision log, which begin at zero.
    pub fn log_metrics(&self) -> LogMetrics {
        let dropped = LogDrop::ALL.map(|(_, reason)| {
            let counter = self.counter("rtad_log_dropped_rows_total", &[("reason", reason)]);
            counter.increment(0);
            counter
        });
        let failures = ["write", "upload", "retention"]
            .map(|step| self.counter("rtad_log_failures_total", &[("step", step)]));

        LogMetrics {
            rows: self.counter("rtad_log_rows_total", &[]),
            bytes: self.counter("rtad_log_bytes_total", &[]),
            dropped,
            deleted: self.counter("rtad_log_deleted_files_total", &[]),
            failures,
            open_age: self.gauge("rtad_log_open_file_age_seconds", &[]),
            waiting: self.gauge("rtad_log_waiting_files", &[]),
            upload_lag: self.gauge("rtad_log_upload_lag_seconds", &[]),
        }
    }
}

impl LogMetrics {
    /// Counts a closed file.
    pub fn closed(&self, rows: u64, bytes: u64) {
        self.rows.increment(rows);
        self.bytes.increment(bytes);
    }

    /// Counts lost rows.
    pub fn dropped(&self, reason: LogDrop, rows: u64) {
        self.dropped[reason as usize].increment(rows);
    }

    /// Counts a deleted file.
    pub fn deleted(&self) {
        self.deleted.increment(1);
    }

    /// Counts a failure.
    pub fn failed(&self, step: LogStep) {
        self.failures[step as usize].increment(1);
    }

    /// Sets the age of the open file; zero without one.
    pub fn open_file(&self, age: Duration) {
        self.open_age.set(age.as_secs_f64());
    }

    /// Sets the number of files that wait for their upload, and the age of the oldest one.
    pub fn waiting(&self, files: usize, oldest: Duration) {
        self.waiting.set(files as f64);
        self.upload_lag.set(oldest.as_secs_f64());
    }
}
