//! `[[experiment]]`: buckets of devices.

mod check;
mod moves;

use std::ops::Range;

use rtad_config::OneOrMany;
use rtad_config::values::{name, number};
use rtad_core::device::IdKind;
use rtad_core::experiment::SLOTS;
use rtad_core::snapshot::AudienceName;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::strategy::{Assignment, Bucket, Experiment, Slots, Tag};

pub use check::check;
pub use moves::AssignedSlots;

/// Longest name of a layer.
const MAX_LAYER: usize = 64;
/// Longest tag: that of `dsp_tag_str` of Tencent Ads.
const MAX_TAG: usize = 20;

/// An experiment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct ExperimentConfig {
    /// Name in `when`, in metrics and in answers. It is the salt of the buckets' slots.
    #[serde(deserialize_with = "name::<_, AudienceName, _>")]
    pub name: String,
    /// Layer. Experiments of one layer share its slots, so that a device takes part in one of them
    /// at most. It is the salt of these slots. Unset = a layer of its own, `NAME-layer`.
    #[serde(default, deserialize_with = "layer")]
    pub layer: Option<String>,
    /// Slots of the layer that take part, the end excluded: one range or several. Unset = all.
    /// Slots that no experiment of the layer has stay outside of all.
    pub traffic: Option<SlotRanges>,
    /// Kinds of the id that decides, hashed or not: the first one that the request carries. A
    /// platform's own choice comes before: `cached_deviceid_type` of `tencent`.
    #[serde(
        default = "unit",
        deserialize_with = "kinds",
        serialize_with = "as_names"
    )]
    pub unit: Vec<IdKind>,
    /// Buckets; see `[[experiment.buckets]]`.
    pub buckets: Vec<BucketConfig>,
}

/// A bucket of an experiment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct BucketConfig {
    /// Name in `when` and in values, as `EXPERIMENT:BUCKET`. `none` stands for devices without a
    /// bucket. `holdout` is for devices that should get no ads: a warning names the strategies
    /// whose `when` does not refuse it.
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
        let OneOrMany(texts) = OneOrMany::<String>::deserialize(deserializer)?;
        let ranges: Option<Vec<_>> = texts.iter().map(|text| range_of(text)).collect();
        match ranges {
            Some(ranges) if !ranges.is_empty() => Ok(Self(ranges)),
            _ => Err(D::Error::custom("one or more ranges such as \"0..5000\"")),
        }
    }
}

fn range_of(text: &str) -> Option<Range<u32>> {
    let (start, end) = text.split_once("..")?;
    let range = start.parse().ok()?..end.parse().ok()?;
    if range.is_empty() { None } else { Some(range) }
}

impl Serialize for SlotRanges {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(
            self.0
                .iter()
                .map(|range| format!("{}..{}", range.start, range.end)),
        )
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
    let kinds: Option<Vec<IdKind>> = names.iter().map(|name| name.parse().ok()).collect();
    match kinds {
        Some(kinds) if !kinds.is_empty() => Ok(kinds),
        _ => {
            let all = IdKind::ALL.map(IdKind::as_str).join(", ");
            Err(D::Error::custom(format_args!(
                "a list of one or more of {all}"
            )))
        }
    }
}

fn as_names<S: Serializer>(kinds: &[IdKind], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(kinds.iter().map(|kind| kind.as_str()))
}

fn visible<'de, D: Deserializer<'de>>(
    deserializer: D,
    most: usize,
) -> Result<Option<String>, D::Error> {
    if let Ok(text) = String::deserialize(deserializer)
        && (1..=most).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_graphic())
    {
        return Ok(Some(text));
    }
    Err(D::Error::custom(format_args!(
        "1 to {most} visible ASCII characters"
    )))
}

fn layer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    visible(deserializer, MAX_LAYER)
}

fn tag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    visible(deserializer, MAX_TAG)
}

impl ExperimentConfig {
    fn layer(&self) -> String {
        self.layer
            .clone()
            .unwrap_or_else(|| format!("{}-layer", self.name))
    }

    fn traffic(&self) -> Vec<Range<u32>> {
        match &self.traffic {
            Some(ranges) => ranges.0.clone(),
            None => std::iter::once(0..SLOTS).collect(),
        }
    }
}

impl BucketConfig {
    /// Its tag, if it has one.
    pub(super) fn tag(&self) -> Option<Tag> {
        let text = self.tag.clone();
        let number = self.tag_number.map(u64::from);
        if text.is_none() && number.is_none() {
            return None;
        }
        Some(Tag { text, number })
    }
}

/// The experiments. Their tags have the indexes 0, 1 and so on, in the order of
/// [`super::PlatformConfig::tags`].
pub fn experiments(configs: &[ExperimentConfig]) -> Vec<Experiment> {
    let mut tags = 0..u16::MAX;
    let mut experiments = Vec::with_capacity(configs.len());
    for config in configs {
        let mut buckets = Vec::with_capacity(config.buckets.len());
        for bucket in &config.buckets {
            // A configuration with more buckets than tags is refused.
            let mut tag = None;
            if bucket.tag().is_some() {
                tag = tags.next();
            }
            buckets.push(Bucket {
                name: bucket.name.clone(),
                slots: Slots(bucket.slots.0.clone()),
                tag,
            });
        }

        experiments.push(Experiment {
            buckets,
            name: config.name.clone(),
            layer: config.layer(),
            unit: config.unit.clone(),
            traffic: Slots(config.traffic()),
        });
    }
    experiments
}

/// Parts of experiments as `when` names them: `price-test:b`.
#[derive(Debug, Clone, Default)]
pub struct PartNames {
    names: Vec<(String, usize, Assignment)>,
}

impl PartNames {
    /// The parts of these experiments.
    pub fn of(configs: &[ExperimentConfig]) -> Self {
        let mut names = Vec::new();
        for (index, experiment) in experiments(configs).iter().enumerate() {
            for part in experiment.parts() {
                names.push((experiment.full_name(part), index, part));
            }
        }
        Self { names }
    }

    /// The experiment and the part of a name.
    pub fn find(&self, name: &str) -> Option<(usize, Assignment)> {
        for (known, experiment, part) in &self.names {
            if known == name {
                return Some((*experiment, *part));
            }
        }
        None
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.names.iter().map(|(name, ..)| name.clone()).collect()
    }
}
