//! `when`: a condition of a strategy over audiences.

use std::collections::BTreeMap;
use std::fmt;

use rtad_config::values::NAME;
use rtad_config::{Document, OneOrMany};
use rtad_core::snapshot::AudienceName;
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::strategy::{
    Accepted, Attribute, AttributeValue, Attributes, Membership, OS_WORDS, Rule, Truth,
};

/// Longest value of an attribute.
const MAX_VALUE: usize = 128;
/// Deepest nesting, and most audiences and attributes of a condition.
const MAX_DEPTH: usize = 8;
const MAX_LEAVES: usize = 64;
/// Most combinations of memberships and attributes that are tried: those of 12 audiences.
const MAX_TRIED: usize = 1 << 12;
const FIELDS: &[&str] =
    &["audience", "os", "app", "slot", "region", "request_type", "absent", "any", "all", "none"];

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
                write!(f, "the name of an audience, or a table of {}", FIELDS.join(", "))
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Condition, E> {
                let audience = name.parse().map_err(|_| E::custom(NAME))?;
                Ok(Condition { audience: Some(audience), ..Condition::default() })
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Condition, A::Error> {
                let mut condition = Condition::default();
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "audience" => {
                            let name: String = map.next_value()?;
                            let name = name.parse().map_err(|_| A::Error::custom(NAME))?;
                            condition.audience = Some(name);
                        }
                        "any" => condition.any = Some(map.next_value()?),
                        "all" => condition.all = Some(map.next_value()?),
                        "none" => condition.none = Some(map.next_value()?),
                        "absent" => condition.absent = Some(map.next_value()?),
                        attribute if let Some(attribute) = attribute_named(attribute) => {
                            let OneOrMany(values) = map.next_value()?;
                            condition.attributes.insert(attribute, values);
                        }
                        // Noted by the reader.
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(condition)
            }
        }
        deserializer.deserialize_struct("Condition", FIELDS, Parts)
    }
}

fn attribute_named(name: &str) -> Option<Attribute> {
    Attribute::ALL.into_iter().find(|attribute| attribute.as_str() == name)
}

impl Condition {
    fn groups(&self) -> impl Iterator<Item = (&'static str, &Vec<Self>)> {
        let groups = [("any", &self.any), ("all", &self.all), ("none", &self.none)];
        groups.into_iter().filter_map(|(word, group)| Some((word, group.as_ref()?)))
    }

    /// The rule, with indexes of audiences; without those that `index` does not know.
    pub fn rule(&self, index: &impl Fn(&AudienceName) -> Option<usize>) -> Rule {
        let audience = self.audience.as_ref().and_then(index).map(Rule::Audience);
        let groups = self.groups().map(|(word, group)| {
            let rules = group.iter().map(|condition| condition.rule(index)).collect();
            match word {
                "any" => Rule::Any(rules),
                "all" => Rule::All(rules),
                _ => Rule::None(rules),
            }
        });
        let attributes = self.attributes.iter().map(|(attribute, values)| {
            let accepted = values.iter().map(|value| value.as_str().into()).collect();
            Rule::Attribute(*attribute, accepted)
        });
        let leaves = audience.into_iter().chain(attributes);
        let leaves = leaves.chain(self.absent.map(Rule::Absent));
        let mut rules: Vec<_> = leaves.chain(groups).collect();
        if rules.len() == 1 { rules.remove(0) } else { Rule::All(rules) }
    }

    /// Notes the mistakes of a condition at `key`. Returns the number of its audiences and
    /// attributes.
    pub(super) fn check(
        &self,
        d: &mut Document<'_>,
        key: &str,
        depth: usize,
        audiences: &[String],
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
            refuse_unknown(d, key, name.as_str(), audiences);
        }
        leaves += self.attributes.len() + usize::from(self.absent.is_some());
        for (attribute, values) in &self.attributes {
            let key = format!("{key}.{}", attribute.as_str());
            let is_wrong = |value: &String| match attribute {
                Attribute::Os => !OS_WORDS.contains(&value.as_str()),
                _ => value.is_empty() || value.len() > MAX_VALUE,
            };
            let accepted = match attribute {
                Attribute::Os => format!("one or more of {}", OS_WORDS.join(", ")),
                _ => format!("one or more texts of at most {MAX_VALUE} bytes"),
            };
            if values.is_empty() {
                d.mistake(&key, "is empty", &accepted);
            } else if let Some(wrong) = values.iter().find(|value| is_wrong(value)) {
                d.mistake(&key, &format!("has {wrong:?}"), &accepted);
            }
        }
        for (word, group) in self.groups() {
            let key = format!("{key}.{word}");
            if group.is_empty() {
                d.mistake(&key, "is empty", "a list of at least one condition");
            }
            for (index, condition) in group.iter().enumerate() {
                leaves += condition.check(d, &format!("{key}[{index}]"), depth + 1, audiences);
            }
        }
        if *self == Self::default() && !d.has_mistake(key) {
            d.mistake(key, "has no condition", &format!("at least one of {}", FIELDS.join(", ")));
        }
        if depth == 0 && leaves > MAX_LEAVES {
            let found = format!("has {leaves} audiences and attributes");
            d.mistake(key, &found, &format!("at most {MAX_LEAVES}"));
        }
        leaves
    }
}

