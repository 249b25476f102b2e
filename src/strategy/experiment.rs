//! Experiments: the bucket of a device, the same in each request.

use std::ops::Range;

use arrayvec::ArrayVec;
use rtad_core::device::{DeviceKey, IdField, IdKind};
use rtad_core::experiment::{SLOTS, fnv1a32, slot};

/// Most experiments of a configuration.
pub const MAX_EXPERIMENTS: usize = 32;
/// Most buckets of an experiment.
pub const MAX_BUCKETS: usize = 100;

/// The part of devices without a bucket: they have no unit, or no slot of a bucket.
pub const NO_BUCKET: &str = "none";
/// The bucket of devices that should get no ads: the name by which warnings know it.
pub const HOLDOUT: &str = "holdout";

/// A device's part in an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Assignment {
    /// The bucket of this index.
    Bucket(u8),
    /// No bucket.
    NoBucket,
    /// Not all ids of the request were read, so another one might be the unit.
    Unknown,
}

/// A device's parts, by index of the experiment; empty if they were not needed.
pub type Assignments = ArrayVec<Assignment, MAX_EXPERIMENTS>;

/// Ranges of slots.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Slots(pub Vec<Range<u32>>);

impl Slots {
    /// Whether a slot is in one of the ranges.
    #[inline]
    pub fn contains(&self, slot: u32) -> bool {
        self.0.iter().any(|range| range.contains(&slot))
    }
}

/// A label of answers in a bucket, which comes back in the platform's click macros.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tag {
    /// A text.
    pub text: Option<String>,
    /// A number.
    pub number: Option<u64>,
}

/// A bucket of an experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// Its name.
    pub name: String,
    /// Its slots.
    pub slots: Slots,
    /// Index of its tag among those of all experiments.
    pub tag: Option<u16>,
}

/// An experiment: a layer decides whether a device takes part, its name in which bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Experiment {
    /// Its name, the salt of the buckets' slots.
    pub name: String,
    /// The name of its layer, the salt of the layer's slots.
    pub layer: String,
    /// Kinds of the id that is the unit: the first one that the device has.
    pub unit: Vec<IdKind>,
    /// Slots of the layer that take part.
    pub traffic: Slots,
    /// Its buckets.
    pub buckets: Vec<Bucket>,
}

/// A device's ids, the first one of each kind.
#[derive(Debug, Clone, Default)]
pub struct Units(ArrayVec<(IdKind, DeviceKey), { IdKind::ALL.len() }>);

impl Units {
    /// Adds an id, unless there is one of its kind.
    pub fn add(&mut self, field: IdField, key: DeviceKey) {
        let kind = field.id_kind();
        if self.0.iter().all(|(known, _)| *known != kind) {
            self.0.push((kind, key));
        }
    }
}

impl Experiment {
    /// The id that is the unit, and its kind: the `chosen` kind, if the device has it, or else the
    /// first one of the experiment's kinds.
    pub fn unit_of<'u>(
        &self,
        chosen: Option<IdKind>,
        units: &'u Units,
    ) -> Option<&'u (IdKind, DeviceKey)> {
        let mut kinds = chosen.into_iter().chain(self.unit.iter().copied());
        kinds.find_map(|kind| units.0.iter().find(|(known, _)| *known == kind))
    }

    /// The part of a device. Costs a hash if the layer has slots without the experiment, and one
    /// for the bucket.
    pub fn assign(&self, unit: Option<&DeviceKey>) -> Assignment {
        let Some(unit) = unit else {
            return Assignment::NoBucket;
        };
        let hex = hex(unit);
        self.assign_slots(|| slot(&self.layer, &hex), || slot(&self.name, &hex))
    }

    /// The slots of a device in the layer and among the buckets.
    pub fn slots(&self, unit: &DeviceKey) -> [u32; 2] {
        let hex = hex(unit);
        [slot(&self.layer, &hex), slot(&self.name, &hex)]
    }

    /// A number of the rule from a device to its slots: another rule has another one, in all
    /// likelihood.
    pub fn rule_id(&self) -> u32 {
        let kinds = self
            .unit
            .iter()
            .flat_map(|kind| [kind.as_str().as_bytes(), b","]);
        let salts = [self.layer.as_bytes(), b"/", self.name.as_bytes(), b"/"];
        fnv1a32(salts.into_iter().chain(kinds).flatten())
    }

    /// The part of a device with these slots.
    pub fn assign_slots(
        &self,
        layer: impl FnOnce() -> u32,
        bucket: impl FnOnce() -> u32,
    ) -> Assignment {
        if !self.has_whole_layer() && !self.traffic.contains(layer()) {
            return Assignment::NoBucket;
        }
        let slot = bucket();

        for (index, bucket) in self.buckets.iter().enumerate() {
            if bucket.slots.contains(slot) {
                return Assignment::Bucket(index as u8);
            }
        }
        Assignment::NoBucket
    }

    fn has_whole_layer(&self) -> bool {
        matches!(&self.traffic.0[..], [all] if *all == (0..SLOTS))
    }

    /// The name of a part.
    pub fn part_name(&self, part: Assignment) -> &str {
        match part {
            Assignment::Bucket(index) => &self.buckets[usize::from(index)].name,
            Assignment::NoBucket | Assignment::Unknown => NO_BUCKET,
        }
    }

    /// The name of a part, as `EXPERIMENT:BUCKET`.
    pub fn full_name(&self, part: Assignment) -> String {
        format!("{}:{}", self.name, self.part_name(part))
    }

    /// All parts: the buckets, and none.
    pub fn parts(&self) -> impl Iterator<Item = Assignment> {
        let buckets = (0..self.buckets.len()).map(|index| Assignment::Bucket(index as u8));
        buckets.chain([Assignment::NoBucket])
    }
}

