//! The strategies that a pod serves: their counters, their experiments and their caps.

use std::sync::Arc;
use std::time::Duration;

use rtad_core::device::{DeviceKey, IdKind};
use tokio::time::Instant;

use super::Audience;
use crate::cap::{Cap, CapTables};
use crate::platform::API;
use crate::strategy::{
    Assignment, Assignments, Decision, Experiment, Leaf, Outcome, Reason, Strategy, Units,
};
use crate::telemetry::{
    BucketCounters, DecisionCounters, DecisionLabels, PlainCounter, Telemetry, ValueLabels,
};

/// Counters of a strategy, and properties of its rules: made once, not per request.
#[derive(Debug)]
pub struct ServedStrategy {
    /// Its audiences, by index, each once.
    pub audiences: Vec<usize>,
    /// Whether its answers depend on attributes of a request, not only on `os`, which is the
    /// device's.
    pub is_per_request: bool,
    /// Its leaves.
    pub leaves: Vec<NamedLeaf>,
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
    pub fn count(&self, decision: Decision, leaf: Option<usize>) {
        self.decisions.count(decision, leaf);
    }

    /// Counts a bid with a value.
    #[inline]
    pub fn count_value(&self, decision: Decision) {
        if let Some(row) = decision.value.index {
            self.values[usize::from(row)].increment();
        }
    }
}

/// A leaf of a strategy, with its name in metrics and in the log.
#[derive(Debug)]
pub struct NamedLeaf {
    pub leaf: Leaf,
    pub name: String,
}

impl NamedLeaf {
    /// The leaves of a strategy.
    pub fn all(
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
pub struct StrategyCounters {
    /// Bids, and no-bids that no leaf makes.
    plain: DecisionCounters,
    /// No-bids, by index of the leaf among the strategy's.
    by_leaf: Vec<DecisionCounters>,
}

impl StrategyCounters {
    /// Those of a strategy with these leaves. Decisions have a series before their first one if
    /// requests can reach the strategy under the platform's name.
    pub fn new(
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
    pub fn count(&self, decision: Decision, leaf: Option<usize>) {
        let counters = match leaf {
            Some(index) => &self.by_leaf[index],
            None => &self.plain,
        };
        counters.count(decision);
    }
}

/// The experiments of a catalog.
#[derive(Debug, Default)]
pub struct ServedExperiments {
    experiments: Vec<Experiment>,
    /// By index of the strategy, then an entry per experiment that it reads.
    counters: Vec<Vec<PartCounters>>,
}

/// Counters of a strategy's decisions by part in an experiment.
#[derive(Debug)]
struct PartCounters {
    /// Index of the experiment.
    experiment: usize,
    buckets: Vec<BucketCounters>,
    no_bucket: BucketCounters,
}

impl PartCounters {
    fn new(strategy: &str, index: usize, experiment: &Experiment, telemetry: &Telemetry) -> Self {
        let mut buckets = Vec::with_capacity(experiment.buckets.len());
        for bucket in 0..experiment.buckets.len() as u8 {
            let part = Assignment::Bucket(bucket);
            buckets.push(part_counters(strategy, experiment, part, telemetry));
        }

        Self {
            experiment: index,
            buckets,
            no_bucket: part_counters(strategy, experiment, Assignment::NoBucket, telemetry),
        }
    }

    fn of(&self, part: Assignment) -> &BucketCounters {
        match part {
            Assignment::Bucket(index) => &self.buckets[usize::from(index)],
            Assignment::NoBucket | Assignment::Unknown => &self.no_bucket,
        }
    }
}

fn part_counters(
    strategy: &str,
    experiment: &Experiment,
    part: Assignment,
    telemetry: &Telemetry,
) -> BucketCounters {
    let bucket = experiment.part_name(part);
    telemetry.buckets(strategy, &experiment.name, bucket)
}

impl ServedExperiments {
    pub(super) fn new(
        experiments: Vec<Experiment>,
        strategies: &[Strategy],
        telemetry: &Telemetry,
    ) -> Self {
        let mut counters = Vec::with_capacity(strategies.len());
        for strategy in strategies {
            let indexes = strategy.experiments.iter();
            let of_strategy = indexes.map(|index| {
                PartCounters::new(&strategy.name, *index, &experiments[*index], telemetry)
            });
            counters.push(of_strategy.collect());
        }

        Self {
            experiments,
            counters,
        }
    }

    /// Whether there is none: requests need no parts.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.experiments.is_empty()
    }

    /// The experiments, in the config's order.
    pub fn list(&self) -> &[Experiment] {
        &self.experiments
    }

    /// The name of a part in the experiment of an index, as `EXPERIMENT:BUCKET`.
    ///
    /// # Panics
    ///
    /// If there is no such experiment.
    pub fn full_name(&self, (experiment, part): (usize, Assignment)) -> String {
        self.experiments[experiment].full_name(part)
    }

    /// Appends the parts of a device, which is identified by the `chosen` kind of id if it has one.
    pub fn assign(&self, chosen: Option<IdKind>, units: &Units, parts: &mut Assignments) {
        parts.extend(self.experiments.iter().map(|experiment| {
            experiment.assign(experiment.unit_of(chosen, units).map(|(_, key)| key))
        }));
    }

    /// The names of a strategy's experiments and of the device's parts in them.
    pub fn named<'c>(
        &'c self,
        strategy: usize,
        parts: &[Assignment],
    ) -> impl Iterator<Item = (&'c str, &'c str)> {
        // Without experiments there are no counters.
        self.counters
            .get(strategy)
            .into_iter()
            .flatten()
            .map(|counters| {
                let experiment = &self.experiments[counters.experiment];
                (
                    experiment.name.as_str(),
                    experiment.part_name(parts[counters.experiment]),
                )
            })
    }

    /// Counts a decision for the device's parts in the strategy's experiments.
    #[inline]
    pub fn count(&self, strategy: usize, decision: Decision, parts: &[Assignment]) {
        if parts.is_empty() {
            return;
        }
        for counters in &self.counters[strategy] {
            counters.of(parts[counters.experiment]).count(decision);
        }
    }

    /// The tag of the first experiment of the strategy in which the device has a bucket with one.
    #[inline]
    pub(super) fn tag(&self, strategy: usize, parts: &[Assignment]) -> Option<u16> {
        if parts.is_empty() {
            return None;
        }
        self.counters[strategy]
            .iter()
            .find_map(|PartCounters { experiment, .. }| match parts[*experiment] {
                Assignment::Bucket(bucket) => {
                    self.experiments[*experiment].buckets[usize::from(bucket)].tag
                }
                _ => None,
            })
    }
}

/// The caps, each with its tables at the time of the catalog: requests need no second atomic
/// pointer.
#[derive(Debug)]
pub struct ServedCaps {
    caps: Vec<ServedCap>,
    /// Index of its cap, by index of the strategy.
    of_strategies: Vec<Option<usize>>,
}

#[derive(Debug)]
struct ServedCap {
    cap: Arc<Cap>,
    tables: Arc<CapTables>,
}

impl ServedCap {
    fn new(cap: Arc<Cap>) -> Self {
        Self {
            tables: cap.tables(),
            cap,
        }
    }
}

impl ServedCaps {
    pub(super) fn new(caps: Vec<Arc<Cap>>, strategies: &[Strategy]) -> Self {
        Self {
            caps: caps.into_iter().map(ServedCap::new).collect(),
            of_strategies: strategies.iter().map(|strategy| strategy.cap).collect(),
        }
    }

