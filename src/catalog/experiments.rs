//! The experiments that a pod serves, with counters of the strategies that read them.

use crate::strategy::{Assignment, Assignments, Decision, Experiment, Strategy, Units};
use crate::telemetry::{BucketCounters, Telemetry};
use rtad_core::device::IdKind;

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
