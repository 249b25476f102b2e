//! Counters of a strategy's decisions under the name of a platform, by the leaf that refuses.

use super::audience::Audience;
use crate::strategy::{Decision, Experiment, Leaf, Outcome, Reason, Strategy};
use crate::telemetry::{DecisionCounters, DecisionLabels, Telemetry};

/// A leaf of a strategy, with its name in metrics and in the log.
#[derive(Debug)]
pub(super) struct NamedLeaf {
    pub(super) leaf: Leaf,
    pub(super) name: String,
}

impl NamedLeaf {
    /// The leaves of a strategy.
    pub(super) fn all(
        strategy: &Strategy,
        audiences: &[Audience],
        experiments: &[Experiment],
    ) -> Vec<Self> {
        let mut named = Vec::new();
        for leaf in strategy.leaves(experiments) {
            let name = leaf.name(|index| audiences[index].name.to_string(), experiments);
            named.push(Self { leaf, name });
        }
        named
    }
}

/// Counters of a strategy's decisions under one platform's name.
#[derive(Debug)]
pub(super) struct StrategyCounters {
    /// Bids, and no-bids that no leaf makes.
    plain: DecisionCounters,
    /// No-bids, by index of the leaf among the strategy's.
    by_leaf: Vec<DecisionCounters>,
}

impl StrategyCounters {
    /// Those of a strategy with these leaves. Decisions have a series before their first one if
    /// requests can reach the strategy under the platform's name.
    pub(super) fn new(
        platform: &str,
        strategy: &Strategy,
        leaves: &[NamedLeaf],
        is_reached: bool,
        telemetry: &Telemetry,
    ) -> Self {
        let mut labels = DecisionLabels {
            platform: platform.to_owned(),
            strategy: strategy.name.clone(),
            condition: String::new(),
            is_shadow: strategy.is_shadow,
        };
        let plain = telemetry.decisions(&labels, |outcome, reason| {
            let has_leaf = matches!(reason, Reason::Member | Reason::Rule | Reason::Bucket);
            let is_plain = outcome == Outcome::Bid || !has_leaf;
            is_reached && is_plain && strategy.can_decide(outcome, reason)
        });

        let mut by_leaf = Vec::new();
        for named in leaves {
            labels.condition.clone_from(&named.name);
            by_leaf.push(telemetry.decisions(&labels, |outcome, reason| {
                let is_refusal = outcome == Outcome::NoBid;
                is_reached && is_refusal && strategy.can_refuse_by(named.leaf, reason)
            }));
        }
        Self { plain, by_leaf }
    }

    /// Counts a decision, which the leaf of this index makes.
    #[inline]
    pub(super) fn count(&self, decision: Decision, leaf: Option<usize>) {
        let counters = match leaf {
            Some(index) => &self.by_leaf[index],
            None => &self.plain,
        };
        counters.count(decision);
    }
}
