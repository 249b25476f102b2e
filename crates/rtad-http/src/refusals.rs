//! Log of refused requests: a line a minute for each route and cause that has new ones.
//!
//! Counters show how many requests were refused; the log also says so to those who have no metrics.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Shortest time between two lines about the same route and cause.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Pairs of a route and a code, more than a program has.
const COUNTERS: usize = 256;

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
///
/// The first request of a route and code takes the next counter; later ones find it, without a lock
/// or an allocation.
#[derive(Debug)]
pub struct Refusals([RefusalCounter; COUNTERS]);

#[derive(Debug, Default)]
struct RefusalCounter {
    labels: OnceLock<RefusalLabels>,
    requests: AtomicU64,
}

impl Default for Refusals {
    fn default() -> Self {
        Self(std::array::from_fn(|_| RefusalCounter::default()))
    }
}

impl Refusals {
    /// Counts a refused request.
    pub fn count(&self, route: &str, code: &'static str) {
        let is_of = |counter: &&RefusalCounter| {
            let labels = counter.labels.get_or_init(|| (route.to_owned(), code));
            labels.0 == route && labels.1 == code
        };
        // If all are taken, the last one counts the rest too.
        let counter = self.0.iter().find(is_of).unwrap_or(&self.0[COUNTERS - 1]);
        counter.requests.fetch_add(1, Relaxed);
    }

    /// Logs those that are due.
    pub fn log(&self, log: &mut RefusalLog, now: Instant) {
        let total = |counter: &RefusalCounter| {
            Some((
                counter.labels.get()?.clone(),
                counter.requests.load(Relaxed),
            ))
        };
        let totals = self.0.iter().map_while(total);
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
            let totals = totals
                .iter()
                .map(|(name, cause, n)| (((*name).to_owned(), *cause), *n));
            let due = log.due(totals, begin + Duration::from_secs(seconds));
            due.into_iter()
                .map(|((name, cause), new)| format!("{name} {cause} {new}"))
                .collect()
        };
        let mut check = |seconds, totals: &[(&str, &'static str, u64)], expected: &[&str]| {
            let lines: Vec<String> = due(seconds, totals);
            assert_eq!(lines, expected, "{seconds}");
        };
        check(0, &[("a", "bad_body", 0), ("b", "bad_body", 0)], &[]);
        check(
            1,
            &[("a", "bad_body", 3), ("b", "bad_body", 0)],
            &["a bad_body 3"],
        );
        check(
            2,
            &[("a", "bad_body", 9), ("b", "bad_body", 1)],
            &["b bad_body 1"],
        );
        check(
            3,
            &[("a", "bad_body", 9), ("a", "unauthorized", 2)],
            &["a unauthorized 2"],
        );
        check(
            61,
            &[("a", "bad_body", 10), ("b", "bad_body", 1)],
            &["a bad_body 7"],
        );
        check(200, &[("a", "bad_body", 10), ("b", "bad_body", 1)], &[]);
        check(201, &[("a", "bad_body", 11)], &["a bad_body 1"]);
    }

    #[test]
    fn threads_share_the_counters_of_routes_and_codes() {
        let refusals = Refusals::default();
        let codes = ["bad_body", "unauthorized", "cross_site"];
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 0..3000 {
                        refusals.count(["a", "b"][n % 2], codes[n % 3]);
                    }
                });
            }
        });
        let counters = refusals.0.iter().map_while(|counter| {
            Some((
                counter.labels.get()?.clone(),
                counter.requests.load(Relaxed),
            ))
        });
        let counted: BTreeMap<_, _> = counters.collect();
        assert_eq!(counted.len(), 6);
        assert!(
            counted.values().all(|requests| *requests == 2000),
            "{counted:?}"
        );
    }
}
