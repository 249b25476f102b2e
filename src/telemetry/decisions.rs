//! Decision metrics: outcomes per strategy, and the device ids read from requests.

use metrics::Counter;

use super::sharded_counter::ShardedCounter;
use crate::strategy::{Decision, Outcome, Reason};
use rtad_core::device::Unusable;

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
pub struct DecisionCounters(Counts<DECISIONS>);

impl DecisionCounters {
    /// `counter` gets the values of the labels `decision` and `reason`.
    pub(super) fn new(counter: impl Fn(&str, &str) -> Counter) -> Self {
        Self(Counts::new(std::array::from_fn(|index| {
            counter(
                OUTCOMES[index / REASONS].as_str(),
                Reason::ALL[index % REASONS].as_str(),
            )
        })))
    }

    /// Counts a decision.
    #[inline]
    pub fn count(&self, decision: Decision) {
        self.0.counted.add(
            decision.outcome as usize * REASONS + decision.reason as usize,
            1,
        );
    }

    pub(super) fn publish(&self) {
        self.0.publish();
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

/// Counters of the ids of one kind, by result.
#[derive(Debug, Clone)]
pub struct IdCounters(Counts<4>);

impl IdCounters {
    /// `counter` gets the value of the label `result`.
    pub(super) fn new(counter: impl Fn(&str) -> Counter) -> Self {
        Self(Counts::new(RESULTS.map(counter)))
    }

    /// Counts one id.
    #[inline]
    pub fn count<T>(&self, id: &Result<T, Unusable>) {
        let result = match id {
            Ok(_) => USABLE,
            Err(Unusable::Blank) => BLANK,
            Err(Unusable::Malformed) => MALFORMED,
        };
        self.0.counted.add(result, 1);
    }

    /// Counts the ids of a batch.
    pub fn add(&self, usable: u64, blank: u64, malformed: u64) {
        for (result, count) in [(USABLE, usable), (BLANK, blank), (MALFORMED, malformed)] {
            self.0.counted.add(result, count);
        }
    }

    /// Counts one that its sender marks as doubtful.
    #[inline]
    pub fn count_doubtful(&self) {
        self.0.counted.add(DOUBTFUL, 1);
    }

    pub(super) fn publish(&self) {
        self.0.publish();
    }
}
