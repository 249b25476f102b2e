//! Moves of devices to other buckets.

use std::collections::BTreeMap;
use std::ops::Range;

use rtad_core::device::IdKind;

use super::ExperimentConfig;
use super::check::common_slot;

/// The slots that buckets of experiments have had.
///
/// A slot may lose its bucket and get it back, as in a rollback: its devices see no other bucket.
/// So the slots are kept after a bucket loses them and after an experiment is removed: otherwise
/// two changes could do what one may not.
#[derive(Debug, Clone, Default)]
pub struct AssignedSlots {
    experiments: BTreeMap<String, Assigned>,
}

/// The slots of an experiment.
#[derive(Debug, Clone)]
struct Assigned {
    layer: String,
    unit: Vec<IdKind>,
    /// The slots of each bucket.
    buckets: BTreeMap<String, Vec<Range<u32>>>,
}

impl AssignedSlots {
    /// Those of these experiments.
    pub fn of(configs: &[ExperimentConfig]) -> Self {
        let mut assigned = Self::default();
        assigned.add(configs);
        assigned
    }

    /// Adds the slots of experiments that move no device.
    pub fn add(&mut self, configs: &[ExperimentConfig]) {
        for config in configs {
            let name = config.name.clone();
            let experiment = self.experiments.entry(name).or_insert_with(|| Assigned {
                layer: config.layer(),
                unit: config.unit.clone(),
                buckets: BTreeMap::new(),
            });

            for bucket in &config.buckets {
                let slots = experiment.buckets.entry(bucket.name.clone()).or_default();
                for range in &bucket.slots.0 {
                    if !slots.contains(range) {
                        slots.push(range.clone());
                    }
                }
            }
        }
    }

    /// Changes that move devices to other buckets: a line each.
    pub fn moves(&self, configs: &[ExperimentConfig]) -> Vec<String> {
        let mut lines = Vec::new();
        for config in configs {
            let name = &config.name;
            let assigned = self.experiments.get(name);
            if let Some(moved) = assigned.and_then(|assigned| assigned.moved_by(config)) {
                lines.push(format!(
                    "experiment.{name}: {moved}; accepted: the buckets of before, free slots, or \
                     an experiment of another name"
                ));
            }
        }
        lines
    }
}

impl Assigned {
    /// The first change that moves a device to another bucket.
    fn moved_by(&self, config: &ExperimentConfig) -> Option<String> {
        if self.layer != config.layer() {
            return Some("another layer moves devices to other buckets".to_owned());
        }
        if self.unit != config.unit {
            return Some("another unit moves devices to other buckets".to_owned());
        }

        for bucket in &config.buckets {
            for (earlier, slots) in &self.buckets {
                let is_same = *earlier == bucket.name;
                if !is_same && let Some(slot) = common_slot(slots, &bucket.slots.0) {
                    let name = &bucket.name;
                    return Some(format!("slot {slot} moves from {earlier} to {name}"));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(buckets: &str) -> Vec<ExperimentConfig> {
        let text = format!("name = \"e\"\nbuckets = [{buckets}]");
        vec![toml::from_str(&text).unwrap()]
    }

    const LOW: &str = "{ name = \"low\", slots = \"0..4000\" }";
    const LESS: &str = "{ name = \"low\", slots = \"0..1000\" }";
    const HIGH: &str = "{ name = \"high\", slots = \"3000..5000\" }";

    #[test]
    fn way_back_moves_nobody() {
        let [narrow, wide] = [LESS, LOW].map(experiment);
        let both = experiment(&format!(
            "{LOW}, {{ name = \"high\", slots = \"5000..6000\" }}"
        ));
        for (before, after) in [(&narrow, &wide), (&wide, &narrow), (&both, &wide)] {
            assert_eq!(AssignedSlots::of(before).moves(after), [""; 0]);
        }

        let mut outside = wide.clone();
        outside[0].traffic = Some(
            toml::from_str::<ExperimentConfig>("name = \"e\"\ntraffic = \"0..10\"\nbuckets = []")
                .unwrap()
                .traffic
                .unwrap(),
        );
        assert_eq!(AssignedSlots::of(&wide).moves(&outside), [""; 0]);
        assert_eq!(AssignedSlots::of(&outside).moves(&wide), [""; 0]);
    }

    #[test]
    fn slot_keeps_its_bucket_over_several_changes() {
        let [low, less, high] = [LOW, LESS, HIGH].map(experiment);
        let expected = "experiment.e: slot 3000 moves from low to high; accepted: the buckets of \
                        before, free slots, or an experiment of another name";
        assert_eq!(AssignedSlots::of(&low).moves(&high), [expected]);

        for between in [less, Vec::new()] {
            let mut assigned = AssignedSlots::of(&low);
            assert_eq!(assigned.moves(&between), [""; 0]);
            assigned.add(&between);
            assert_eq!(assigned.moves(&high), [expected]);
            assert_eq!(assigned.moves(&low), [""; 0]);
        }
    }
}
