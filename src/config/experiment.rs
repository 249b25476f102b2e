//! `[[experiment]]`: buckets of devices.

use std::ops::Range;

use rtad_config::values::{name, number};
use rtad_config::{Document, OneOrMany};
use rtad_core::device::{IdKind, KeyDigest};
use rtad_core::experiment::SlotHash;
use rtad_core::snapshot::AudienceName;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::strategy::{
    Assignment, Bucket, Experiment, HOLDOUT, MAX_BUCKETS, MAX_EXPERIMENTS, NO_BUCKET, Slots, Tag,
};

/// Longest layer or salt.
const MAX_SALT: usize = 64;
/// Longest tag: that of `dsp_tag_str` of Tencent Ads.
const MAX_TAG: usize = 20;

/// An experiment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct ExperimentConfig {
    /// Name in `when`, in metrics and in answers.
    #[serde(deserialize_with = "name::<_, AudienceName, _>")]
    pub name: String,
    /// Layer. Experiments of one layer share its slots, so that a device takes part in one of them
    /// at most. It is the salt of these slots. Unset = a layer of its own, `NAME-layer`.
    #[serde(default, deserialize_with = "salt")]
    pub layer: Option<String>,
    /// Salt of the buckets' slots. Unset = the name.
    #[serde(default, deserialize_with = "salt")]
    pub salt: Option<String>,
    /// Rule from a salt and a device to a slot: `md5` (10,000 slots), `growthbook-2` (10,000), or
    /// `unleash` (100 in a layer, 1,000 of buckets).
    #[serde(default)]
    pub hash: SlotHash,
    /// Slots of the layer that take part, the end excluded: one range or several. Unset = all
    /// outside the holdout.
    pub traffic: Option<SlotRanges>,
    /// Slots of the layer that no experiment gets, the same for all experiments of the layer.
    pub holdout: Option<SlotRanges>,
    /// Kinds of the id that decides, hashed or not: the first one that the request carries. A
    /// platform's own choice comes before: `cached_deviceid_type` of `tencent`.
    #[serde(default = "unit", deserialize_with = "kinds", serialize_with = "as_names")]
    pub unit: Vec<IdKind>,
    /// Allows slots to move to other buckets, which takes a new `salt`. Remove it afterwards.
    #[serde(default)]
    pub reshuffle: bool,
    /// Buckets; see `[[experiment.buckets]]`.
    pub buckets: Vec<BucketConfig>,
}

/// A bucket of an experiment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct BucketConfig {
    /// Name in `when`, as `EXPERIMENT:BUCKET`. `none` stands for devices without a bucket, and
    /// `holdout` for those in the holdout.
    #[serde(deserialize_with = "name::<_, AudienceName, _>")]
    pub name: String,
    /// Its slots, the end excluded: one range or several. A slot may be of no bucket.
    pub slots: SlotRanges,
    /// Text in answers about its devices, such as `dsp_tag_str` of `tencent`.
    #[serde(default, deserialize_with = "tag")]
    pub tag: Option<String>,
    /// Number in answers about its devices, such as `dsp_tag` of `tencent`. A platform may accept
    /// less.
    #[serde(default, deserialize_with = "tag_number")]
    pub tag_number: Option<u32>,
}

/// Ranges of slots, such as `"0..5000"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotRanges(pub Vec<Range<u32>>);

impl<'de> Deserialize<'de> for SlotRanges {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let range = |text: &String| {
            let (start, end) = text.split_once("..")?;
            let range = start.parse().ok()?..end.parse().ok()?;
            (!range.is_empty()).then_some(range)
        };
        let OneOrMany(texts) = OneOrMany::<String>::deserialize(deserializer)?;
        let ranges: Option<Vec<_>> = texts.iter().map(range).collect();
        let ranges = ranges.filter(|ranges| !ranges.is_empty());
        ranges.map(Self).ok_or_else(|| D::Error::custom("one or more ranges such as \"0..5000\""))
    }
}

impl Serialize for SlotRanges {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|range| format!("{}..{}", range.start, range.end)))
    }
}

fn tag_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    number::<_, u32, 1, { u32::MAX as i64 }>(deserializer).map(Some)
}

/// The kinds that identify one device for long, the most common ones first.
fn unit() -> Vec<IdKind> {
    use IdKind::{AndroidId, Caid, Gaid, Idfa, Imei, Md5, Oaid, Openid};
    vec![Oaid, Idfa, Gaid, Imei, Caid, AndroidId, Openid, Md5]
}

