//! A strategy of the catalog, and its counters.

use super::audience::Audience;
use crate::platform::API;
use crate::strategy::{Decision, Strategy, ValueEntry};
use crate::telemetry::{DecisionCounters, PlainCounter, Telemetry};

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
        has_api: bool,
        has_cap: bool,
        telemetry: &Telemetry,
    ) -> Self {
        let value = |(row, entry): (usize, &ValueEntry)| {
            let audience = entry.audience.map(|index| audiences[index].name.as_str());
            let tiers = entry.tiers.map(|tiers| tiers.to_string());
            telemetry.value(&strategy.name, row, audience, tiers.as_deref())
        };
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
                |outcome, reason| has_api && strategy.can_decide(outcome, reason, has_cap),
            ),
            values: strategy.values.iter().enumerate().map(value).collect(),
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
