//! `when`: a condition of a strategy over audiences.

use std::collections::BTreeMap;
use std::fmt;

use rtad_config::values::NAME;
use rtad_config::{Document, OneOrMany};
use rtad_core::snapshot::AudienceName;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::experiment::PartNames;
use crate::strategy::{Attribute, OS_WORDS, Rule};

/// Longest value of an attribute.
const MAX_VALUE: usize = 128;
/// Deepest nesting, and most audiences, attributes and buckets of a condition.
const MAX_DEPTH: usize = 8;
const MAX_LEAVES: usize = 64;
const FIELDS: &[&str] = &[
    "audience",
    "os",
    "app",
    "slot",
    "region",
    "request_type",
    "absent",
    "bucket",
    "any",
    "all",
    "none",
];

/// A condition. Each of its keys must hold. A text stands for `{ audience = "…" }`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Condition {
    /// The device is in this audience.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audience: Option<AudienceName>,
    /// Each of these attributes of the request has one of the values.
    #[serde(flatten)]
    pub attributes: BTreeMap<Attribute, Vec<String>>,
    /// The request lacks this attribute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub absent: Option<Attribute>,
    /// The device has one of these parts in an experiment, as `EXPERIMENT:BUCKET`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bucket: Vec<String>,
    /// At least one of these holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub any: Option<Vec<Self>>,
    /// Each of these holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all: Option<Vec<Self>>,
    /// Not one of these holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub none: Option<Vec<Self>>,
}

impl<'de> Deserialize<'de> for Condition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Parts;
        impl<'de> Visitor<'de> for Parts {
            type Value = Condition;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(
                    f,
                    "the name of an audience, or a table of {}",
                    FIELDS.join(", ")
                )
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Condition, E> {
                let audience = name.parse().map_err(|_| E::custom(NAME))?;
                Ok(Condition {
                    audience: Some(audience),
                    ..Condition::default()
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Condition, A::Error> {
                let mut condition = Condition::default();
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "audience" => condition.audience = Some(map.next_value()?),
                        "any" => condition.any = Some(map.next_value()?),
                        "all" => condition.all = Some(map.next_value()?),
                        "none" => condition.none = Some(map.next_value()?),
                        "absent" => condition.absent = Some(map.next_value()?),
                        "bucket" => {
                            let OneOrMany(parts) = map.next_value()?;
                            condition.bucket = parts;
                        }
                        attribute if let Some(attribute) = attribute_named(attribute) => {
                            let OneOrMany(values) = map.next_value()?;
                            condition.attributes.insert(attribute, values);
                        }
                        _ => return Err(A::Error::unknown_field(&key, FIELDS)),
                    }
                }
                Ok(condition)
            }
        }
        deserializer.deserialize_struct("Condition", FIELDS, Parts)
    }
}

fn attribute_named(name: &str) -> Option<Attribute> {
    Attribute::ALL
        .into_iter()
        .find(|attribute| attribute.as_str() == name)
}

/// The experiment of a part such as `EXPERIMENT:BUCKET`.
fn experiment_of(part: &str) -> Option<&str> {
    let (experiment, _) = part.split_once(':')?;
    Some(experiment)
}

impl Condition {
    fn groups(&self) -> impl Iterator<Item = (&'static str, &Vec<Self>)> {
        let groups = [("any", &self.any), ("all", &self.all), ("none", &self.none)];
        groups
            .into_iter()
            .filter_map(|(word, group)| Some((word, group.as_ref()?)))
    }

    /// The condition itself, and all inside it.
    pub(super) fn flat(&self) -> Vec<&Self> {
        let mut conditions = vec![self];
        for (_, group) in self.groups() {
            for condition in group {
                conditions.extend(condition.flat());
            }
        }
        conditions
    }

    /// Whether it depends on a part in this experiment.
    pub(super) fn reads_experiment(&self, name: &str) -> bool {
        self.flat()
            .iter()
            .flat_map(|condition| &condition.bucket)
            .any(|part| experiment_of(part) == Some(name))
    }

    /// Whether it can hold only for members of one of these audiences.
    pub fn holds_only_in(&self, audiences: &[AudienceName]) -> bool {
        if self
            .audience
            .as_ref()
            .is_some_and(|name| audiences.contains(name))
        {
            return true;
        }

        let all = self.all.as_deref().unwrap_or_default();
        let any = self.any.as_deref().unwrap_or_default();
        all.iter().any(|it| it.holds_only_in(audiences))
            || (!any.is_empty() && any.iter().all(|it| it.holds_only_in(audiences)))
    }

    /// Whether it holds for no device with this part in an experiment.
    pub fn refuses_part(&self, name: &str) -> bool {
        let experiment = experiment_of(name);
        let parts = &self.bucket;
        if !parts.is_empty()
            && parts.iter().all(|part| experiment_of(part) == experiment)
            && parts.iter().all(|part| part != name)
        {
            return true;
        }

        let all = self.all.as_deref().unwrap_or_default();
        let any = self.any.as_deref().unwrap_or_default();
        let none = self.none.as_deref().unwrap_or_default();
        all.iter().any(|it| it.refuses_part(name))
            || (!any.is_empty() && any.iter().all(|it| it.refuses_part(name)))
            || none.iter().any(|it| it.names_only_parts_with(name))
    }