fn kinds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IdKind>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    // A unit is an md5.
    let unit = |name: &String| name.parse().ok().filter(|kind| KeyDigest::Md5.accepts(*kind));
    let kinds: Option<Vec<IdKind>> = names.iter().map(unit).collect();
    kinds.filter(|kinds| !kinds.is_empty()).ok_or_else(|| {
        let accepted = IdKind::ALL.into_iter().filter(|kind| KeyDigest::Md5.accepts(*kind));
        let all = accepted.map(IdKind::as_str).collect::<Vec<_>>().join(", ");
        D::Error::custom(format_args!("a list of one or more of {all}"))
    })
}

fn as_names<S: Serializer>(kinds: &[IdKind], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(kinds.iter().map(|kind| kind.as_str()))
}

fn visible<'de, D: Deserializer<'de>>(
    deserializer: D,
    most: usize,
) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(deserializer).ok().filter(|text| {
        (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
    });
    text.map(Some)
        .ok_or_else(|| D::Error::custom(format_args!("1 to {most} visible ASCII characters")))
}

fn salt<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    visible(deserializer, MAX_SALT)
}

fn tag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    visible(deserializer, MAX_TAG)
}

impl ExperimentConfig {
    fn layer(&self) -> String {
        self.layer.clone().unwrap_or_else(|| format!("{}-layer", self.name))
    }

    fn salt(&self) -> &str {
        self.salt.as_ref().unwrap_or(&self.name)
    }

    /// Whether the slots of its buckets are those of the layer of `other`.
    fn has_salt_of_layer(&self, other: &Self) -> bool {
        self.salt() == other.layer() && self.hash == other.hash && !self.hash.separates_layers()
    }

    fn traffic(&self) -> Vec<Range<u32>> {
        self.traffic
            .as_ref()
            .map_or_else(|| self.slots_outside_holdout(), |ranges| ranges.0.clone())
    }

    fn slots_outside_holdout(&self) -> Vec<Range<u32>> {
        let (end, mut start, mut outside) = (self.hash.layer_slots(), 0, Vec::new());
        let mut holdout = self.holdout().to_vec();
        holdout.sort_unstable_by_key(|range| range.start);
        for range in holdout.into_iter().chain(std::iter::once(end..end)) {
            if start < range.start {
                outside.push(start..range.start);
            }
            start = start.max(range.end);
        }
        outside
    }

    fn holdout(&self) -> &[Range<u32>] {
        self.holdout.as_ref().map_or(&[], |ranges| &ranges.0)
    }

    /// The bucket of a slot.
    fn bucket_of(&self, slot: u32) -> Option<&str> {
        let has = |bucket: &&BucketConfig| bucket.slots.0.iter().any(|range| range.contains(&slot));
        self.buckets.iter().find(has).map(|bucket| bucket.name.as_str())
    }

    /// A change after `before` that moves a device to another bucket, or out of its bucket.
    fn moved_since(&self, before: &Self) -> Option<String> {
        let keys = [
            ("salt", self.salt() != before.salt()),
            ("layer", self.layer() != before.layer()),
            ("hash", self.hash != before.hash),
            ("unit", self.unit != before.unit),
        ];
        if let Some((key, _)) = keys.into_iter().find(|(_, differs)| *differs) {
            return Some(format!("another {key} moves devices to other buckets"));
        }
        let takes_part = |of: &Self, slot| of.traffic().iter().any(|range| range.contains(&slot));
        let leaves = |slot: &u32| takes_part(before, *slot) && !takes_part(self, *slot);
        if let Some(slot) = (0..self.hash.layer_slots()).find(leaves) {
            return Some(format!("slot {slot} of the layer no longer takes part"));
        }
        let moves = |slot: &u32| {
            let was = before.bucket_of(*slot);
            was.is_some() && was != self.bucket_of(*slot)
        };
        let slot = (0..self.hash.bucket_slots()).find(moves)?;
        let (was, is) = (before.bucket_of(slot)?, self.bucket_of(slot).unwrap_or(NO_BUCKET));
        Some(format!("slot {slot} moves from {was} to {is}"))
    }
}

impl BucketConfig {
    /// Its tag, if it has one.
    pub(super) fn tag(&self) -> Option<Tag> {
        let (text, number) = (self.tag.clone(), self.tag_number.map(u64::from));
        (text.is_some() || number.is_some()).then_some(Tag { text, number })
    }
}

/// The experiments. Their tags are counted through, as [`super::PlatformConfig::tags`] has them.
pub fn experiments(configs: &[ExperimentConfig]) -> Vec<Experiment> {
    let mut tags = 0..u16::MAX;
    let experiments = configs.iter().map(|config| {
        let bucket = |bucket: &BucketConfig| {
            let tag = bucket.tag().map(|_| tags.next().expect("at most 32 times 100 buckets"));
            Bucket { name: bucket.name.clone(), slots: Slots(bucket.slots.0.clone()), tag }
        };
        Experiment {
            buckets: config.buckets.iter().map(bucket).collect(),
            name: config.name.clone(),
            hash: config.hash,
            layer: config.layer(),
            salt: config.salt().to_owned(),
            unit: config.unit.clone(),
            holdout: Slots(config.holdout().to_vec()),
            traffic: Slots(config.traffic()),
        }
    });
    experiments.collect()
}

