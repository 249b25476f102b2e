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
