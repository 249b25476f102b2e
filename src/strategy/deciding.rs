//! The condition of a strategy that decides about a device.

use super::experiment::{Assignment, Experiment};
use super::facts::{Facts, LookedUp};
use super::rule::{Leaf, Rule, Truth};
use super::{Decision, Membership, Outcome, Reason, Strategy};

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
    use crate::strategy::Attribute;
    use crate::strategy::facts::tests::facts;

    const A: Assignment = Assignment::Bucket(0);
    const B: Assignment = Assignment::Bucket(1);

    /// The reason and the leaf of the decision about a device of these memberships and parts.
    fn decide(
        strategy: &Strategy,
        memberships: &[Membership],
        parts: &[Assignment],
    ) -> (Reason, Option<Leaf>) {
        let mut facts = facts(memberships);
        facts.parts.extend(parts.iter().copied());
        let decision = strategy.decide(&facts);
        (decision.reason, strategy.deciding(decision, &facts))
    }

    #[test]
    fn excluding_audience_is_named() {
        let strategy = Strategy {
            exclude: vec![0, 1],
            ..Strategy::default()
        };
        let audience = |index| Some(Leaf::Audience(index));
        assert_eq!(decide(&strategy, &[N, N], &[]), (Reason::NotMember, None));
        assert_eq!(
            decide(&strategy, &[M, M], &[]),
            (Reason::Member, audience(0))
        );
        assert_eq!(
            decide(&strategy, &[U, M], &[]),
            (Reason::Member, audience(1))
        );
        assert_eq!(
            decide(&strategy, &[N, U], &[]),
            (Reason::Unavailable, audience(1))
        );

        let unread = Facts::new(LookedUp::Unread, 2);
        let decision = strategy.decide(&unread);
        assert_eq!(decision.reason, Reason::Unavailable);
        assert_eq!(strategy.deciding(decision, &unread), None);
    }

    /// New devices, or old ones of high value in a bucket; a holdout gets nothing.
    #[test]
    fn holdout_and_other_arm_are_told_from_old_users() {
        let strategy = Strategy {
            experiments: vec![0, 1],
            rule: Some(Rule::All(vec![
                Rule::None(vec![Rule::Bucket(0, A)]),
                Rule::Any(vec![
                    Rule::None(vec![Rule::Audience(0)]),
                    Rule::All(vec![Rule::Audience(1), Rule::Bucket(1, B)]),
                ]),
            ])),
            ..Strategy::default()
        };
        let of_part = |experiment, part| (Reason::Bucket, Some(Leaf::Part(experiment, part)));
        let by_old_users = (Reason::Rule, Some(Leaf::Audience(0)));
        assert_eq!(decide(&strategy, &[N, N], &[A, B]), of_part(0, A));
        // Another bucket of the test alone would not give it a bid, as it is in the holdout too.
        assert_eq!(decide(&strategy, &[M, M], &[A, B]), of_part(0, A));
        assert_eq!(decide(&strategy, &[M, M], &[B, A]), of_part(1, A));
        assert_eq!(
            decide(&strategy, &[M, M], &[B, Assignment::NoBucket]),
            of_part(1, Assignment::NoBucket)
        );
        // Old and of no value: no bucket matters, not even that of the holdout.
        assert_eq!(decide(&strategy, &[M, N], &[A, B]), by_old_users);
        assert_eq!(decide(&strategy, &[M, N], &[B, A]), by_old_users);
        // Both buckets refuse it: the first one is named.
        assert_eq!(decide(&strategy, &[M, M], &[A, A]), of_part(0, A));
    }

    #[test]
    fn unavailable_audience_and_absent_attribute_are_named() {
        let strategy = Strategy {
            rule: Some(Rule::All(vec![
                Rule::Attribute(Attribute::Os, vec!["ios".into()]),
                Rule::Any(vec![Rule::Audience(0), Rule::Audience(1)]),
            ])),
            ..Strategy::default()
        };
        let unknown = |leaf| (Reason::Unavailable, Some(leaf));
        assert_eq!(
            decide(&strategy, &[M, N], &[]),
            unknown(Leaf::Attribute(Attribute::Os))
        );

        let mut found = facts(&[N, U]);
        found.attributes[Attribute::Os as usize] =
            Some(crate::strategy::AttributeValue::Text(b"ios"));
        let decision = strategy.decide(&found);
        assert_eq!(strategy.deciding(decision, &found), Some(Leaf::Audience(1)));
        // Neither audience has the device: the first one is named.
        found.set_membership(1, N);
        let decision = strategy.decide(&found);
        assert_eq!(decision.reason, Reason::Rule);
        assert_eq!(strategy.deciding(decision, &found), Some(Leaf::Audience(0)));
    }

    /// A series of a decision by a leaf is there before its first one.
    #[test]
    fn every_leaf_that_refuses_is_listed() {
        let strategy = Strategy {
            exclude: vec![0],
            experiments: vec![0],
            rule: Some(Rule::All(vec![
                Rule::Any(vec![Rule::Audience(1), Rule::Absent(Attribute::Slot)]),
                Rule::None(vec![Rule::Bucket(0, A)]),
            ])),
            ..Strategy::default()
        };
        let experiment = Experiment {
            name: "ads".to_owned(),
            layer: "ads".to_owned(),
            unit: Vec::new(),
            traffic: crate::strategy::Slots::default(),
            buckets: vec![crate::strategy::Bucket {
                name: "holdout".to_owned(),
                slots: crate::strategy::Slots::default(),
                tag: None,
            }],
        };
        let experiments = [experiment];
        let leaves = strategy.leaves(&experiments);
        let mut names = Vec::new();
        for leaf in &leaves {
            names.push(leaf.name(|index| format!("a{index}"), &experiments));
        }
        assert_eq!(names, ["a0", "a1", "slot", "ads:holdout", "ads:none"]);

        let memberships = [M, N, U];
        for (excluding, other) in (0..9).map(|n| (memberships[n % 3], memberships[n / 3])) {
            for part in [A, Assignment::NoBucket] {
                let (reason, leaf) = decide(&strategy, &[excluding, other], &[part]);
                let Some(leaf) = leaf else {
                    assert_eq!(reason, Reason::NotMember);
                    continue;
                };
                assert!(leaves.contains(&leaf));
                assert!(strategy.can_refuse_by(leaf, reason), "{leaf:?} {reason:?}");
            }
        }
    }
}
