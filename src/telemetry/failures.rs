//! Failures of platforms' requests: counters, and a log line a minute for each that grows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use metrics::Counter;

/// Shortest time between two lines about the same platform and cause.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// A platform's name, and a cause.
pub(super) type FailureLabels = (String, &'static str);

/// Counter of a platform's failures with one cause.
#[derive(Debug, Clone)]
pub struct FailureCounter {
    exported: Counter,
    /// The exporter's counter cannot be read.
    count: Arc<AtomicU64>,
}

impl FailureCounter {
    pub(super) fn new(exported: Counter) -> Self {
        Self { exported, count: Arc::default() }
    }

    /// Counts a failure.
    pub fn increment(&self) {
        self.exported.increment(1);
        self.count.fetch_add(1, Relaxed);
    }

    pub(super) fn total(&self) -> u64 {
        self.count.load(Relaxed)
    }
}

/// The failures that have been logged.
#[derive(Debug, Default)]
pub struct FailureLog {
    /// Their number, and the time of the last line.
    logged: BTreeMap<FailureLabels, (u64, Instant)>,
}

impl FailureLog {
    /// Logs the failures since the last line, of every platform and cause that has new ones and no
    /// line in the last minute.
    pub fn update(&mut self, totals: impl IntoIterator<Item = (FailureLabels, u64)>, now: Instant) {
        for ((platform, cause), requests) in self.due(totals, now) {
            tracing::warn!(platform, cause, requests, "requests not answered by their ids");
        }
    }

    fn due(
        &mut self,
        totals: impl IntoIterator<Item = (FailureLabels, u64)>,
        now: Instant,
    ) -> Vec<(FailureLabels, u64)> {
        let mut due = Vec::new();
        for (labels, total) in totals {
            let (count, at) = self.logged.get(&labels).copied().unzip();
            let new = total - count.unwrap_or(0);
            if new > 0 && at.is_none_or(|at| now.duration_since(at) >= LOG_INTERVAL) {
                self.logged.insert(labels.clone(), (total, now));
                due.push((labels, new));
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_platform_and_cause_has_a_line_a_minute_with_its_count() {
        let mut log = FailureLog::default();
        let begin = Instant::now();
        let mut due = |seconds, totals: &[(&str, &'static str, u64)]| {
            let totals = totals.iter().map(|(name, cause, n)| (((*name).to_owned(), *cause), *n));
            let due = log.due(totals, begin + Duration::from_secs(seconds));
            due.into_iter().map(|((name, cause), new)| format!("{name} {cause} {new}")).collect()
        };
        let mut check = |seconds, totals: &[(&str, &'static str, u64)], expected: &[&str]| {
            let lines: Vec<String> = due(seconds, totals);
            assert_eq!(lines, expected, "{seconds}");
        };
        check(0, &[("a", "bad_body", 0), ("b", "bad_body", 0)], &[]);
        check(1, &[("a", "bad_body", 3), ("b", "bad_body", 0)], &["a bad_body 3"]);
        check(2, &[("a", "bad_body", 9), ("b", "bad_body", 1)], &["b bad_body 1"]);
        check(3, &[("a", "bad_body", 9), ("a", "unauthorized", 2)], &["a unauthorized 2"]);
        check(61, &[("a", "bad_body", 10), ("b", "bad_body", 1)], &["a bad_body 7"]);
        check(200, &[("a", "bad_body", 10), ("b", "bad_body", 1)], &[]);
        check(201, &[("a", "bad_body", 11)], &["a bad_body 1"]);
    }
}
