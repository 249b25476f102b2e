//! History of a pod's counters: a row a minute, and the decisions and devices of today and
//! yesterday.
//!
//! The counters are those of the metrics, read once a minute: requests pay nothing for it. Rows of
//! minutes live in the process. Counts and sketches of days are kept in the folder of the caps'
//! files. Failures of platforms are read once a second, for the log.
//!
//! | file | job |
//! |---|---|
//! | `minutes` | the last hour, a column per series |
//! | `reach` | sketches of a day, and their files |
//! | `days` | decisions and devices of today and yesterday, and their file |

mod days;
mod minutes;
mod reach;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use rtad_core::clock::unix_seconds;
use serde::Serialize;

use crate::cap::Caps;
use crate::telemetry::Telemetry;
use days::Days;
use minutes::Minutes;
use reach::DaySketches;

pub use days::DayCounts;
pub use minutes::MinuteColumns;

/// Time between two rows.
const MINUTE: Duration = Duration::from_secs(60);
/// Time between two reads of the clock: a day ends in time.
const CLOCK_INTERVAL: Duration = Duration::from_secs(1);
/// File of the days, beside those of the caps.
const FILE: &str = "days.json";
/// File of today's sketches, beside it.
const REACH_FILE: &str = "reach.jsonl";
/// Most ended days whose sketches wait for a folder that cannot be written.
const MAX_WAITING: usize = 7;

/// The history of a pod.
#[derive(Debug)]
pub struct History {
    minutes: Mutex<Minutes>,
    days: Mutex<Days>,
    /// The files were not read, or not written the last time. A failure is logged once.
    has_failed: AtomicBool,
    /// Sketches of ended days that are not in the folder yet.
    ended: Mutex<Vec<DaySketches>>,
    /// Folder of days' sketches.
    reach_folder: Option<PathBuf>,
    has_reach_failed: AtomicBool,
    /// Name of the pod in the files of sketches.
    pod: String,
    /// Name of this process's files in the folder: a restarted pod does not replace them.
    name: String,
}

/// Decisions of two days.
#[derive(Debug, Serialize)]
pub struct DaysReport {
    time_zone: String,
    /// Whether a restart keeps the counts.
    kept: bool,
    /// Strategies and buckets whose devices are not counted: there are too many sketches.
    #[serde(skip_serializing_if = "is_zero")]
    reach_uncounted: usize,
    today: DayCounts,
    #[serde(skip_serializing_if = "Option::is_none")]
    yesterday: Option<DayCounts>,
}

const fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Name of the pod; `None` outside containers without one.
pub fn pod() -> Option<String> {
    std::env::var("HOSTNAME")
        .ok()
        .filter(|name| !name.is_empty())
}

impl Default for History {
    fn default() -> Self {
        Self::new("UTC", None, "rtad")
    }
}