/// Notes an audience that the file does not have, and the most similar one that it has.
pub(super) fn refuse_unknown(d: &mut Document<'_>, key: &str, name: &str, audiences: &[String]) {
    if audiences.iter().any(|audience| audience == name) {
        return;
    }
    let similar = audiences
        .iter()
        .map(|audience| (strsim::jaro_winkler(audience, name), audience))
        .filter(|(similarity, _)| *similarity > 0.8)
        .max_by(|one, other| one.0.total_cmp(&other.0));
    let all = format!("audiences of this file: {}", audiences.join(", "));
    match similar {
        Some((_, audience)) => d.reject(key, &format!("perhaps {audience:?}; {all}")),
        None => d.reject(key, &all),
    }
}

/// A condition that no device meets, or that every device meets.
pub(super) enum Constant {
    /// `when` holds for no device.
    WhenNever,
    /// `when` holds for every device.
    WhenAlways,
    /// `when`, `exclude` and `include` together hold for no device.
    Never,
}

/// Results of all combinations of memberships.
pub(super) struct Tried {
    /// `None` if the conditions depend on the device.
    pub(super) constant: Option<Constant>,
    /// Whether any bid has the value, by its index.
    pub(super) reached: Vec<bool>,
}

/// The state of each attribute in a combination: one of the values that a rule names, another
/// value, or none.
struct Tries<'r> {
    /// Attributes, the values that the rule names, and the state.
    states: Vec<(Attribute, Vec<&'r Accepted>, usize)>,
}

impl<'r> Tries<'r> {
    fn new(rule: Option<&'r Rule>) -> Self {
        let mut named: BTreeMap<Attribute, Vec<&Accepted>> = BTreeMap::new();
        for (attribute, accepted) in rule.map_or_else(Vec::new, Rule::attributes) {
            let values = named.entry(attribute).or_default();
            for value in accepted {
                if !values.contains(&value) {
                    values.push(value);
                }
            }
        }
        let states = named.into_iter().map(|(attribute, values)| (attribute, values, 0));
        Self { states: states.collect() }
    }

    fn combinations(&self) -> usize {
        self.states.iter().fold(1, |all, (_, values, _)| all.saturating_mul(values.len() + 2))
    }

    fn set(&mut self, mut combination: usize) {
        for (_, values, state) in &mut self.states {
            *state = combination % (values.len() + 2);
            combination /= values.len() + 2;
        }
    }
}

impl Attributes for Tries<'_> {
    fn attribute(&self, attribute: Attribute) -> Option<AttributeValue<'_>> {
        let (_, values, state) = self.states.iter().find(|(known, ..)| *known == attribute)?;
        match values.get(*state) {
            Some(value) => Some(AttributeValue::Text(value.as_str().as_bytes())),
            // No value of a config is empty.
            None => (*state == values.len()).then_some(AttributeValue::Text(b"")),
        }
    }
}

/// Tries every combination of memberships and attributes. `values` are the audiences of values.
/// `None` if there are too many to try.
pub(super) fn try_all(
    exclude: &[usize],
    include: &[usize],
    rule: Option<&Rule>,
    values: &[Option<usize>],
) -> Option<Tried> {
    let of_rule = rule.map_or_else(Vec::new, Rule::audiences);
    let of_values = values.iter().flatten();
    let lists = exclude.iter().chain(include).chain(of_values).copied();
    let mut used: Vec<usize> = lists.chain(of_rule).collect();
    used.sort_unstable();
    used.dedup();
    let mut tries = Tries::new(rule);
    let memberships = 1_usize.checked_shl(used.len() as u32)?;
    let combinations = memberships.saturating_mul(tries.combinations());
    if combinations > MAX_TRIED {
        return None;
    }
    let (mut when, mut bids, mut reached) = ([false; 2], false, vec![false; values.len()]);
    for combination in 0..combinations {
        let bits = combination % memberships;
        tries.set(combination / memberships);
        let is_member = |audience: &usize| {
            used.binary_search(audience).is_ok_and(|position| bits >> position & 1 == 1)
        };
        let mut membership = |audience| {
            if is_member(&audience) { Membership::Member } else { Membership::NotMember }
        };
        let holds = rule.is_none_or(|rule| rule.truth(&tries, &mut membership) == Truth::True);
        when[usize::from(holds)] = true;
        let is_included = include.is_empty() || include.iter().any(is_member);
        if holds && is_included && !exclude.iter().any(is_member) {
            bids = true;
            let first = values.iter().position(|value| value.as_ref().is_none_or(is_member));
            first.into_iter().for_each(|index| reached[index] = true);
        }
    }
    let constant = match (rule, when) {
        (Some(_), [true, false]) => Some(Constant::WhenNever),
        (Some(_), [false, true]) => Some(Constant::WhenAlways),
        _ if !bids => Some(Constant::Never),
        _ => None,
    };
    Some(Tried { constant, reached })
}
