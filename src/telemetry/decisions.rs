//! What is counted of decisions, and of the ids that they are made by.

use metrics::Counter;

use super::Telemetry;
use super::sharded_counter::ShardedCounter;
use crate::strategy::{Decision, Outcome, Reason};
use rtad_core::device::Unusable;

const OUTCOMES: [Outcome; 2] = [Outcome::Bid, Outcome::NoBid];
const REASONS: usize = Reason::ALL.len();
const DECISIONS: usize = OUTCOMES.len() * REASONS;

/// What becomes of an id.
const USABLE: usize = 0;
const BLANK: usize = 1;
const MALFORMED: usize = 2;
const DOUBTFUL: usize = 3;

/// `N` counts, and the exporter's counters of the same.
#[derive(Debug, Clone)]
struct Counts<const N: usize> {
    counter: ShardedCounter<N>,
    counters: [Counter; N],
}

impl<const N: usize> Counts<N> {
    fn new(counters: [Counter; N]) -> Self {
        Self { counter: ShardedCounter::default(), counters }
    }

    fn publish(&self) {
        for (place, counter) in self.counters.iter().enumerate() {
            counter.absolute(self.counter.sum(place));
        }
    }
}

/// Counters of one strategy's decisions under one platform's name.
#[derive(Debug, Clone)]
pub struct DecisionCounters(Counts<DECISIONS>);

impl DecisionCounters {
    /// Counts a decision.
    #[inline]
    pub fn count(&self, decision: Decision) {
        self.0.counter.add(decision.outcome as usize * REASONS + decision.reason as usize, 1);
    }

    pub(super) fn publish(&self) {
        self.0.publish();
    }
}

/// Counters of the ids of one kind, by what became of them.
#[derive(Debug, Clone)]
pub struct IdCounters(Counts<4>);

impl IdCounters {
    /// Counts one id.
    #[inline]
    pub fn count<T>(&self, id: &Result<T, Unusable>) {
        let place = match id {
            Ok(_) => USABLE,
            Err(Unusable::Blank) => BLANK,
            Err(Unusable::Malformed) => MALFORMED,
        };
        self.0.counter.add(place, 1);
    }

    /// Counts one that its sender holds for junk.
    #[inline]
    pub fn count_doubtful(&self) {
        self.0.counter.add(DOUBTFUL, 1);
    }

    pub(super) fn publish(&self) {
        self.0.publish();
    }
}

impl Telemetry {
    /// Counters for a strategy's decisions.
    pub fn decisions(&self, platform: &str, strategy: &str) -> DecisionCounters {
        let new = || {
            DecisionCounters(Counts::new(std::array::from_fn(|place| {
                let labels = [
                    ("platform", platform),
                    ("strategy", strategy),
                    ("decision", OUTCOMES[place / REASONS].as_str()),
                    ("reason", Reason::ALL[place % REASONS].as_str()),
                ];
                self.counter("rtad_decisions_total", &labels)
            })))
        };
        self.tallied()
            .decisions
            .entry((platform.to_owned(), strategy.to_owned()))
            .or_insert_with(new)
            .clone()
    }

    /// Counters for ids of one kind.
    pub fn ids(&self, kind: &str) -> IdCounters {
        let results =
            ["usable", Unusable::Blank.as_str(), Unusable::Malformed.as_str(), "doubtful"];
        let counter =
            |result| self.counter("rtad_ids_total", &[("kind", kind), ("result", result)]);
        self.tallied()
            .ids
            .entry(kind.to_owned())
            .or_insert_with(|| IdCounters(Counts::new(results.map(counter))))
            .clone()
    }
}