    /// Whether it is a list of parts with this one.
    fn names_only_parts_with(&self, name: &str) -> bool {
        let parts_alone = Self {
            bucket: self.bucket.clone(),
            ..Self::default()
        };
        *self == parts_alone && self.bucket.iter().any(|part| part == name)
    }

    /// The rule, with indexes of audiences and experiments; without those that `index` and `parts`
    /// do not know.
    pub fn rule(&self, index: &impl Fn(&AudienceName) -> Option<usize>, parts: &PartNames) -> Rule {
        let mut rules = Vec::new();
        if let Some(audience) = self.audience.as_ref().and_then(index) {
            rules.push(Rule::Audience(audience));
        }
        for (attribute, values) in &self.attributes {
            let accepted = values.iter().map(|value| value.as_str().into()).collect();
            rules.push(Rule::Attribute(*attribute, accepted));
        }
        if let Some(attribute) = self.absent {
            rules.push(Rule::Absent(attribute));
        }

        let mut buckets = Vec::new();
        for name in &self.bucket {
            if let Some((experiment, part)) = parts.find(name) {
                buckets.push(Rule::Bucket(experiment, part));
            }
        }
        if buckets.len() > 1 {
            rules.push(Rule::Any(buckets));
        } else {
            rules.append(&mut buckets);
        }

        for (word, group) in self.groups() {
            let inner = group.iter().map(|it| it.rule(index, parts)).collect();
            rules.push(match word {
                "any" => Rule::Any(inner),
                "all" => Rule::All(inner),
                _ => Rule::None(inner),
            });
        }

        if rules.len() == 1 {
            rules.remove(0)
        } else {
            Rule::All(rules)
        }
    }

    /// Notes the mistakes of a condition at `key`. Returns the number of its audiences and
    /// attributes.
    pub(super) fn check(
        &self,
        d: &mut Document<'_>,
        key: &str,
        depth: usize,
        audiences: &[String],
        parts: &PartNames,
    ) -> usize {
        if depth > MAX_DEPTH {
            let accepted = format!("conditions of at most {MAX_DEPTH} levels");
            d.mistake(key, "is nested too deeply", &accepted);
            return 0;
        }

        let mut leaves = 0;
        if let Some(name) = &self.audience {
            leaves += 1;
            let long = format!("{key}.audience");
            let key = if d.has(&long) { &long } else { key };
            refuse_unknown(d, key, name.as_str(), "audiences", audiences);
        }

        leaves += self.bucket.len();
        let list = format!("{key}.bucket");
        if self.bucket.is_empty() && d.has(&list) {
            d.mistake(&list, "is empty", "one or more of EXPERIMENT:BUCKET");
        }
        for (index, name) in self.bucket.iter().enumerate() {
            if parts.find(name).is_none() {
                let one = format!("{key}.bucket");
                let listed = format!("{one}[{index}]");
                let key = if d.has(&listed) { listed } else { one };
                refuse_unknown(d, &key, name, "parts of experiments", &parts.names());
            }
        }

        leaves += self.attributes.len() + usize::from(self.absent.is_some());
        for (attribute, values) in &self.attributes {
            let key = format!("{key}.{}", attribute.as_str());
            check_attribute(d, &key, *attribute, values);
        }

        for (word, group) in self.groups() {
            let key = format!("{key}.{word}");
            if group.is_empty() {
                d.mistake(&key, "is empty", "a list of at least one condition");
            }
            for (index, condition) in group.iter().enumerate() {
                leaves +=
                    condition.check(d, &format!("{key}[{index}]"), depth + 1, audiences, parts);
            }
        }

        if *self == Self::default() {
            d.mistake(
                key,
                "has no condition",
                &format!("at least one of {}", FIELDS.join(", ")),
            );
        }
        if depth == 0 && leaves > MAX_LEAVES {
            let found = format!("has {leaves} audiences, attributes and buckets");
            d.mistake(key, &found, &format!("at most {MAX_LEAVES}"));
        }
        leaves
    }
}

/// Notes a name that is not one of the known `things`, and the most similar known one.
pub fn refuse_unknown(d: &mut Document<'_>, key: &str, name: &str, things: &str, known: &[String]) {
    if known.iter().any(|known| known == name) {
        return;
    }
    let similar = known
        .iter()
        .map(|known| (strsim::jaro_winkler(known, name), known))
        .filter(|(similarity, _)| *similarity > 0.8)
        .max_by(|one, other| one.0.total_cmp(&other.0));
    let all = format!("{things} of this file: {}", known.join(", "));
    match similar {
        Some((_, known)) => d.reject(key, &format!("perhaps {known:?}; {all}")),
        None => d.reject(key, &all),
    }
}

fn check_attribute(d: &mut Document<'_>, key: &str, attribute: Attribute, values: &[String]) {
    let accepted = match attribute {
        Attribute::Os => format!("one or more of {}", OS_WORDS.join(", ")),
        _ => format!("one or more texts of at most {MAX_VALUE} bytes"),
    };
    if values.is_empty() {
        d.mistake(key, "is empty", &accepted);
        return;
    }

    for value in values {
        let is_accepted = match attribute {
            Attribute::Os => OS_WORDS.contains(&value.as_str()),
            _ => !value.is_empty() && value.len() <= MAX_VALUE,
        };
        // One mistake per list: the further ones are of the same kind.
        if !is_accepted {
            return d.mistake(key, &format!("has {value:?}"), &accepted);
        }
    }
}
