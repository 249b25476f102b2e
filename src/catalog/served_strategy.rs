//! A strategy of the catalog, and its counters.

use super::audience::Audience;
use crate::platform::API;
use crate::strategy::{Decision, Strategy, ValueEntry};
use crate::telemetry::{DecisionCounters, PlainCounter, Telemetry};

/// A strategy and its counters, which are created once, not looked up per request.
#[derive(Debug)]
pub(super) struct ServedStrategy {
    pub(super) strategy: Strategy,
    /// Whether its answers depend on a request's attributes.
    pub(super) is_per_request: bool,
    /// Counters of `/v1/decide`.
    decisions: DecisionCounters,
    /// Counters of its values, by index.
    values: Vec<PlainCounter>,
}

impl ServedStrategy {
    pub fn new(
        strategy: Strategy,
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
        Self {
            is_per_request: strategy.is_per_request(),
            decisions: telemetry.decisions(
                API,
                &strategy.name,
                strategy.is_shadow,
                |outcome, reason| has_api && strategy.can_decide(outcome, reason, has_cap),
            ),
            values: strategy.values.iter().enumerate().map(value).collect(),
            strategy,
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
