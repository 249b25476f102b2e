//! Counters of the workers: of requests, of decisions, and of the device ids read from requests.
//!
//! Each has one slot per worker, so that an increment needs neither an atomic read-modify-write nor
//! a cache line of another worker.

use std::cell::Cell;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use metrics::Counter;
use rtad_core::device::Unusable;

use crate::strategy::{Decision, Outcome, Reason};

thread_local! {
    /// Index of this thread's slot. Slot 0 is shared by all threads without a slot.
    static SLOT: Cell<usize> = const { Cell::new(0) };
}

/// Assigns slot `number + 1` to this thread. `number` must be unique among workers.
pub fn count_as_worker(number: usize) {
    SLOT.set(number + 1);
}

/// Number of slots: one per CPU, and the shared one. Workers with higher numbers use slot 0.
fn slots() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from) + 1
}

/// `N` counters of one thread. Aligned to two cache lines, which processors fetch in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct PerWorkerCounters<const N: usize>([AtomicU64; N]);

/// `N` counters, with a slot per worker.
#[derive(Debug, Clone)]
pub struct ShardedCounter<const N: usize>(Arc<[PerWorkerCounters<N>]>);

impl<const N: usize> Default for ShardedCounter<N> {
    fn default() -> Self {
        let slots =
            (0..slots()).map(|_| PerWorkerCounters(std::array::from_fn(|_| AtomicU64::new(0))));
        Self(slots.collect())
    }
}

impl<const N: usize> ShardedCounter<N> {
    /// Adds to the counter at `index`. Wraps on overflow, so that adding `u64::MAX` subtracts one.
    #[inline]
    pub fn add(&self, index: usize, count: u64) {
        match self.0.get(SLOT.get()) {
            Some(slot) if SLOT.get() > 0 => {
                let counter = &slot.0[index];
                // A load and a store suffice: only this thread writes the slot.
                counter.store(counter.load(Relaxed).wrapping_add(count), Relaxed);
            }
            _ => {
                self.0[0].0[index].fetch_add(count, Relaxed);
            }
        }
    }

    /// Sum of all slots of the counter at `index`.
    pub fn sum(&self, index: usize) -> u64 {
        self.0
            .iter()
            .fold(0, |sum, slot| sum.wrapping_add(slot.0[index].load(Relaxed)))
    }
}

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

const OUTCOMES: [Outcome; 2] = [Outcome::Bid, Outcome::NoBid];
const REASONS: usize = Reason::ALL.len();
const DECISIONS: usize = OUTCOMES.len() * REASONS;

/// Indexes of the results of reading an id.
const USABLE: usize = 0;
const BLANK: usize = 1;
const MALFORMED: usize = 2;
const DOUBTFUL: usize = 3;

/// `N` counters of the workers, and the exporter's copies of them.
#[derive(Debug, Clone)]
struct Counts<const N: usize> {
    counted: ShardedCounter<N>,
    exported: [Counter; N],
}

impl<const N: usize> Counts<N> {
    fn new(exported: [Counter; N]) -> Self {
        Self {
            counted: ShardedCounter::default(),
            exported,
        }
    }

    fn publish(&self) {
        for (index, counter) in self.exported.iter().enumerate() {
            counter.absolute(self.counted.sum(index));
        }
    }
}

/// Results of reading an id, in the order of their counters.
const RESULTS: [&str; 4] = [
    "usable",
    Unusable::Blank.as_str(),
    Unusable::Malformed.as_str(),
    "doubtful",
];

/// Counters of one strategy's decisions under one platform's name.
#[derive(Debug, Clone)]
pub struct DecisionCounters {
    counted: ShardedCounter<DECISIONS>,
    /// Whether a decision can occur: it has a series before its first one.
    can_occur: [bool; DECISIONS],
}

impl Default for DecisionCounters {
    fn default() -> Self {
        Self {
            counted: ShardedCounter::default(),
            can_occur: [false; DECISIONS],
        }
    }
}

