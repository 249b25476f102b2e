//! Rules: nested conditions over audiences, with three truth values, and the leaf of them that
//! decides about a device.

use super::experiment::{Assignment, Experiment};
use super::facts::{Accepted, Attribute, Facts, LookedUp};
use super::{Decision, Membership, Outcome, Reason, Strategy};

/// Truth of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Truth {
    /// It holds.
    True,
    /// It does not.
    False,
    /// It depends on an audience that is unavailable, or on an attribute that is absent.
    Unknown,
}

impl From<bool> for Truth {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

impl Truth {
    const fn negated(self) -> Self {
        match self {
            Self::True => Self::False,
            Self::False => Self::True,
            Self::Unknown => Self::Unknown,
        }
    }
}

/// A condition. Audiences are named by their indexes in the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// The device is in the audience.
    Audience(usize),
    /// The request's attribute is one of these.
    Attribute(Attribute, Vec<Accepted>),
    /// The request does not carry the attribute.
    Absent(Attribute),
    /// The device has this part in the experiment of this index.
    Bucket(usize, Assignment),
    /// At least one holds.
    Any(Vec<Self>),
    /// Each holds.
    All(Vec<Self>),
    /// Not one holds.
    None(Vec<Self>),
}

/// A single condition of a strategy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaf {
    /// The device's membership in the audience of this index.
    Audience(usize),
    /// An attribute of the request.
    Attribute(Attribute),
    /// The device's part in the experiment of this index.
    Part(usize, Assignment),
}

impl Leaf {
    /// Its name: an audience, an attribute, or `EXPERIMENT:BUCKET`.
    pub fn name(self, audience: impl Fn(usize) -> String, experiments: &[Experiment]) -> String {
        match self {
            Self::Audience(index) => audience(index),
            Self::Attribute(attribute) => attribute.as_str().to_owned(),
            Self::Part(index, part) => experiments[index].full_name(part),
        }
    }
}

impl Rule {
    /// Its truth for a device: an unavailable audience makes it unknown only if the others leave it
    /// open. No allocation.
    #[inline]
    pub fn truth(&self, facts: &Facts<'_>) -> Truth {
        self.truth_by_parts(facts, &facts.parts)
    }

    /// Its truth for a device with these parts in the experiments; one that is missing is unknown.
    pub(super) fn truth_by_parts(&self, facts: &Facts<'_>, parts: &[Assignment]) -> Truth {
        match self {
            Self::Attribute(attribute, accepted) => match facts.attribute(*attribute) {
                Some(value) => accepted.iter().any(|accepted| accepted.is(value)).into(),
                None => Truth::Unknown,
            },
            Self::Absent(attribute) => facts.attribute(*attribute).is_none().into(),
            Self::Bucket(experiment, part) => match parts.get(*experiment) {
                None | Some(Assignment::Unknown) => Truth::Unknown,
                Some(found) => (found == part).into(),
            },
            Self::Audience(audience) => match facts.membership(*audience) {
                Membership::Member => Truth::True,
                Membership::NotMember => Truth::False,
                Membership::Unavailable => Truth::Unknown,
            },

            Self::Any(rules) => first(rules, Truth::True, facts, parts).unwrap_or(Truth::False),
            Self::All(rules) => first(rules, Truth::False, facts, parts).unwrap_or(Truth::True),
            Self::None(rules) => match first(rules, Truth::True, facts, parts) {
                Some(Truth::True) => Truth::False,
                Some(unknown) => unknown,
                None => Truth::True,
            },
        }
    }

    /// The leaf that gives it its `truth` for a device with these parts: the first one in the
    /// config's order. `None` if that is a part that is unknown.
    pub(super) fn deciding(
        &self,
        truth: Truth,
        facts: &Facts<'_>,
        parts: &[Assignment],
    ) -> Option<Leaf> {
        let (rules, sought) = match self {
            Self::Audience(audience) => return Some(Leaf::Audience(*audience)),
            Self::Attribute(attribute, _) | Self::Absent(attribute) => {
                return Some(Leaf::Attribute(*attribute));
            }
            Self::Bucket(experiment, _) => {
                return match parts.get(*experiment) {
                    None | Some(Assignment::Unknown) => None,
                    Some(part) => Some(Leaf::Part(*experiment, *part)),
                };
            }
            Self::Any(rules) | Self::All(rules) => (rules, truth),
            Self::None(rules) => (rules, truth.negated()),
        };

        for rule in rules {
            if rule.truth_by_parts(facts, parts) == sought {
                return rule.deciding(sought, facts, parts);
            }
        }
        None
    }

