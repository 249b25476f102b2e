//! Request metrics: counts and durations per route.

use std::fmt::Write as _;
use std::time::Duration;

use super::sharded_counter::ShardedCounter;

/// Upper edges of the histogram, in nanoseconds: from the cost of a decision to beyond the
/// platforms' deadline of 60 ms.
const EDGES: [u64; 14] = [
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    60_000_000,
    250_000_000,
];

/// The last bucket has no upper edge.
const BUCKETS: usize = EDGES.len() + 1;
const NANOSECONDS: usize = BUCKETS;
const OK: usize = BUCKETS + 1;

/// The name of the histogram.
const DURATION: &str = "rtad_request_duration_seconds";

/// A route of the decision port, as a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// `GET /v1/check/{audience}/{id}`
    CheckOne,
    /// `POST /v1/check/{audience}`
    CheckMany,
    /// `POST /v1/decide`
    Decide,
    /// Anything else.
    Unknown,
}

impl Route {
    /// All of them; a platform's route has the platform's name instead.
    pub const ALL: [Self; 4] = [Self::CheckOne, Self::CheckMany, Self::Decide, Self::Unknown];

    /// The label's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CheckOne => "check_one",
            Self::CheckMany => "check_many",
            Self::Decide => "decide",
            Self::Unknown => "unknown",
        }
    }
}

/// Metrics of a route. The exporter's own histogram would keep every sample until drained, and read
/// the clock for each.
#[derive(Debug, Clone)]
pub struct RouteMetrics {
    pub(super) route: String,
    counter: ShardedCounter<{ OK + 1 }>,
}

impl RouteMetrics {
    pub(super) fn new(route: &str) -> Self {
        Self {
            route: route.to_owned(),
            counter: ShardedCounter::default(),
        }
    }

    /// Counts a request.
    #[inline]
    pub(super) fn record(&self, duration: Duration, is_ok: bool) {
        let nanoseconds = duration.as_nanos() as u64;
        // Linear: nearly all requests are in the first few buckets.
        let bucket = EDGES
            .iter()
            .position(|edge| nanoseconds <= *edge)
            .unwrap_or(EDGES.len());
        self.counter.add(bucket, 1);
        self.counter.add(NANOSECONDS, nanoseconds);
        if is_ok {
            self.counter.add(OK, 1);
        }
    }

    /// Number of requests answered with 200.
    pub(super) fn ok(&self) -> u64 {
        self.counter.sum(OK)
    }
}

/// The histogram of all routes, in Prometheus' text format. Route names come from the config, which
/// allows no characters to escape.
pub fn render<'a>(routes: impl Iterator<Item = &'a RouteMetrics>, text: &mut String) {
    let _ = write!(
        text,
        "# HELP {DURATION} Time from a request's head to its answer's, by route\n\
         # TYPE {DURATION} histogram\n"
    );

    for RouteMetrics { route, counter } in routes {
        let mut count = 0;
        for (bucket, edge) in EDGES.iter().enumerate() {
            count += counter.sum(bucket);
            let _ = writeln!(
                text,
                r#"{DURATION}_bucket{{route="{route}",le="{}"}} {count}"#,
                *edge as f64 / 1e9
            );
        }

        count += counter.sum(EDGES.len());
        let sum = counter.sum(NANOSECONDS) as f64 / 1e9;
        let _ = writeln!(
            text,
            r#"{DURATION}_bucket{{route="{route}",le="+Inf"}} {count}"#
        );
        let _ = writeln!(text, r#"{DURATION}_sum{{route="{route}"}} {sum}"#);
        let _ = writeln!(text, r#"{DURATION}_count{{route="{route}"}} {count}"#);
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative() {
        let route = RouteMetrics::new("check_one");
        for nanoseconds in [0, 5_000, 5_001, 60_000_000, 250_000_001] {
            route.record(Duration::from_nanos(nanoseconds), nanoseconds != 0);
        }
        let mut text = String::new();
        render([&route].into_iter(), &mut text);
        let series = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(&format!("{DURATION}_{name} ")))
                .unwrap()
        };
        for (edge, count) in [
            ("0.000005", "2"),
            ("0.00001", "3"),
            ("0.025", "3"),
            ("0.06", "4"),
            ("0.25", "4"),
            ("+Inf", "5"),
        ] {
            assert_eq!(
                series(&format!(r#"bucket{{route="check_one",le="{edge}"}}"#)),
                count,
                "{edge}"
            );
        }
        assert_eq!(series(r#"count{route="check_one"}"#), "5");
        assert_eq!(series(r#"sum{route="check_one"}"#), "0.310010002");
        assert_eq!(route.ok(), 4);
    }
}
