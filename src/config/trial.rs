//! Conditions that never hold, or always, and values that no bid has: found by trying all
//! combinations of what decides them.

use std::collections::BTreeMap;

use super::experiment::PartNames;
use crate::strategy::{
    Accepted, Assignment, Attribute, AttributeValue, Attributes, Membership, Rule, TierSet, Truth,
    reach,
};

/// Most combinations of memberships and attributes that are tried: those of 12 audiences.
pub const MAX_TRIED: usize = 1 << 12;

/// A condition that no device meets, or that every device meets.
pub enum Constant {
    /// `when` holds for no device.
    WhenNever,
    /// `when` holds for every device.
    WhenAlways,
    /// `when`, `exclude` and `include` together hold for no device.
    Never,
}

/// Results of all combinations of memberships.
pub struct Tried {
    /// `None` if the conditions depend on the device.
    pub(super) constant: Option<Constant>,
    /// Whether any bid has the value, by its index.
    pub(super) reached: Vec<bool>,
}

/// One combination at a time of the values of attributes and of the parts of experiments.
struct Combination<'r> {
    attributes: Vec<TriedAttribute<'r>>,
    layers: Vec<TriedLayer>,
}

/// An attribute.
struct TriedAttribute<'r> {
    attribute: Attribute,
    /// The values that the rule names.
    values: Vec<&'r Accepted>,
    /// The index of one of these values, or after them another value, or none.
    state: usize,
}

/// The experiments of a layer.
struct TriedLayer {
    experiments: Vec<usize>,
    /// The parts that a device may have at once, in the order of `experiments`.
    together: Vec<Vec<Assignment>>,
    /// The index in `together`.
    state: usize,
}

/// Stands for the parts that a rule does not name.
const OTHER_PART: Assignment = Assignment::Bucket(u8::MAX);

impl TriedAttribute<'_> {
    fn states(&self) -> usize {
        self.values.len() + 2
    }
}

impl TriedLayer {
    fn new(experiments: Vec<usize>, named: &[(usize, Assignment)], names: &PartNames) -> Self {
        let mut together = Vec::new();
        for mut parts in names.together(&experiments) {
            for (experiment, part) in experiments.iter().zip(&mut parts) {
                if !named.contains(&(*experiment, *part)) {
                    *part = OTHER_PART;
                }
            }
            if !together.contains(&parts) {
                together.push(parts);
            }
        }
        Self {
            experiments,
            together,
            state: 0,
        }
    }
}

impl<'r> Combination<'r> {
    /// The first one.
    fn new(rule: Option<&'r Rule>, names: &PartNames) -> Self {
        let mut named: BTreeMap<Attribute, Vec<&Accepted>> = BTreeMap::new();
        for (attribute, accepted) in rule.map_or_else(Vec::new, Rule::attributes) {
            let values = named.entry(attribute).or_default();
            for value in accepted {
                if !values.contains(&value) {
                    values.push(value);
                }
            }
        }
        let attributes = named.into_iter().map(|(attribute, values)| TriedAttribute {
            attribute,
            values,
            state: 0,
        });
        let named = rule.map_or_else(Vec::new, Rule::buckets);
        let layers = names.by_layer(rule.map_or_else(Vec::new, Rule::experiments));
        let layers = layers
            .into_iter()
            .map(|experiments| TriedLayer::new(experiments, &named, names));
        Self {
            attributes: attributes.collect(),
            layers: layers.collect(),
        }
    }

    /// Number of all.
    fn count(&self) -> usize {
        let values = self.attributes.iter().map(TriedAttribute::states);
        let parts = self.layers.iter().map(|layer| layer.together.len());
        values.chain(parts).fold(1, usize::saturating_mul)
    }

    /// Changes to another one, by its index.
    fn set(&mut self, mut index: usize) {
        for attribute in &mut self.attributes {
            attribute.state = index % attribute.states();
            index /= attribute.states();
        }
        for layer in &mut self.layers {
            layer.state = index % layer.together.len();
            index /= layer.together.len();
        }
    }
}

impl Attributes for Combination<'_> {
    fn attribute(&self, attribute: Attribute) -> Option<AttributeValue<'_>> {
        let tried = self
            .attributes
            .iter()
            .find(|tried| tried.attribute == attribute)?;
        match tried.values.get(tried.state) {
            Some(value) => Some(AttributeValue::Text(value.as_str().as_bytes())),
            // No value of a config is empty.
            None => (tried.state == tried.values.len()).then_some(AttributeValue::Text(b"")),
        }
    }

    fn assignment(&self, experiment: usize) -> Assignment {
        let mut found = self.layers.iter().filter_map(|layer| {
            let index = layer
                .experiments
                .iter()
                .position(|known| *known == experiment)?;
            Some(layer.together[layer.state][index])
        });
        found.next().unwrap_or(Assignment::Unknown)
    }
}

/// Tries every combination of memberships, attributes and parts of experiments. `values` are the
/// audiences of values, with the values of their members. `None` if there are too many to try.
pub fn try_all(
    exclude: &[usize],
    include: &[usize],
    rule: Option<&Rule>,
    values: &[(Option<usize>, TierSet)],
    parts: &PartNames,
) -> Option<Tried> {
    let of_rule = rule.map_or_else(Vec::new, Rule::audiences);
    let of_values = values.iter().filter_map(|(audience, _)| audience.as_ref());
    let lists = exclude.iter().chain(include).chain(of_values).copied();
    let mut used: Vec<usize> = lists.chain(of_rule).collect();
    used.sort_unstable();
    used.dedup();
    let mut tried = Combination::new(rule, parts);
    let memberships = 1_usize.checked_shl(used.len() as u32)?;
    let combinations = memberships.saturating_mul(tried.count());
    if combinations > MAX_TRIED {
        return None;
    }
    let (mut when, mut bids, mut reached) = ([false; 2], false, vec![false; values.len()]);
    for combination in 0..combinations {
        let bits = combination % memberships;
        tried.set(combination / memberships);
        let is_member = |audience: &usize| {
            used.binary_search(audience)
                .is_ok_and(|position| bits >> position & 1 == 1)
        };
        let mut membership = |audience| {
            if is_member(&audience) {
                Membership::Member
            } else {
                Membership::NotMember
            }
        };
        let holds = rule.is_none_or(|rule| rule.truth(&tried, &mut membership) == Truth::True);
        when[usize::from(holds)] = true;
        let is_included = include.is_empty() || include.iter().any(is_member);
        if holds && is_included && !exclude.iter().any(is_member) {
            bids = true;
            reach(values, is_member, &mut reached);
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
