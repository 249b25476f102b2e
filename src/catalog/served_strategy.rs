//! A strategy of the catalog, and its counters.

use super::audience::Audience;
use super::counters::{NamedLeaf, StrategyCounters};
use crate::platform::API;
use crate::strategy::{Decision, Experiment, Strategy};
use crate::telemetry::{PlainCounter, Telemetry, ValueLabels};

/// Counters of a strategy, and properties of its rules: made once, not per request.
#[derive(Debug)]
pub(super) struct ServedStrategy {
    /// Its audiences, by index, each once.
    pub(super) audiences: Vec<usize>,
    /// Whether its answers depend on attributes of a request, not only on `os`, which is the
    /// device's.
    pub(super) is_per_request: bool,
    /// Its leaves.
    pub(super) leaves: Vec<NamedLeaf>,
    /// Counters of `/v1/decide`.
    decisions: StrategyCounters,
    /// Counters of its values, by index.
    values: Vec<PlainCounter>,
}

impl ServedStrategy {
    pub fn new(
        strategy: &Strategy,
        audiences: &[Audience],
        experiments: &[Experiment],
        leaves: Vec<NamedLeaf>,
        has_api: bool,
        telemetry: &Telemetry,
    ) -> Self {
        let mut values = Vec::with_capacity(strategy.values.len());
        for (row, entry) in strategy.values.iter().enumerate() {
            let mut labels = ValueLabels::default();
            if let Some(index) = entry.audience {
                labels.audience = audiences[index].name.to_string();
            }
            if let Some(tiers) = entry.tiers {
                labels.tier = tiers.to_string();
            }
            if let Some((index, part)) = entry.part {
                let experiment = &experiments[index];
                labels.experiment.clone_from(&experiment.name);
                labels.bucket = experiment.part_name(part).to_owned();
            }
            values.push(telemetry.value(&strategy.name, row, &labels));
        }

        let mut asked: Vec<usize> = strategy.audiences().collect();
        asked.sort_unstable();
        asked.dedup();

        Self {
            audiences: asked,
            is_per_request: strategy.is_per_request(),
            decisions: StrategyCounters::new(API, strategy, &leaves, has_api, telemetry),
            leaves,
            values,
        }
    }

    /// Counts a decision of `/v1/decide`, which the leaf of this index makes.
    #[inline]
    pub(super) fn count(&self, decision: Decision, leaf: Option<usize>) {
        self.decisions.count(decision, leaf);
    }

    /// Counts a bid with a value.
    #[inline]
    pub(super) fn count_value(&self, decision: Decision) {
        if let Some(row) = decision.value.index {
            self.values[usize::from(row)].increment();
        }
    }
}