/// Parts of experiments as `when` names them: `price-test:b`.
#[derive(Debug, Clone, Default)]
pub struct PartNames {
    names: Vec<(String, usize, Assignment)>,
    /// Some names of the file are invalid: those of the example are in their place.
    has_replaced: bool,
}

impl PartNames {
    /// The parts of these experiments.
    pub fn of(configs: &[ExperimentConfig]) -> Self {
        let mut names = Vec::new();
        for (index, experiment) in experiments(configs).iter().enumerate() {
            for part in experiment.parts() {
                let name = format!("{}:{}", experiment.name, experiment.part_name(part));
                names.push((name, index, part));
            }
        }
        Self { names, has_replaced: false }
    }

    /// The parts of the experiments of a document.
    pub(super) fn read(d: &Document<'_>, configs: &[ExperimentConfig]) -> Self {
        let is_replaced = |(index, config): (usize, &ExperimentConfig)| {
            let table = format!("experiment[{index}]");
            let bucket = |bucket| d.is_replaced(&format!("{table}.buckets[{bucket}].name"));
            d.is_replaced(&format!("{table}.name")) || (0..config.buckets.len()).any(bucket)
        };
        let has_replaced = configs.iter().enumerate().any(is_replaced);
        Self { has_replaced, ..Self::of(configs) }
    }

    /// Whether a name that is not among these is a mistake of its own.
    pub(super) fn refuses(&self, name: &str) -> bool {
        !self.has_replaced && self.find(name).is_none()
    }

    /// The experiment and the part of a name.
    pub fn find(&self, name: &str) -> Option<(usize, Assignment)> {
        let found = self.names.iter().find(|(known, ..)| known == name);
        found.map(|(_, experiment, part)| (*experiment, *part))
    }

    /// Number of parts of an experiment.
    pub(super) fn count(&self, experiment: usize) -> usize {
        self.names.iter().filter(|(_, of, _)| *of == experiment).count()
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.names.iter().map(|(name, ..)| name.clone()).collect()
    }
}

/// Keys of an experiment that are compared with others.
const COMPARED: [&str; 7] = ["name", "layer", "salt", "hash", "traffic", "holdout", "unit"];

/// Notes the mistakes in experiments. Values that replace wrong ones are compared with nothing.
pub(super) fn check(d: &mut Document<'_>, configs: &[ExperimentConfig]) {
    d.refuse_duplicates("experiment", "name");
    if configs.len() > MAX_EXPERIMENTS {
        let found = format!("has {} entries", configs.len());
        d.mistake("experiment", &found, &format!("at most {MAX_EXPERIMENTS}"));
    }
    let replaced_of = |index: usize| {
        let is_replaced = |key: &&str| d.is_replaced(&format!("experiment[{index}].{key}"));
        COMPARED.into_iter().filter(is_replaced).collect::<Vec<_>>()
    };
    let replaced: Vec<Vec<&str>> = (0..configs.len()).map(replaced_of).collect();
    let are_given =
        |index: usize, keys: &[&str]| keys.iter().all(|key| !replaced[index].contains(key));
    for (index, config) in configs.iter().enumerate() {
        let table = format!("experiment[{index}]");
        let has_hash = are_given(index, &["hash"]);
        check_buckets(d, &table, config, has_hash);
        if has_hash {
            let traffic = ("traffic", config.traffic());
            for (key, ranges) in [traffic, ("holdout", config.holdout().to_vec())] {
                check_end(d, &format!("{table}.{key}"), &ranges, config.hash.layer_slots());
            }
        }
        let salt = format!("{table}.salt");
        let has_salt = |index| are_given(index, &["name", "salt", "hash"]);
        let mut layers = configs
            .iter()
            .enumerate()
            .filter(|(other, _)| has_salt(index) && are_given(*other, &["name", "layer", "hash"]));
        if let Some((_, other)) = layers.find(|(_, other)| config.has_salt_of_layer(other)) {
            let name = &other.name;
            let found = format!("is that of the layer of {name}: buckets would get uneven shares");
            d.mistake(&salt, &found, "a salt of its own");
        }
        for (other, earlier) in configs[..index].iter().enumerate() {
            let name = &earlier.name;
            if name == &config.name {
                // A mistake already.
                continue;
            }
            let are_both_given = |keys: &[&str]| are_given(index, keys) && are_given(other, keys);
            let has_same_slots = earlier.salt() == config.salt() && earlier.hash == config.hash;
            if has_same_slots && has_salt(index) && has_salt(other) {
                let found = format!("is that of {name}: their buckets would have the same devices");
                d.mistake(&salt, &found, "a salt of its own");
            }
            if earlier.layer() != config.layer() || !are_both_given(&["name", "layer"]) {
                continue;
            }
            for (key, differs) in [
                ("hash", earlier.hash != config.hash),
                ("unit", earlier.unit != config.unit),
                ("holdout", earlier.holdout() != config.holdout()),
            ] {
                if differs && are_both_given(&[key]) {
                    let found = format!("differs from that of {name}, in the same layer");
                    d.mistake(&format!("{table}.{key}"), &found, "the same in the whole layer");
                }
            }
            if !are_both_given(&["hash", "traffic", "holdout"]) {
                continue;
            }
            if let Some(slot) = common_slot(&earlier.traffic(), &config.traffic()) {
                let found = match (&config.traffic, &earlier.traffic) {
                    (None, _) => format!(
                        "is missing, which stands for all slots outside the holdout: slot {slot} \
                         is one of {name}, in the same layer"
                    ),
                    (_, None) => format!(
                        "has slot {slot}: {name}, in the same layer, has all slots outside the \
                         holdout, as its traffic is missing"
                    ),
                    _ => format!("has slot {slot}, which {name} has in the same layer"),
                };
                d.mistake(&format!("{table}.traffic"), &found, "slots that no other one has");
            }
        }
        if !are_given(index, &["hash", "traffic", "holdout"]) {
            continue;
        }
        if config.traffic().is_empty() {
            let found = "is missing, and the holdout has all slots: no device takes part";
            d.mistake(&format!("{table}.traffic"), found, "a holdout that leaves some slots");
        }
        if let Some(slot) = common_slot(config.holdout(), &config.traffic()) {
            let found = format!("has slot {slot}, which is in the holdout");
            d.mistake(&format!("{table}.traffic"), &found, "slots outside the holdout");
        }
    }
}

