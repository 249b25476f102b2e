//! The leaf that decides about a device.

use super::*;

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
    found.attributes[Attribute::Os as usize] = Some(AttributeValue::Text(b"ios"));
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
        traffic: Slots::default(),
        buckets: vec![Bucket {
            name: "holdout".to_owned(),
            slots: Slots::default(),
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
