//! History of a pod's counters: a row a minute, and the decisions of today and yesterday.
//!
//! The counters are those of the metrics, read once a minute: requests pay nothing for it. Rows of
//! minutes live in the process. Counts of days are kept in the folder of the caps' files. Failures
//! of platforms are read once a second, for the log.
//!
//! | file | job |
//! |---|---|
//! | `minutes` | the last hour, a column per series |
//! | `days` | decisions of today and yesterday, and their file |

mod days;
mod minutes;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use rtad_core::clock::unix_seconds;
use rtad_http::refusals::RefusalLog;
use serde::Serialize;

use crate::cap::Caps;
use crate::telemetry::Telemetry;
use days::Days;
use minutes::Minutes;

pub use days::DayCounts;
pub use minutes::MinuteColumns;

/// Time between two rows.
const MINUTE: Duration = Duration::from_secs(60);
/// Time between two reads of the clock: a day ends in time.
const CLOCK_INTERVAL: Duration = Duration::from_secs(1);
/// File of the days, beside those of the caps.
const FILE: &str = "days.json";

/// The history of a pod.
#[derive(Debug)]
pub struct History {
    minutes: Mutex<Minutes>,
    days: Mutex<Days>,
    /// The file was not read, or not written the last time. A failure is logged once.
    has_failed: AtomicBool,
}

/// Decisions of two days.
#[derive(Debug, Serialize)]
pub struct DaysReport {
    time_zone: String,
    /// Whether a restart keeps the counts.
    kept: bool,
    today: DayCounts,
    #[serde(skip_serializing_if = "Option::is_none")]
    yesterday: Option<DayCounts>,
}

/// Name of the pod; `None` outside containers without one.
pub fn pod() -> Option<String> {
    std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty())
}

impl Default for History {
    fn default() -> Self {
        Self::in_zone("UTC")
    }
}

impl History {
    /// An empty history with days of this zone.
    ///
    /// # Panics
    ///
    /// If the zone is unknown. Reading the config rejects such a zone first.
    pub fn in_zone(time_zone: &str) -> Self {
        let days = Days::new(time_zone, SystemTime::now());
        Self { minutes: Mutex::default(), days: Mutex::new(days), has_failed: false.into() }
    }

    /// The last hour.
    pub fn minutes(&self) -> MinuteColumns {
        self.minutes.lock().columns()
    }

    /// Today and yesterday, by now.
    pub fn days(&self, telemetry: &Telemetry, caps: &Caps) -> DaysReport {
        let mut days = self.days.lock();
        days.observe(telemetry.decision_totals(), SystemTime::now());
        let kept = caps.has_folder() && !self.has_failed.load(Ordering::Relaxed);
        let (today, yesterday) = days.counts();
        DaysReport { time_zone: days.time_zone().to_owned(), kept, today, yesterday }
    }

    /// Adds a row for the time since the last one, which ends at `wall`.
    pub fn end_minute(&self, telemetry: &Telemetry, wall: SystemTime) {
        self.minutes.lock().push(telemetry, unix_seconds(wall));
    }

    /// Reads the file, and then the counters once a minute, without end.
    pub async fn run(self: Arc<Self>, telemetry: Arc<Telemetry>, caps: Arc<Caps>) {
        let (history, files) = (Arc::clone(&self), Arc::clone(&caps));
        let _ = tokio::task::spawn_blocking(move || history.restore(&files)).await;
        let (mut begun, mut refusals) = (Instant::now(), RefusalLog::default());
        loop {
            tokio::time::sleep(CLOCK_INTERVAL).await;
            telemetry.log_refusals(&mut refusals);
            let now = SystemTime::now();
            if self.days.lock().is_over(now) {
                self.days.lock().observe(telemetry.decision_totals(), now);
            }
            if begun.elapsed() < MINUTE {
                continue;
            }
            begun = Instant::now();
            self.end_minute(&telemetry, now);
            let (history, telemetry) = (Arc::clone(&self), Arc::clone(&telemetry));
            let files = Arc::clone(&caps);
            let _ = tokio::task::spawn_blocking(move || history.save(&telemetry, &files)).await;
        }
    }

    fn restore(&self, caps: &Caps) {
        let restored = caps.read_file(FILE).and_then(|text| {
            let Some(text) = text else { return Ok(()) };
            self.days.lock().restore(&text, SystemTime::now())
        });
        if let Err(error) = restored {
            self.has_failed.store(true, Ordering::Relaxed);
            let error = error.to_string();
            tracing::warn!(error, "counts of days were not read: they begin at zero");
        }
    }

    /// Writes the counts of the days. A failure is logged. Blocks.
    pub fn save(&self, telemetry: &Telemetry, caps: &Caps) {
        let text = {
            let mut days = self.days.lock();
            days.observe(telemetry.decision_totals(), SystemTime::now());
            days.to_json()
        };
        let saved = caps.write_file(FILE, &text);
        let had_failed = self.has_failed.swap(saved.is_err(), Ordering::Relaxed);
        if let Err(error) = saved
            && !had_failed
        {
            let error = error.to_string();
            tracing::warn!(error, "counts of days were not saved: a restart begins at zero");
        }
    }
}

#[cfg(test)]
mod tests;
