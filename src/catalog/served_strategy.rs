//! A strategy of the catalog, and its counters.

use super::audience::Audience;
use crate::platform::API;
use crate::strategy::{Decision, Experiment, Strategy};
use crate::telemetry::{DecisionCounters, PlainCounter, Telemetry, ValueLabels};

/// Counters of a strategy, and properties of its rules: made once, not per request.
#[derive(Debug)]
pub(super) struct ServedStrategy {
    /// Its audiences, by index, each once.
    pub(super) audiences: Vec<usize>,
    /// Whether its answers depend on a request's attributes.
    pub(super) is_per_request: bool,
    /// Counters of `/v1/decide`.
    decisions: DecisionCounters,
    /// Counters of its values, by index.
    values: Vec<PlainCounter>,
}

impl ServedStrategy {
    pub fn new(
        strategy: &Strategy,
        audiences: &[Audience],
        experiments: &[Experiment],
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
            decisions: telemetry.decisions(
                API,
                &strategy.name,
                strategy.is_shadow,
                |outcome, reason| has_api && strategy.can_decide(outcome, reason),
            ),
            values,
        }
    }

    /// Counts a decision of `/v1/decide`.
    #[inline]
    pub(super) fn count(&self, decision: Decision) {
        self.decisions.count(decision);
    }

    /// Counts a bid with a value.
    #[inline]
    pub(super) fn count_value(&self, decision: Decision) {
        if let Some(row) = decision.value.index {
            self.values[usize::from(row)].increment();
        }
    }
}