    /// Appends the leaves for which its truth is unknown: none if it is known.
    pub(super) fn add_unknown(&self, facts: &Facts<'_>, to: &mut Vec<Self>) {
        if self.truth(facts) != Truth::Unknown {
            return;
        }

        match self {
            Self::Any(rules) | Self::All(rules) | Self::None(rules) => {
                for rule in rules {
                    rule.add_unknown(facts, to);
                }
            }
            leaf => to.push(leaf.clone()),
        }
    }

    /// Its audiences in the order of the rule, some more than once.
    pub fn audiences(&self) -> Vec<usize> {
        match self {
            Self::Audience(audience) => vec![*audience],
            Self::Attribute(..) | Self::Absent(_) | Self::Bucket(..) => Vec::new(),
            Self::Any(rules) | Self::All(rules) | Self::None(rules) => {
                rules.iter().flat_map(Self::audiences).collect()
            }
        }
    }

    /// The parts in experiments that it names, in the order of the rule, some more than once.
    pub fn buckets(&self) -> Vec<(usize, Assignment)> {
        match self {
            Self::Bucket(experiment, part) => vec![(*experiment, *part)],
            Self::Audience(_) | Self::Attribute(..) | Self::Absent(_) => Vec::new(),
            Self::Any(rules) | Self::All(rules) | Self::None(rules) => {
                rules.iter().flat_map(Self::buckets).collect()
            }
        }
    }

    /// Whether another part in an experiment could change its truth: without the parts, the rest
    /// leaves it open.
    pub(super) fn is_decided_by_bucket(&self, facts: &Facts<'_>) -> bool {
        self.truth_by_parts(facts, &[]) == Truth::Unknown
    }

    /// Its attributes in the order of the rule, some more than once, with the accepted values.
    pub fn attributes(&self) -> Vec<(Attribute, &[Accepted])> {
        match self {
            Self::Audience(_) | Self::Bucket(..) => Vec::new(),
            Self::Attribute(attribute, accepted) => vec![(*attribute, accepted)],
            Self::Absent(attribute) => vec![(*attribute, &[])],
            Self::Any(rules) | Self::All(rules) | Self::None(rules) => {
                rules.iter().flat_map(Self::attributes).collect()
            }
        }
    }

    /// The smallest changes of memberships that would change its truth: single ones, or else pairs.
    /// Empty if more are needed. Takes up to thousands of evaluations: for explanations.
    pub fn changes(&self, facts: &Facts<'_>) -> Vec<Vec<(usize, Membership)>> {
        let truth = self.truth(facts);
        let mut audiences = self.audiences();
        audiences.sort_unstable();
        audiences.dedup();

        // What follows changes what is known, also of ids that were not looked up.
        let mut known = facts.clone();
        known.looked_up = LookedUp::All;
        for audience in &audiences {
            known.set_membership(*audience, facts.membership(*audience));
        }

        let mut singles = Vec::new();
        for audience in audiences {
            for other in [Membership::Member, Membership::NotMember] {
                if other != facts.membership(audience) {
                    singles.push((audience, other));
                }
            }
        }

        let mut changes = Vec::new();
        for single in &singles {
            if self.truth_with(&known, &[*single]) != truth {
                changes.push(vec![*single]);
            }
        }
        if !changes.is_empty() {
            return changes;
        }

        for (index, one) in singles.iter().enumerate() {
            for other in &singles[index + 1..] {
                let pair = [*one, *other];
                if one.0 != other.0 && self.truth_with(&known, &pair) != truth {
                    changes.push(pair.to_vec());
                }
            }
        }
        changes
    }

    /// Its truth with other memberships.
    fn truth_with(&self, facts: &Facts<'_>, changes: &[(usize, Membership)]) -> Truth {
        let mut changed = facts.clone();
        for (audience, membership) in changes {
            changed.set_membership(*audience, *membership);
        }
        self.truth(&changed)
    }