/// A key in lower-case hex, as hash rules take it.
fn hex(unit: &DeviceKey) -> [u8; 32] {
    let mut hex = [0; 32];
    const_hex::encode_to_slice(unit.as_bytes(), &mut hex).expect("32 digits of 16 bytes");
    hex
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(name: &str, traffic: Range<u32>, buckets: &[Range<u32>]) -> Experiment {
        let bucket = |slots: &Range<u32>| Bucket {
            name: format!("from-{}", slots.start),
            slots: Slots(vec![slots.clone()]),
            tag: None,
        };
        Experiment {
            name: name.to_owned(),
            layer: "layer".to_owned(),
            unit: vec![IdKind::Oaid, IdKind::Idfa],
            traffic: Slots(vec![traffic]),
            buckets: buckets.iter().map(bucket).collect(),
        }
    }

    fn unit(number: u64) -> DeviceKey {
        DeviceKey::of_canonical(&number.to_le_bytes())
    }

    /// Sum of (observed - expected)² / expected.
    fn chi_square(observed: &[u32], expected: f64) -> f64 {
        observed
            .iter()
            .map(|count| (f64::from(*count) - expected).powi(2) / expected)
            .sum()
    }

    const UNITS: u32 = 200_000;

    #[test]
    fn buckets_are_even_and_experiments_independent() {
        let quarters = [0..2500, 2500..5000, 5000..7500, 7500..10_000];
        let [one, two] = ["one", "two"].map(|name| experiment(name, 0..10_000, &quarters));
        let (mut counts, mut pairs) = ([0; 4], [0; 16]);
        for number in 0..u64::from(UNITS) {
            let unit = unit(number);
            let (Assignment::Bucket(a), Assignment::Bucket(b)) =
                (one.assign(Some(&unit)), two.assign(Some(&unit)))
            else {
                panic!("each unit has a bucket");
            };
            counts[usize::from(a)] += 1;
            pairs[usize::from(a * 4 + b)] += 1;
        }
        // Quantiles of 0.999 with 3 and 15 degrees of freedom.
        assert!(
            chi_square(&counts, f64::from(UNITS) / 4.0) < 16.27,
            "{counts:?}"
        );
        assert!(
            chi_square(&pairs, f64::from(UNITS) / 16.0) < 37.70,
            "{pairs:?}"
        );
    }

    #[test]
    fn traffic_does_not_bias_buckets_and_layers_exclude() {
        let halves = [0..5000, 5000..10_000];
        let (one, two) = (
            experiment("one", 0..2000, &halves),
            experiment("two", 2000..5000, &halves),
        );
        let (mut counts, mut both) = ([0_u32; 2], 0);
        for number in 0..u64::from(UNITS) {
            let unit = unit(number);
            let parts = [&one, &two].map(|it| it.assign(Some(&unit)));
            if let Assignment::Bucket(bucket) = parts[0] {
                counts[usize::from(bucket)] += 1;
            }
            both += u32::from(!parts.contains(&Assignment::NoBucket));
        }
        let took_part = counts[0] + counts[1];
        assert_eq!(both, 0);
        assert!(took_part.abs_diff(UNITS / 5) < 700, "{took_part}");
        assert!(
            chi_square(&counts, f64::from(took_part) / 2.0) < 10.83,
            "{counts:?}"
        );
    }

    #[test]
    fn new_bucket_moves_nobody() {
        let before = experiment("one", 0..10_000, &[0..3000, 3000..6000]);
        let after = experiment("one", 0..10_000, &[0..3000, 3000..6000, 6000..9000]);
        for number in 0..20_000 {
            let unit = unit(number);
            let was = before.assign(Some(&unit));
            if was != Assignment::NoBucket {
                assert_eq!(after.assign(Some(&unit)), was);
            }
        }
    }

    #[test]
    fn unit_is_the_chosen_kind_or_the_first_one_hashed_or_not() {
        let mut units = Units::default();
        // The same md5 in two fields is an id of both kinds.
        for (name, number) in [("idfa_md5", 1), ("oaid", 2), ("oaid_md5", 3), ("md5", 1)] {
            units.add(IdField::named(name).unwrap(), unit(number));
        }
        let unit_of = |kinds: &[IdKind], chosen| {
            let experiment = Experiment {
                unit: kinds.to_vec(),
                ..experiment("one", 0..1, &[])
            };
            experiment.unit_of(chosen, &units).copied()
        };
        let [idfa, oaid] = [(IdKind::Idfa, unit(1)), (IdKind::Oaid, unit(2))];
        assert_eq!(unit_of(&[IdKind::Oaid, IdKind::Idfa], None), Some(oaid));
        assert_eq!(unit_of(&[IdKind::Oaid], Some(IdKind::Idfa)), Some(idfa));
        assert_eq!(
            unit_of(&[IdKind::Caid, IdKind::Idfa], Some(IdKind::Imei)),
            Some(idfa)
        );
        assert_eq!(unit_of(&[IdKind::Md5], None), Some((IdKind::Md5, unit(1))));
        assert_eq!(unit_of(&[IdKind::Imei], None), None);
        assert_eq!(
            experiment("one", 0..10_000, &[]).assign(None),
            Assignment::NoBucket
        );
    }
}
