//! Log of refused requests: a line a minute for each route and cause that has new ones.
//!
//! Counters show how many requests were refused; the log also says so to those who have no metrics.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Shortest time between two lines about the same route and cause.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// A route or platform, and a cause.
pub type RefusalLabels = (String, &'static str);

/// Decides which counts have a line.
#[derive(Debug, Default)]
pub struct RefusalLog {
    /// The logged counts, and the times of their last lines.
    logged: BTreeMap<RefusalLabels, (u64, Instant)>,
}

impl RefusalLog {
    /// The requests since the last line, of each route and cause that has new ones and no line in
    /// the last minute. `totals` are counts since the start.
    pub fn due(
        &mut self,
        totals: impl IntoIterator<Item = (RefusalLabels, u64)>,
        now: Instant,
    ) -> Vec<(RefusalLabels, u64)> {
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

/// Counts of refused requests by route and code of the problem, since the start.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<BTreeMap<RefusalLabels, u64>>);

impl Refusals {
    /// Counts a refused request.
    pub fn count(&self, route: &str, code: &'static str) {
        *self.0.lock().entry((route.to_owned(), code)).or_default() += 1;
    }

    /// Logs those that are due.
    pub fn log(&self, log: &mut RefusalLog, now: Instant) {
        let totals = self.0.lock().clone();
        for ((route, code), requests) in log.due(totals, now) {
            tracing::warn!(route, code, requests, "requests refused");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_route_and_cause_has_a_line_a_minute_with_its_count() {
        let mut log = RefusalLog::default();
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
