//! Metrics of the writer, in Prometheus text format. Labels are closed sets and names of
//! existing audiences, never ids.

use std::collections::HashSet;
use std::time::Duration;

use metrics::{Counter, Gauge, Label, Unit};
use parking_lot::Mutex;

use rtad_core::snapshot::AudienceName;
use rtad_http::exporter::Exporter;
use rtad_http::request_error::RequestError;

use super::error::ApiError;
use super::op::Op;

/// The histogram, and its edges in seconds: from a fast local disk to a slow bucket.
const APPEND_SECONDS: &str = "rtad_writer_append_duration_seconds";
const APPEND_EDGES: [f64; 11] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
];

/// Metrics of this process.
pub struct Telemetry {
    /// All of them, for `GET /metrics`.
    pub exporter: Exporter,
    queue: Gauge,
    /// Audiences that exist or existed; only these become labels.
    known: Mutex<HashSet<AudienceName>>,
}

impl Default for Telemetry {
    fn default() -> Self {
        let exporter = Exporter::new(APPEND_SECONDS, &APPEND_EDGES);
        exporter.record(describe);
        let version = Label::from_static_parts("version", env!("CARGO_PKG_VERSION"));
        exporter.gauge("rtad_build_info", vec![version]).set(1.0);

        Self {
            queue: exporter.gauge("rtad_writer_queue", Vec::new()),
            exporter,
            known: Mutex::default(),
        }
    }
}

/// `# HELP` of the metrics of writes.
fn describe() {
    metrics::describe_counter!(
        "rtad_writer_requests_total",
        "Requests answered, by route and HTTP status"
    );
    metrics::describe_counter!(
        "rtad_writer_writes_total",
        "Well-formed requests to write devices of an existing audience, by result"
    );
    metrics::describe_histogram!(
        "rtad_writer_append_duration_seconds",
        Unit::Seconds,
        "Duration of an append, with all coalesced requests"
    );
    metrics::describe_counter!(
        "rtad_writer_conflicts_total",
        "Appends retried after a conflict with another writer"
    );
    metrics::describe_gauge!("rtad_writer_queue", "Requests waiting to be written");
    metrics::describe_gauge!("rtad_build_info", "Always 1; the version is a label");
}

impl Telemetry {
    /// Counts a request by its status.
    pub fn request(&self, route: &'static str, code: u16) {
        let labels = vec![
            Label::from_static_parts("route", route),
            Label::new("code", code.to_string()),
        ];
        self.exporter
            .counter("rtad_writer_requests_total", labels)
            .increment(1);
    }

    /// Counts a write by result, if the audience was ever opened.
    pub fn write(&self, audience: &AudienceName, op: Op, result: &'static str) {
        if self.known.lock().contains(audience) {
            self.writes(audience, op, result).increment(1);
        }
    }

    /// Enables counting for the audience. Failure counters start at 0: Prometheus does not see an
    /// increase in a counter that first appears with a nonzero value.
    pub fn opened(&self, audience: &AudienceName) {
        if !self.known.lock().insert(audience.clone()) {
            return;
        }
        for op in Op::ALL {
            for failure in [
                ApiError::Store,
                ApiError::Contended,
                ApiError::DeltasFull,
                ApiError::TombstonesFull,
                ApiError::NoAnswer,
                RequestError::Overloaded.into(),
                RequestError::Internal.into(),
            ] {
                let _ = self.writes(audience, op, failure.code());
            }
        }
    }

    fn writes(&self, audience: &AudienceName, op: Op, result: &'static str) -> Counter {
        let labels = vec![
            Label::new("audience", audience.as_str().to_owned()),
            Label::from_static_parts("op", op.as_str()),
            Label::from_static_parts("result", result),
        ];
        self.exporter.counter("rtad_writer_writes_total", labels)
    }

    /// Counts an attempt that another writer was faster than.
    pub fn conflict(&self, audience: &AudienceName) {
        self.conflicts(audience).increment(1);
    }

    fn conflicts(&self, audience: &AudienceName) -> Counter {
        let labels = vec![Label::new("audience", audience.as_str().to_owned())];
        self.exporter.counter("rtad_writer_conflicts_total", labels)
    }

    /// Records the time of an append.
    pub fn appended(&self, audience: &AudienceName, duration: Duration) {
        // Starts the conflict counter at 0.
        let _ = self.conflicts(audience);
        let labels = vec![Label::new("audience", audience.as_str().to_owned())];
        self.exporter
            .histogram(APPEND_SECONDS, labels)
            .record(duration);
    }

    /// Counts a waiting request until the returned guard is dropped.
    pub fn waiting(&self) -> WaitingGuard {
        self.queue.increment(1);
        WaitingGuard(self.queue.clone())
    }
}

pub struct WaitingGuard(Gauge);

impl Drop for WaitingGuard {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}