fn check_buckets(d: &mut Document<'_>, table: &str, config: &ExperimentConfig, has_hash: bool) {
    let key = format!("{table}.buckets");
    if !(1..=MAX_BUCKETS).contains(&config.buckets.len()) {
        let found = format!("has {} entries", config.buckets.len());
        d.mistake(&key, &found, &format!("1 to {MAX_BUCKETS} buckets"));
    }
    let is_given = |d: &Document<'_>, bucket: usize, part: &str| {
        !d.is_replaced(&format!("{key}[{bucket}].{part}"))
    };
    for (index, bucket) in config.buckets.iter().enumerate() {
        let bucket_table = format!("{key}[{index}]");
        let name = format!("{bucket_table}.name");
        let before = || config.buckets[..index].iter().enumerate();
        if [NO_BUCKET, HOLDOUT].contains(&bucket.name.as_str()) {
            d.reject(&name, "another name: this one stands for devices without a bucket");
        } else if before().any(|(other, it)| it.name == bucket.name && is_given(d, other, "name")) {
            d.reject(&name, "a name that no other bucket of the experiment has");
        }
        let slots = format!("{bucket_table}.slots");
        if has_hash {
            check_end(d, &slots, &bucket.slots.0, config.hash.bucket_slots());
        }
        for (other, earlier) in before() {
            if let Some(slot) = common_slot(&earlier.slots.0, &bucket.slots.0)
                && is_given(d, other, "slots")
            {
                let found = format!("has slot {slot}, which {} has", earlier.name);
                d.mistake(&slots, &found, "slots that no other bucket has");
            }
        }
    }
}

fn check_end(d: &mut Document<'_>, key: &str, ranges: &[Range<u32>], slots: u32) {
    if let Some(range) = ranges.iter().find(|range| range.end > slots) {
        let found = format!("ends at {}", range.end);
        d.mistake(key, &found, &format!("at most {slots}, the slots of this hash"));
    }
}

fn common_slot(one: &[Range<u32>], other: &[Range<u32>]) -> Option<u32> {
    let common = |a: &Range<u32>, b: &Range<u32>| {
        let (start, end) = (a.start.max(b.start), a.end.min(b.end));
        (start < end).then_some(start)
    };
    one.iter().flat_map(|a| other.iter().filter_map(move |b| common(a, b))).min()
}

/// Changes after `before` that move devices to other buckets without `reshuffle` and a new salt: a
/// line each.
pub fn moves(before: &[ExperimentConfig], after: &[ExperimentConfig]) -> Vec<String> {
    let line = |config: &ExperimentConfig| {
        let earlier = before.iter().find(|earlier| earlier.name == config.name)?;
        let moved = config.moved_since(earlier)?;
        let is_wanted = config.reshuffle && config.salt() != earlier.salt();
        (!is_wanted).then(|| {
            format!(
                "experiment.{}: {moved}; accepted: the slots of before, or reshuffle = true and a \
                 new salt",
                config.name
            )
        })
    };
    after.iter().filter_map(line).collect()
}