impl History {
    /// An empty history with days of this zone, and a folder that gets their sketches with the name
    /// of this pod.
    ///
    /// # Panics
    ///
    /// If the zone is unknown. Reading the config rejects such a zone first.
    pub fn new(time_zone: &str, reach_folder: Option<PathBuf>, pod: &str) -> Self {
        let now = SystemTime::now();
        let since = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            minutes: Mutex::default(),
            days: Mutex::new(Days::new(time_zone, now)),
            has_failed: false.into(),
            ended: Mutex::default(),
            reach_folder,
            has_reach_failed: false.into(),
            pod: pod.to_owned(),
            name: format!("{pod}-{}", since.as_micros()),
        }
    }

    /// The last hour.
    pub fn minutes(&self) -> MinuteColumns {
        self.minutes.lock().columns()
    }

    /// Today and yesterday, by now. The devices of `reach_uncounted` strategies and buckets are not
    /// counted.
    pub fn days(&self, telemetry: &Telemetry, caps: &Caps, reach_uncounted: usize) -> DaysReport {
        let mut days = self.days.lock();
        self.observe(&mut days, telemetry);
        let kept = caps.has_folder() && !self.has_failed.load(Ordering::Relaxed);
        let (today, yesterday) = days.counts(days.sketches(telemetry.reach().sketches()).counts());
        let time_zone = days.time_zone().to_owned();
        DaysReport {
            time_zone,
            kept,
            reach_uncounted,
            today,
            yesterday,
        }
    }

    /// Reads the counters into the days.
    fn observe(&self, days: &mut Days, telemetry: &Telemetry) {
        if let Some(ended) = days.observe(telemetry, SystemTime::now()) {
            self.keep(ended);
        }
    }

    /// Keeps the sketches of a day that ended, until they are written.
    fn keep(&self, ended: DaySketches) {
        let mut waiting = self.ended.lock();
        waiting.push(ended);
        if waiting.len() > MAX_WAITING {
            let lost = waiting.remove(0);
            if self.reach_folder.is_some() {
                tracing::warn!(day = lost.date, "sketches of a day were not written");
            }
        }
    }

    /// Adds a row for the time since the last one, which ends at `wall`.
    pub fn end_minute(&self, telemetry: &Telemetry, wall: SystemTime) {
        self.minutes.lock().push(telemetry, unix_seconds(wall));
    }

    /// Reads the files, and then the counters once a minute, without end.
    pub async fn run(self: Arc<Self>, telemetry: Arc<Telemetry>, caps: Arc<Caps>) {
        let (history, all, files) = (Arc::clone(&self), Arc::clone(&telemetry), Arc::clone(&caps));
        let _ = tokio::task::spawn_blocking(move || history.restore(&all, &files)).await;
        let mut begun = Instant::now();
        loop {
            tokio::time::sleep(CLOCK_INTERVAL).await;
            let now = SystemTime::now();
            let is_over = self.days.lock().is_over(now);
            let is_minute_over = begun.elapsed() >= MINUTE;
            if is_minute_over {
                begun = Instant::now();
                self.end_minute(&telemetry, now);
            }
            if is_over || is_minute_over {
                let (history, all) = (Arc::clone(&self), Arc::clone(&telemetry));
                let files = Arc::clone(&caps);
                let _ = tokio::task::spawn_blocking(move || history.save(&all, &files)).await;
            }
        }
    }

    fn restore(&self, telemetry: &Telemetry, caps: &Caps) {
        let counts = caps.read_file(FILE).and_then(|text| {
            let Some(text) = text else { return Ok(()) };
            self.days.lock().restore(&text, SystemTime::now())
        });
        let sketches = caps.read_file(REACH_FILE).and_then(|lines| {
            let Some(day) = DaySketches::read(&lines.unwrap_or_default())? else {
                return Ok(());
            };
            if !self.days.lock().is_today(&day) {
                self.keep(day);
                return Ok(());
            }
            for (labels, sketch) in day.sketches {
                telemetry.reach().restore(labels, &sketch);
            }
            Ok(())
        });
        if let Err(error) = counts.and(sketches) {
            self.has_failed.store(true, Ordering::Relaxed);
            let error = error.to_string();
            tracing::warn!(error, "counts of days were not read: they begin at zero");
        }
    }

    /// Writes the counts and the sketches of the days. A failure is logged. Blocks.
    pub fn save(&self, telemetry: &Telemetry, caps: &Caps) {
        let (text, today) = {
            let mut days = self.days.lock();
            self.observe(&mut days, telemetry);
            let today = days.sketches(telemetry.reach().sketches());
            (days.to_json(today.counts()), today)
        };
        let counts = caps.write_file(FILE, &text);
        let sketches = caps.write_file(REACH_FILE, &today.to_lines(&self.pod));
        let effect = "counts of days were not saved: a restart begins at zero";
        log_change(&self.has_failed, counts.and(sketches), effect);
        let Some(folder) = &self.reach_folder else {
            return;
        };
        // Without the lock: a folder that hangs must not hold up who ends a day.
        let ended = std::mem::take(&mut *self.ended.lock());
        let write = |day: &DaySketches| day.write(folder, &self.pod, &self.name);
        let written = ended.iter().chain([&today]).try_for_each(write);
        if written.is_err() {
            self.ended.lock().splice(0..0, ended);
        }
        log_change(
            &self.has_reach_failed,
            written,
            "sketches of days were not written",
        );
    }
}

/// Logs the first of several failures.
fn log_change(has_failed: &AtomicBool, result: io::Result<()>, effect: &str) {
    let had_failed = has_failed.swap(result.is_err(), Ordering::Relaxed);
    if let Err(error) = result
        && !had_failed
    {
        let error = error.to_string();
        tracing::warn!(error, "{effect}");
    }
}

#[cfg(test)]
mod tests;
