//! `when`: a condition of a strategy over audiences.

use std::fmt;

use rtad_config::Document;
use rtad_config::values::NAME;
use rtad_core::snapshot::AudienceName;
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::strategy::{Membership, Rule, Truth};

/// Deepest nesting, and most audiences of a condition.
const MAX_DEPTH: usize = 8;
const MAX_LEAVES: usize = 64;
/// Most different audiences of a strategy whose memberships are all tried: 4,096 combinations.
const MAX_TRIED: usize = 12;
const FIELDS: &[&str] = &["audience", "any", "all", "none"];

/// A condition. Each of its keys must hold. A text stands for `{ audience = "…" }`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Condition {
    /// The device is in this audience.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audience: Option<AudienceName>,
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
        let mut rules: Vec<_> = audience.into_iter().chain(groups).collect();
        if rules.len() == 1 { rules.remove(0) } else { Rule::All(rules) }
    }

    /// Notes the mistakes of a condition at `key`. Returns the number of its audiences.
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
            let found = format!("has {leaves} audiences");
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

/// Tries every combination of memberships. `values` are the audiences of values. `None` if there
/// are too many audiences to try.
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
    if used.len() > MAX_TRIED {
        return None;
    }
    let (mut when, mut bids, mut reached) = ([false; 2], false, vec![false; values.len()]);
    for bits in 0..1_u32 << used.len() {
        let is_member = |audience: &usize| {
            used.binary_search(audience).is_ok_and(|position| bits >> position & 1 == 1)
        };
        let mut membership = |audience| {
            if is_member(&audience) { Membership::Member } else { Membership::NotMember }
        };
        let holds = rule.is_none_or(|rule| rule.truth(&mut membership) == Truth::True);
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
