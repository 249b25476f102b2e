//! Metrics of a window and of an audience that follows it. Handles are made once: a lookup by label
//! per request costs more than a batch.

use metrics::{Counter, Gauge, Label};
use parking_lot::Mutex;
use serde::Serialize;

use rtad_core::snapshot::AudienceName;
use rtad_window::Seen;

use super::super::telemetry::Telemetry;
use super::config::WindowConfig;

/// Results of events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Results {
    pub(in super::super) new: u64,
    pub(in super::super) duplicate: u64,
    /// Those of the new events that found no room.
    pub(in super::super) full: u64,
    pub(in super::super) unusable: u64,
    /// Of a time whose entries have expired.
    pub(in super::super) late: u64,
    /// Refused or not durable.
    pub(in super::super) failed: u64,
}

impl Results {
    pub fn of(seen: &[Seen]) -> Self {
        let mut results = Self::default();
        for seen in seen {
            match seen {
                Seen::New => results.new += 1,
                Seen::Duplicate(_) => results.duplicate += 1,
            }
        }
        results
    }
}

/// Numbers of events of a window.
pub struct EventCounters {
    new: Counter,
    duplicate: Counter,
    pub(super) full: Counter,
    unusable: Counter,
    late: Counter,
    failed: Counter,
    pub(super) checks: Counter,
    pub(super) forgotten: Counter,
    /// Results since the start of the process, for `GET /v1/windows`.
    totals: Mutex<Results>,
}

fn label(window: &AudienceName) -> Label {
    Label::new("window", window.as_str().to_owned())
}

impl EventCounters {
    pub fn new(telemetry: &Telemetry, window: &AudienceName) -> Self {
        let events = |result| {
            let labels = vec![label(window), Label::from_static_parts("result", result)];
            telemetry
                .exporter
                .counter("rtad_window_events_total", labels)
        };
        let counter = |name| telemetry.exporter.counter(name, vec![label(window)]);
        Self {
            new: events("new"),
            duplicate: events("duplicate"),
            full: events("full"),
            unusable: events("unusable"),
            late: events("late"),
            failed: events("failed"),
            checks: counter("rtad_window_checks_total"),
            forgotten: counter("rtad_window_forgotten_total"),
            totals: Mutex::default(),
        }
    }

    pub fn add(&self, results: Results) {
        self.new.increment(results.new);
        self.duplicate.increment(results.duplicate);
        self.unusable.increment(results.unusable);
        self.late.increment(results.late);
        self.failed.increment(results.failed);
        let mut totals = self.totals.lock();
        totals.new += results.new;
        totals.duplicate += results.duplicate;
        totals.unusable += results.unusable;
        totals.late += results.late;
        totals.failed += results.failed;
    }

    pub fn totals(&self) -> Results {
        *self.totals.lock()
    }
}

/// Metrics of a window.
pub struct Counters {
    pub(super) events: EventCounters,
    pub(super) answers_evicted: Counter,
    pub(super) entries: Gauge,
    pub(super) fill_ratio: Gauge,
    pub(super) log_bytes: Gauge,
    pub(super) owner: Gauge,
    pub(super) behind: Gauge,
}

impl Counters {
    pub fn new(telemetry: &Telemetry, config: &WindowConfig) -> Self {
        let window = &config.name;
        let gauge = |name| telemetry.exporter.gauge(name, vec![label(window)]);
        gauge("rtad_window_capacity").set(config.spec.capacity as f64);
        Self {
            events: EventCounters::new(telemetry, window),
            answers_evicted: telemetry
                .exporter
                .counter("rtad_window_answers_evicted_total", vec![label(window)]),
            entries: gauge("rtad_window_entries"),
            fill_ratio: gauge("rtad_window_fill_ratio"),
            log_bytes: gauge("rtad_window_log_bytes"),
            owner: gauge("rtad_window_owner"),
            behind: gauge("rtad_window_behind_seconds"),
        }
    }
}

/// Age of the oldest event that an audience which follows a window lacks.
pub fn lag_of(telemetry: &Telemetry, audience: &AudienceName) -> Gauge {
    let label = Label::new("audience", audience.as_str().to_owned());
    telemetry
        .exporter
        .gauge("rtad_window_audience_lag_seconds", vec![label])
}

/// `# HELP` of every metric of windows.
pub fn describe() {
    use metrics::{Unit, describe_counter, describe_gauge};
    describe_counter!("rtad_window_events_total", "Events by result");
    describe_counter!("rtad_window_checks_total", "Ids checked without counting");
    describe_counter!("rtad_window_forgotten_total", "Entries erased on request");
    describe_counter!(
        "rtad_window_answers_evicted_total",
        "Answers kept for retries that left before ten minutes, for lack of answers_memory"
    );
    describe_gauge!("rtad_window_entries", "Live entries");
    describe_gauge!("rtad_window_capacity", "Configured capacity");
    describe_gauge!("rtad_window_fill_ratio", "Live entries by capacity");
    describe_gauge!(
        "rtad_window_log_bytes",
        Unit::Bytes,
        "Log since the last table"
    );
    describe_gauge!(
        "rtad_window_owner",
        "1 while this process owns the window and accepts its events"
    );
    describe_gauge!(
        "rtad_window_behind_seconds",
        Unit::Seconds,
        "Age of the oldest events of an owner that the store lacks; of a standby, time since it had \
         all of the store"
    );
    describe_gauge!(
        "rtad_window_audience_lag_seconds",
        Unit::Seconds,
        "Age of the oldest event that is not yet in the audience"
    );
}
