//! State that sync shares with the ports: metrics, readiness, and the results of recent polls.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::cap::Caps;
use crate::telemetry::Telemetry;
use rtad_core::snapshot::AudienceName;

/// Readiness of the pod. Set once, when all required audiences are loaded and the decision port is
/// open. Cleared once, on draining or at the end of the sync thread.
#[derive(Debug, Default)]
pub struct Readiness {
    complete: AtomicBool,
    open: AtomicBool,
    draining: AtomicBool,
    sync_ended: AtomicBool,
}

impl Readiness {
    /// Whether the pod is complete, open and not draining, and the sync thread runs. A failed
    /// refresh changes nothing.
    pub fn is_ready(&self) -> bool {
        let is_complete = self.complete.load(Ordering::Acquire);
        is_complete && self.is_open() && !self.is_draining() && self.is_sync_alive()
    }

    /// Whether the sync thread runs: without it, no later change is served.
    pub fn is_sync_alive(&self) -> bool {
        !self.sync_ended.load(Ordering::Acquire)
    }

    /// Whether the decision port is open.
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Whether the process is draining.
    #[inline]
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Records that every required audience is loaded.
    pub fn complete(&self) {
        self.complete.store(true, Ordering::Release);
    }

    /// Records that the decision port answers.
    pub fn open(&self) {
        self.open.store(true, Ordering::Release);
    }

    /// Records that the sync thread has ended.
    fn end_sync(&self) {
        self.sync_ended.store(true, Ordering::Release);
    }

    /// Begins the drain.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }
}

/// Result of the last poll of an audience.
#[derive(Debug, Clone, serde::Serialize)]
pub struct LastSync {
    /// Time of the poll, in seconds since 1970.
    pub at_unix_seconds: u64,
    /// `ok`, `unchanged`, or the cause of the failure.
    pub result: &'static str,
    /// The error chain of a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Consecutive polls with one result. Each load is a run of its own. Several failures keep the last
/// error.
#[derive(Debug, Clone, serde::Serialize)]
pub struct SyncRun {
    /// Time of the first poll, in seconds since 1970.
    pub since_unix_seconds: u64,
    /// Number of polls.
    pub count: u64,
    /// Duration of the last poll.
    pub seconds: f64,
    /// The generation that was loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// Result of the last poll.
    #[serde(flatten)]
    pub last: LastSync,
}

/// Runs kept for each audience: hours of polls.
const MAX_RUNS: usize = 20;

/// Recent polls of each audience; written by sync, read by the admin port.
#[derive(Debug, Default)]
pub struct SyncHistory(Mutex<BTreeMap<AudienceName, VecDeque<SyncRun>>>);

impl SyncHistory {
    /// Result of the last poll of the audience; `None` before the first.
    pub fn last(&self, audience: &AudienceName) -> Option<LastSync> {
        Some(self.0.lock().get(audience)?.front()?.last.clone())
    }

    /// Recent polls of the audience, newest first.
    pub fn runs(&self, audience: &AudienceName) -> Vec<SyncRun> {
        self.0
            .lock()
            .get(audience)
            .map_or_else(Vec::new, |runs| runs.iter().cloned().collect())
    }

    pub(super) fn record(
        &self,
        audience: &AudienceName,
        last: LastSync,
        generation: Option<u64>,
        took: Duration,
    ) {
        let seconds = took.as_secs_f64();
        let mut audiences = self.0.lock();
        let runs = audiences.entry(audience.clone()).or_default();
        match runs.front_mut() {
            Some(same) if generation.is_none() && same.last.result == last.result => {
                (same.last, same.seconds) = (last, seconds);
                same.count += 1;
            }
            _ => {
                let since_unix_seconds = last.at_unix_seconds;
                runs.push_front(SyncRun {
                    since_unix_seconds,
                    count: 1,
                    seconds,
                    generation,
                    last,
                });
                runs.truncate(MAX_RUNS);
            }
        }
    }
}

/// State that sync shares with the ports.
#[derive(Debug, Clone, Default)]
pub struct Shared {
    /// All metrics.
    pub telemetry: Arc<Telemetry>,
    /// Readiness of the pod.
    pub readiness: Arc<Readiness>,
    /// Recent polls.
    pub polls: Arc<SyncHistory>,
    /// Caps of the strategies.
    pub caps: Arc<Caps>,
}

/// Guard of the sync thread: dropped when it ends, also by a panic.
#[derive(Debug)]
pub struct SyncAlive(Shared);

impl SyncAlive {
    pub(super) fn new(shared: &Shared) -> Self {
        shared.telemetry.sync_alive(true);
        Self(shared.clone())
    }
}

impl Drop for SyncAlive {
    fn drop(&mut self) {
        self.0.readiness.end_sync();
        self.0.telemetry.sync_alive(false);
        if std::thread::panicking() {
            tracing::error!("the sync thread ended: restart the process");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_and_a_metric_show_a_dead_sync_thread() {
        let shared = Shared::default();
        shared.readiness.complete();
        shared.readiness.open();
        let alive = SyncAlive(shared.clone());
        assert!(shared.readiness.is_ready());
        let thread = std::thread::spawn(move || {
            let _alive = alive;
            panic!("sync fails");
        });
        thread.join().unwrap_err();
        assert!(!shared.readiness.is_ready());
        assert!(shared.telemetry.render().contains("rtad_sync_alive 0"));
    }

    #[test]
    fn equal_polls_form_one_run_and_the_oldest_runs_are_dropped() {
        let (history, name) = (SyncHistory::default(), "a".parse().unwrap());
        let poll = |at, result, error: Option<&str>, generation| {
            let last = LastSync {
                at_unix_seconds: at,
                result,
                error: error.map(str::to_owned),
            };
            history.record(&name, last, generation, Duration::from_millis(at));
        };
        assert!(history.last(&name).is_none() && history.runs(&name).is_empty());
        poll(1, "ok", None, Some(7));
        poll(2, "ok", None, Some(7));
        for at in 3..6 {
            poll(at, "unchanged", None, None);
        }
        poll(6, "store", Some("refused"), None);
        poll(7, "store", Some("reset"), None);
        let seen: Vec<_> = history
            .runs(&name)
            .into_iter()
            .map(|run| {
                (
                    run.since_unix_seconds,
                    run.last.at_unix_seconds,
                    run.count,
                    run.generation,
                )
            })
            .collect();
        assert_eq!(
            seen,
            [
                (6, 7, 2, None),
                (3, 5, 3, None),
                (2, 2, 1, Some(7)),
                (1, 1, 1, Some(7))
            ]
        );
        assert_eq!(history.last(&name).unwrap().error.as_deref(), Some("reset"));
        (100..200).for_each(|at| poll(at, "ok", None, Some(at)));
        let runs = history.runs(&name);
        assert_eq!(
            (runs.len(), runs[0].generation, runs[19].generation),
            (MAX_RUNS, Some(199), Some(180))
        );
    }
}