    /// The caps with their current tables.
    pub(super) fn renewed(&self) -> Self {
        let caps = self.iter().cloned();
        Self {
            caps: caps.map(ServedCap::new).collect(),
            of_strategies: self.of_strategies.clone(),
        }
    }

    /// The tables of a strategy's cap.
    #[inline]
    fn tables(&self, strategy: usize) -> Option<&CapTables> {
        let index = self.of_strategies[strategy]?;
        Some(&self.caps[index].tables)
    }

    /// Begins to read the memory that [`Self::admit`] reads, beside other work.
    ///
    /// # Panics
    ///
    /// If there is no strategy at `index`.
    #[inline]
    pub fn prefetch(&self, index: usize, keys: &[DeviceKey], at: Instant) {
        if let Some(tables) = self.tables(index) {
            let _ = tables.seek(keys, at);
        }
    }

    /// The refusal of the strategy's cap, if it does not admit the device; counts the device.
    ///
    /// # Panics
    ///
    /// If there is no strategy at `index`.
    #[inline]
    pub fn admit(&self, index: usize, keys: &[DeviceKey], at: Instant) -> Option<Decision> {
        let tables = self.tables(index)?;
        if tables.seek(keys, at).admit() {
            return None;
        }
        Some(tables.refuse(at))
    }

    /// [`Self::admit`] without counting the device.
    ///
    /// # Panics
    ///
    /// If there is no strategy at `index`.
    pub fn would_refuse(&self, index: usize, keys: &[DeviceKey], at: Instant) -> Option<Decision> {
        let tables = self.tables(index)?;
        if tables.would_admit(keys, at) {
            return None;
        }
        Some(tables.refusal(at))
    }

    /// The decision of the strategy's cap about a device at the time `at`, without counting it: a
    /// bid if it admits the device; `None` without a cap.
    ///
    /// # Panics
    ///
    /// If there is no strategy at `index`.
    pub fn verdict(&self, index: usize, keys: &[DeviceKey], at: Instant) -> Option<Decision> {
        let tables = self.tables(index)?;
        let is_admitted = tables.would_admit(keys, at);
        Some(if is_admitted {
            Decision::bid(Reason::Rule)
        } else {
            tables.refusal(at)
        })
    }

    /// Time from `at` until the strategy's cap counts anew, or may take back a decision; `None`
    /// without a cap.
    ///
    /// # Panics
    ///
    /// If there is no strategy at `index`.
    #[inline]
    pub(super) fn changes_in(
        &self,
        index: usize,
        decision: Decision,
        at: Instant,
    ) -> Option<Duration> {
        let tables = self.tables(index)?;
        match decision.reason {
            Reason::Capped => Some(tables.capped_ends_in(at)),
            _ => Some(tables.ends_in(at)),
        }
    }

    /// The caps, in the config's order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Cap>> {
        self.caps.iter().map(|served| &served.cap)
    }

    /// Finds a cap by its name.
    pub fn named(&self, name: &str) -> Option<&Arc<Cap>> {
        self.iter().find(|cap| cap.name() == name)
    }

    /// The cap at `index`.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn at(&self, index: usize) -> &Cap {
        &self.caps[index].cap
    }

    /// Whether every cap has its current tables.
    pub fn are_current(&self) -> bool {
        self.caps
            .iter()
            .all(|served| Arc::ptr_eq(&served.tables, &served.cap.tables()))
    }
}
