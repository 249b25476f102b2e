//! The experiments that a pod serves, with counters of the strategies that read them.

use crate::strategy::{Assignment, Assignments, Decision, Experiment, Strategy, Units};
use crate::telemetry::{
    BucketCounters, MAX_SKETCHES, PartLabels, ReachLabels, ReachSketch, ReachedDevice, Telemetry,
};
use rtad_core::device::IdKind;

/// The experiments of a catalog.
#[derive(Debug, Default)]
pub struct ServedExperiments {
    experiments: Vec<Experiment>,
    /// By index of the strategy, then an entry per experiment of its condition.
    counters: Vec<Vec<PartCounters>>,
}

/// Counters of a strategy's decisions by part in an experiment.
#[derive(Debug)]
struct PartCounters {
    /// Index of the experiment.
    experiment: usize,
    buckets: Vec<PartCounter>,
    no_bucket: PartCounter,
    holdout: PartCounter,
}

/// Decisions about the devices of a part, and the devices with a bid.
#[derive(Debug)]
struct PartCounter {
    decisions: BucketCounters,
    /// `None` beyond the limit of sketches.
    reach: Option<ReachSketch>,
}

impl PartCounters {
    /// Counters of an experiment's parts. Takes their sketches from the `room` that is left.
    fn new(
        strategy: &str,
        index: usize,
        experiment: &Experiment,
        telemetry: &Telemetry,
        room: &mut usize,
    ) -> Self {
        let mut counters = |part| {
            let (name, bucket) = (&experiment.name, experiment.part_name(part));
            let labels = PartLabels {
                experiment: name.clone(),
                bucket: bucket.to_owned(),
            };
            let labels = ReachLabels {
                strategy: strategy.to_owned(),
                part: Some(labels),
            };
            let is_counted = *room > 0 && experiment.parts().any(|used| used == part);
            *room -= usize::from(is_counted);
            PartCounter {
                decisions: telemetry.buckets(strategy, name, bucket),
                reach: is_counted.then(|| telemetry.reach().sketch(labels)),
            }
        };
        let buckets = (0..experiment.buckets.len() as u8).map(Assignment::Bucket);
        Self {
            experiment: index,
            buckets: buckets.map(&mut counters).collect(),
            no_bucket: counters(Assignment::NoBucket),
            holdout: counters(Assignment::Holdout),
        }
    }

    fn of(&self, part: Assignment) -> &PartCounter {
        match part {
            Assignment::Bucket(index) => &self.buckets[usize::from(index)],
            Assignment::NoBucket | Assignment::Unknown => &self.no_bucket,
            Assignment::Holdout => &self.holdout,
        }
    }
}

impl ServedExperiments {
    pub(super) fn new<'s>(
        experiments: Vec<Experiment>,
        strategies: impl ExactSizeIterator<Item = &'s Strategy>,
        telemetry: &Telemetry,
    ) -> Self {
        let mut room = MAX_SKETCHES.saturating_sub(strategies.len());
        let counters = |strategy: &Strategy| {
            let mut of = |index: &usize| {
                let experiment = &experiments[*index];
                PartCounters::new(&strategy.name, *index, experiment, telemetry, &mut room)
            };
            strategy.experiments.iter().map(&mut of).collect()
        };
        let counters = strategies.map(counters).collect();
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

    /// Counts a decision for the device's parts in the strategy's experiments, and the device of a
    /// bid.
    #[inline]
    pub fn count(
        &self,
        strategy: usize,
        decision: Decision,
        parts: &[Assignment],
        device: &ReachedDevice<'_>,
    ) {
        if parts.is_empty() {
            return;
        }
        for counters in &self.counters[strategy] {
            let counter = counters.of(parts[counters.experiment]);
            counter.decisions.count(decision);
            if let (true, Some(reach)) = (decision.is_bid(), &counter.reach) {
                reach.count(device);
            }
        }
    }

    /// Number of parts whose devices are not counted, beyond the limit of sketches.
    pub(super) fn without_reach(&self) -> usize {
        let parts = self.counters.iter().flatten().flat_map(|counters| {
            let parts = self.experiments[counters.experiment].parts();
            parts.map(|part| counters.of(part))
        });
        parts.filter(|counter| counter.reach.is_none()).count()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;
    use crate::serve::Assembly;

    /// Strategies with an experiment of three parts.
    fn catalog(strategies: usize, experiment: &str, telemetry: &Telemetry) -> Catalog {
        let mut config = format!(
            "store = {{ url = \"/nowhere\" }}\n[[audience]]\nname = \"a\"\n\
             [[experiment]]\nname = \"{experiment}\"\n\
             buckets = [{{ name = \"p\", slots = \"0..5000\" }}, \
             {{ name = \"q\", slots = \"5000..9000\" }}]\n"
        );
        for number in 0..strategies {
            config += &format!(
                "[[strategy]]\nname = \"s{number}\"\nexclude = [\"a\"]\n\
                 when = {{ bucket = \"{experiment}:p\" }}\n"
            );
        }
        let assembly = Assembly::read(Some(("rtad.toml", &config)), |_| None, &Vec::new()).unwrap();
        let plan = assembly.plan();
        Catalog::new(plan.audiences, plan.strategies, plan.platforms, telemetry)
            .with_experiments(plan.experiments, telemetry)
    }

    /// The new catalog is built while the old one is served, and no sketch is dropped before
    /// midnight.
    #[test]
    fn reload_with_other_names_counts_all_of_them() {
        let telemetry = Telemetry::default();
        let mut served = catalog(60, "one", &telemetry);
        assert_eq!(served.without_reach(), 0);
        for experiment in ["two", "three", "one"] {
            served = catalog(60, experiment, &telemetry);
            assert_eq!(served.without_reach(), 0, "{experiment}");
        }
    }

    #[test]
    fn strategies_have_sketches_before_parts() {
        let telemetry = Telemetry::default();
        assert_eq!(catalog(64, "e", &telemetry).without_reach(), 0);
        assert_eq!(catalog(65, "e", &telemetry).without_reach(), 4);
        let many = catalog(260, "e", &telemetry);
        assert_eq!(many.without_reach(), 4 + 3 * 260);
    }
}