    /// The rule as a text, such as `any(vip, none(banned))`.
    pub fn to_text(&self, name: &impl Fn(usize) -> String, experiments: &[Experiment]) -> String {
        let (word, rules) = match self {
            Self::Audience(audience) => return name(*audience),
            Self::Attribute(attribute, accepted) => {
                let accepted: Vec<_> = accepted.iter().map(Accepted::as_str).collect();
                return format!("{}({})", attribute.as_str(), accepted.join(", "));
            }
            Self::Absent(attribute) => return format!("absent({})", attribute.as_str()),
            Self::Bucket(experiment, part) => {
                return format!("bucket({})", experiments[*experiment].full_name(*part));
            }
            Self::Any(rules) => ("any", rules),
            Self::All(rules) => ("all", rules),
            Self::None(rules) => ("none", rules),
        };

        let parts: Vec<_> = rules
            .iter()
            .map(|rule| rule.to_text(name, experiments))
            .collect();
        format!("{word}({})", parts.join(", "))
    }
}

/// `sought` if a rule has it, else unknown if a rule is; `None` if neither.
fn first(rules: &[Rule], sought: Truth, facts: &Facts<'_>, parts: &[Assignment]) -> Option<Truth> {
    let mut found = None;
    for rule in rules {
        match rule.truth_by_parts(facts, parts) {
            truth if truth == sought => return Some(sought),
            Truth::Unknown => found = Some(Truth::Unknown),
            _ => {}
        }
    }
    found
}

impl Strategy {
    /// All leaves that can decide: those of `exclude` first, then those of the rule, each once.
    pub fn leaves(&self, experiments: &[Experiment]) -> Vec<Leaf> {
        let mut leaves = Vec::new();
        leaves.extend(self.exclude.iter().copied().map(Leaf::Audience));
        if let Some(rule) = &self.rule {
            leaves.extend(rule.audiences().into_iter().map(Leaf::Audience));
            for (attribute, _) in rule.attributes() {
                leaves.push(Leaf::Attribute(attribute));
            }
            for (index, _) in rule.buckets() {
                let parts = experiments[index].parts();
                leaves.extend(parts.map(|part| Leaf::Part(index, part)));
            }
        }

        let mut distinct = Vec::new();
        for leaf in leaves {
            if !distinct.contains(&leaf) {
                distinct.push(leaf);
            }
        }
        distinct
    }

    /// Whether a no-bid of this reason can be made by a leaf.
    pub fn can_refuse_by(&self, leaf: Leaf, reason: Reason) -> bool {
        let is_part = matches!(leaf, Leaf::Part(..));
        let is_excluding = |index| self.exclude.contains(&index);
        match reason {
            Reason::Member => matches!(leaf, Leaf::Audience(index) if is_excluding(index)),
            Reason::Bucket => is_part,
            Reason::Unavailable => !is_part && self.unavailable == Outcome::NoBid,
            Reason::Rule => match leaf {
                Leaf::Audience(index) => {
                    let rule = self.rule.as_ref();
                    rule.is_some_and(|rule| rule.audiences().contains(&index))
                }
                Leaf::Attribute(_) => true,
                Leaf::Part(..) => false,
            },
            _ => false,
        }
    }

    /// The leaf that makes a decision about a device: the first one in the config's order, if the
    /// decision takes several. `None` if it is made without any.
    #[inline]
    pub fn deciding(&self, decision: Decision, facts: &Facts<'_>) -> Option<Leaf> {
        match decision.reason {
            Reason::Member => self.first_excluding(Membership::Member, facts),
            Reason::Rule | Reason::Bucket | Reason::Unavailable => {
                self.deciding_in_rule(decision, facts)
            }
            _ => None,
        }
    }

    #[inline]
    fn first_excluding(&self, membership: Membership, facts: &Facts<'_>) -> Option<Leaf> {
        let mut excluding = self.exclude.iter().copied();
        excluding
            .find(|audience| facts.membership(*audience) == membership)
            .map(Leaf::Audience)
    }

    #[inline(never)]
    fn deciding_in_rule(&self, decision: Decision, facts: &Facts<'_>) -> Option<Leaf> {
        let rule = self.rule.as_ref();
        let known = Truth::from(decision.is_bid());
        match decision.reason {
            // No leaf makes the answer to an unreadable request.
            Reason::Unavailable if facts.looked_up == LookedUp::Unread => None,
            Reason::Unavailable => {
                let excluding = self.first_excluding(Membership::Unavailable, facts);
                excluding.or_else(|| rule?.deciding(Truth::Unknown, facts, &facts.parts))
            }
            // The rule has this truth without the parts too, so that none of them decides.
            Reason::Rule => rule?.deciding(known, facts, &[]),
            Reason::Bucket => {
                let part = self.deciding_part(rule?, facts);
                part.or_else(|| rule?.deciding(known, facts, &facts.parts))
            }
            _ => None,
        }
    }