impl DecisionCounters {
    /// Adds the decisions that can occur.
    pub(super) fn allow(&mut self, can_occur: impl Fn(Outcome, Reason) -> bool) {
        for (index, known) in self.can_occur.iter_mut().enumerate() {
            *known |= can_occur(OUTCOMES[index / REASONS], Reason::ALL[index % REASONS]);
        }
    }

    /// Counts a decision.
    #[inline]
    pub fn count(&self, decision: Decision) {
        self.counted.add(
            decision.outcome as usize * REASONS + decision.reason as usize,
            1,
        );
    }

    /// `counter` gets the values of the labels `decision` and `reason`.
    pub(super) fn publish(&self, counter: impl Fn(&'static str, &'static str) -> Counter) {
        for (index, can_occur) in self.can_occur.iter().enumerate() {
            let count = self.counted.sum(index);
            if *can_occur || count > 0 {
                let outcome = OUTCOMES[index / REASONS].as_str();
                let reason = Reason::ALL[index % REASONS].as_str();
                counter(outcome, reason).absolute(count);
            }
        }
    }
}

/// Counters of one strategy's decisions about the devices of one bucket.
#[derive(Debug, Clone)]
pub struct BucketCounters(Counts<2>);

impl BucketCounters {
    /// `counter` gets the value of the label `decision`.
    pub(super) fn new(counter: impl Fn(&str) -> Counter) -> Self {
        Self(Counts::new(
            OUTCOMES.map(|outcome| counter(outcome.as_str())),
        ))
    }

    /// Counts a decision.
    #[inline]
    pub fn count(&self, decision: Decision) {
        self.0.counted.add(decision.outcome as usize, 1);
    }

    pub(super) fn publish(&self) {
        self.0.publish();
    }
}

/// Counter of the bids with one value, or of a platform's failures with one cause.
#[derive(Debug, Clone)]
pub struct PlainCounter(Counts<1>);

impl PlainCounter {
    pub(super) fn new(counter: Counter) -> Self {
        Self(Counts::new([counter]))
    }

    /// Counts one.
    #[inline]
    pub fn increment(&self) {
        self.0.counted.add(0, 1);
    }

    pub(super) fn publish(&self) {
        self.0.publish();
    }
}

/// Counters of the ids of one kind, by result. A result has a series once it has occurred: a
/// platform sends few kinds.
#[derive(Debug, Clone, Default)]
pub struct IdCounters(ShardedCounter<4>);

impl IdCounters {
    /// Counts one id.
    #[inline]
    pub fn count<T>(&self, id: &Result<T, Unusable>) {
        let result = match id {
            Ok(_) => USABLE,
            Err(Unusable::Blank) => BLANK,
            Err(Unusable::Malformed) => MALFORMED,
        };
        self.0.add(result, 1);
    }

    /// Counts the ids of a batch.
    pub fn add(&self, usable: u64, blank: u64, malformed: u64) {
        for (result, count) in [(USABLE, usable), (BLANK, blank), (MALFORMED, malformed)] {
            self.0.add(result, count);
        }
    }

    /// Counts one that its sender marks as doubtful.
    #[inline]
    pub fn count_doubtful(&self) {
        self.0.add(DOUBTFUL, 1);
    }

    /// `counter` gets the value of the label `result`.
    pub(super) fn publish(&self, counter: impl Fn(&'static str) -> Counter) {
        for (index, result) in RESULTS.into_iter().enumerate() {
            let count = self.0.sum(index);
            if count > 0 {
                counter(result).absolute(count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_includes_worker_and_shared_slots() {
        let counter = ShardedCounter::<3>::default();
        std::thread::scope(|scope| {
            // Two workers, two threads without a slot, and a worker number above the CPU count.
            for number in [Some(0), Some(1), None, None, Some(1_000_000)] {
                let counter = &counter;
                scope.spawn(move || {
                    if let Some(number) = number {
                        count_as_worker(number);
                    }
                    for _ in 0..100_000 {
                        counter.add(1, 2);
                        counter.add(2, 1);
                        counter.add(2, u64::MAX);
                    }
                });
            }
        });
        assert_eq!([0, 1, 2].map(|index| counter.sum(index)), [0, 1_000_000, 0]);
    }

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