    /// The first part of the device without which the rule would be open; `None` if that takes
    /// several.
    fn deciding_part(&self, rule: &Rule, facts: &Facts<'_>) -> Option<Leaf> {
        for experiment in &self.experiments {
            let mut parts = facts.parts.clone();
            parts[*experiment] = Assignment::Unknown;
            if rule.truth_by_parts(facts, &parts) == Truth::Unknown {
                return Some(Leaf::Part(*experiment, facts.part(*experiment)));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::Membership::{Member as M, NotMember as N, Unavailable as U};
    use super::*;
    use crate::strategy::AttributeValue;
    use crate::strategy::facts::tests::facts;

    fn rule() -> Rule {
        Rule::All(vec![
            Rule::Any(vec![
                Rule::Audience(0),
                Rule::All(vec![Rule::Audience(1), Rule::Audience(2)]),
            ]),
            Rule::None(vec![Rule::Audience(3)]),
        ])
    }

    /// Unknown is neither: the truth is known if both values of each unavailable audience agree.
    #[test]
    fn truth_is_known_if_unavailable_audiences_cannot_change_it() {
        let holds = |members: &[bool; 4]| (members[0] || members[1] && members[2]) && !members[3];
        for n in 0..81_usize {
            let answers = [n % 3, n / 3 % 3, n / 9 % 3, n / 27].map(|digit| [M, N, U][digit]);
            let possible = (0..16).map(|bits| std::array::from_fn(|index| bits >> index & 1 == 1));
            let mut found: Vec<bool> = possible
                .filter(|members: &[bool; 4]| {
                    let fits = |(member, answer): (&bool, Membership)| match answer {
                        M => *member,
                        N => !member,
                        U => true,
                    };
                    members.iter().zip(answers).all(fits)
                })
                .map(|members| holds(&members))
                .collect();
            found.dedup();
            let expected = match found[..] {
                [true] => Truth::True,
                [false] => Truth::False,
                _ => Truth::Unknown,
            };
            assert_eq!(rule().truth(&facts(&answers)), expected, "{answers:?}");
        }
    }

    #[test]
    fn changes_are_the_smallest_that_change_the_truth() {
        let changes = |answers: [Membership; 4]| rule().changes(&facts(&answers));
        assert_eq!(changes([M, N, N, N]), [[(0, N)], [(3, M)]]);
        assert_eq!(changes([N, M, N, N]), [[(0, M)], [(2, M)]]);
        assert_eq!(changes([U, N, N, N]), [[(0, M)], [(0, N)], [(3, M)]]);
        // Not a member of 3, and a member of 0.
        assert_eq!(changes([N, N, N, M]), [[(0, M), (3, N)]]);
        // Three changes are needed without audience 0.
        let rule = Rule::All((1..4).map(Rule::Audience).collect());
        assert!(rule.changes(&facts(&[N; 4])).is_empty());
    }

    #[test]
    fn absent_attribute_is_unknown_unless_asked_for() {
        let slot = Rule::Attribute(Attribute::Slot, vec!["7".into(), "08".into()]);
        let os = Rule::Attribute(Attribute::Os, vec!["ios".into()]);
        let none = Rule::None(vec![slot.clone()]);
        let or_absent = Rule::Any(vec![slot.clone(), Rule::Absent(Attribute::Slot)]);
        let (t, f, u) = (Truth::True, Truth::False, Truth::Unknown);
        let text = |text: &'static str| Some(AttributeValue::Text(text.as_bytes()));
        for (value, expected) in [
            (text("7"), [t, u, f, t]),
            (Some(AttributeValue::Number(7)), [t, u, f, t]),
            (Some(AttributeValue::Number(8)), [f, u, t, f]),
            (text("08"), [t, u, f, t]),
            (text("1"), [f, u, t, f]),
            (None, [u, u, u, t]),
        ] {
            let mut facts = facts(&[]);
            facts.attributes[Attribute::Slot as usize] = value;
            let rules = [&slot, &os, &none, &or_absent];
            assert_eq!(rules.map(|rule| rule.truth(&facts)), expected);
        }
    }

    #[test]
    fn text_is_nested_like_the_rule() {
        let text = rule().to_text(&|audience| format!("a{audience}"), &[]);
        assert_eq!(text, "all(any(a0, all(a1, a2)), none(a3))");
    }
}
