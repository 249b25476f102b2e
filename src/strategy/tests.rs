//! Decisions of strategies by memberships.

use super::Membership::{Member as M, NotMember as N, Unavailable as U};
use super::*;
use rtad_core::schedule::{Moment, Schedule};

/// No entry of these tests asks for a tier.
const NO_TIER: fn(usize) -> Tier = |_| Tier::Unknown;

fn strategy(exclude: &[usize]) -> Strategy {
    Strategy {
        name: "new-users".to_owned(),
        exclude: exclude.to_vec(),
        ..Strategy::default()
    }
}

#[test]
fn every_combination_of_two_excluding_and_two_required_audiences() {
    let mut rule = strategy(&[0, 1]);
    rule.rule = Some(Rule::Any(vec![Rule::Audience(2), Rule::Audience(3)]));
    rule.unavailable = Outcome::Bid;
    for answers in combinations(&[M, N, U]) {
        let decision = rule.decide(&NoAttributes, |audience| answers[audience], NO_TIER);
        let [a, b, c, d] = answers;
        let expected = if a == M || b == M {
            (Outcome::NoBid, Reason::Member)
        } else if c == N && d == N {
            (Outcome::NoBid, Reason::Rule)
        } else if a == U || b == U || c != M && d != M {
            (Outcome::Bid, Reason::Unavailable)
        } else {
            (Outcome::Bid, Reason::NotMember)
        };
        assert_eq!((decision.outcome, decision.reason), expected, "{answers:?}");
    }
}

#[test]
fn unknown_audiences_are_those_that_leave_the_decision_open() {
    let mut rule = strategy(&[0, 1]);
    rule.rule = Some(Rule::Any(vec![
        Rule::Audience(3),
        Rule::Absent(Attribute::Slot),
    ]));
    let slot = Rule::Attribute(Attribute::Slot, vec!["7".into()]);
    let lists = |rule: &Strategy, answers: [Membership; 4]| {
        rule.unknown(&NoAttributes, &mut |audience| answers[audience])
    };
    let audiences =
        |indexes: &[usize]| -> Vec<_> { indexes.iter().copied().map(Rule::Audience).collect() };
    // The rule holds, as the slot is absent.
    assert_eq!(lists(&rule, [U, N, U, U]), audiences(&[0]));
    assert_eq!(lists(&rule, [U, U, U, N]), audiences(&[0, 1]));
    rule.rule = Some(Rule::All(vec![
        Rule::Any(vec![Rule::Audience(3), slot.clone()]),
        Rule::None(vec![Rule::Audience(0)]),
    ]));
    assert_eq!(
        lists(&rule, [N, N, N, U]),
        [Rule::Audience(3), slot.clone()]
    );
    assert_eq!(lists(&rule, [N, N, U, N]), std::slice::from_ref(&slot));
    let decision = rule.decide(&NoAttributes, |audience| [N, N, U, N][audience], NO_TIER);
    let deciding = rule.deciding(decision, &NoAttributes, &mut |audience| {
        [N, N, U, N][audience]
    });
    assert_eq!(
        (decision.reason, deciding),
        (Reason::Unavailable, Some(slot))
    );
}

fn combinations(values: &[Membership; 3]) -> impl Iterator<Item = [Membership; 4]> {
    (0..81).map(|n| {
        [
            values[n % 3],
            values[n / 3 % 3],
            values[n / 9 % 3],
            values[n / 27],
        ]
    })
}

#[test]
fn excluding_audiences_alone_bid_for_non_members() {
    let rule = strategy(&[0]);
    assert_eq!(
        rule.decide(&NoAttributes, |_| N, NO_TIER),
        Decision::bid(Reason::NotMember)
    );
    assert_eq!(
        rule.decide(&NoAttributes, |_| M, NO_TIER),
        Decision::no_bid(Reason::Member)
    );
}

#[test]
fn unavailable_and_no_device_give_the_configured_answers() {
    let mut rule = strategy(&[0]);
    rule.unavailable = Outcome::Bid;
    rule.no_device = Outcome::Bid;
    assert_eq!(
        rule.decide(&NoAttributes, |_| U, NO_TIER),
        Decision::bid(Reason::Unavailable)
    );
    assert_eq!(rule.without_device(), Decision::bid(Reason::NoDevice));
}

#[test]
fn evaluation_stops_at_the_first_excluding_member() {
    let mut evaluated = Vec::new();
    let membership = |audience| {
        evaluated.push(audience);
        if audience == 0 { M } else { N }
    };
    let mut rule = strategy(&[0, 1]);
    rule.rule = Some(Rule::Audience(2));
    rule.decide(&NoAttributes, membership, NO_TIER);
    assert_eq!(evaluated, [0]);
}

/// A rule refuses whatever `exclude` leaves open.
#[test]
fn rule_and_exclude_are_order_free() {
    let mut rule = strategy(&[0]);
    rule.rule = Some(Rule::All(vec![
        Rule::Audience(1),
        Rule::None(vec![Rule::Audience(2)]),
    ]));
    rule.unavailable = Outcome::Bid;
    for answers in combinations(&[M, N, U]) {
        let [excluding, required, refused, _] = answers;
        let decision = rule.decide(&NoAttributes, |audience| answers[audience], NO_TIER);
        let expected = match (excluding, required, refused) {
            (M, ..) => Decision::no_bid(Reason::Member),
            (_, N, _) | (.., M) => Decision::no_bid(Reason::Rule),
            (N, M, N) => Decision::bid(Reason::NotMember),
            _ => Decision::bid(Reason::Unavailable),
        };
        assert_eq!(decision, expected, "{answers:?}");
    }
    rule.exclude.clear();
    rule.rule = Some(Rule::None(vec![Rule::Audience(2)]));
    assert_eq!(
        rule.decide(&NoAttributes, |_| N, NO_TIER),
        Decision::bid(Reason::Rule)
    );
}

#[test]
fn schedule_that_does_not_hold_refuses_every_device() {
    let mut rule = strategy(&[0]);
    (rule.no_device, rule.unavailable) = (Outcome::Bid, Outcome::Bid);
    let past = Schedule::between(
        None,
        Moment::try_from("2020-01-01T00:00:00Z".to_owned()).ok(),
    );
    rule.schedule = Some(Scheduled::new(past));
    let refused = Decision::no_bid(Reason::NotScheduled);
    let answers = [
        rule.decide(&NoAttributes, |_| panic!("looked up"), NO_TIER),
        rule.without_device(),
    ];
    assert_eq!((answers, rule.when_unavailable()), ([refused; 2], refused));
}

#[test]
fn only_bids_have_values_and_share_lookups_with_the_rule() {
    let mut rule = strategy(&[0]);
    rule.rule = Some(Rule::None(vec![Rule::Audience(2)]));
    (rule.no_device, rule.unavailable) = (Outcome::Bid, Outcome::Bid);
    let entry = |audience| ValueEntry {
        audience,
        tiers: None,
        value: BidValue::default(),
    };
    rule.values = vec![entry(Some(1)), entry(None)];
    let decide = |answers: [Membership; 3]| {
        let mut seen = Vec::new();
        let membership = |audience| {
            seen.push(audience);
            answers[audience]
        };
        let decision = rule.decide(&NoAttributes, membership, NO_TIER);
        (decision.value.index, decision.value.is_fallback, seen)
    };
    assert_eq!(decide([N, M, N]), (Some(0), false, vec![0, 2, 1]));
    assert_eq!(decide([N, U, N]), (Some(1), true, vec![0, 2, 1]));
    assert_eq!(decide([M, M, N]), (None, false, vec![0]));
    assert_eq!(decide([N, M, M]), (None, false, vec![0, 2]));
    let defaults = [rule.without_device(), rule.when_unavailable()];
    assert_eq!(defaults.map(|decision| decision.value.index), [Some(1); 2]);
    rule.no_device = Outcome::NoBid;
    assert_eq!(rule.without_device().value.index, None);
}

#[test]
fn bucket_decides_only_if_another_one_would_decide_otherwise() {
    let mut rule = strategy(&[]);
    rule.experiments = vec![0];
    let bucket = Rule::Bucket(0, Assignment::Bucket(1));
    rule.rule = Some(Rule::Any(vec![
        Rule::None(vec![Rule::Audience(0)]),
        Rule::All(vec![Rule::Audience(1), bucket]),
    ]));
    let decide = |answers: [Membership; 2], part| {
        let mut seen = Vec::new();
        let membership = |audience| {
            seen.push(audience);
            answers[audience]
        };
        let facts = RequestFacts {
            attributes: &NoAttributes,
            assignments: &[part],
        };
        (rule.decide(&facts, membership, NO_TIER), seen)
    };
    let [a, b] = [Assignment::Bucket(0), Assignment::Bucket(1)];
    // Without a look at the bucket, no audience is looked up again.
    assert_eq!(decide([N, M], b), (Decision::bid(Reason::Rule), vec![0]));
    assert_eq!(
        decide([M, N], b),
        (Decision::no_bid(Reason::Rule), vec![0, 1])
    );
    assert_eq!(decide([M, M], b).0, Decision::bid(Reason::Bucket));
    assert_eq!(decide([M, M], a).0, Decision::no_bid(Reason::Bucket));
    assert_eq!(decide([M, U], a).0, Decision::no_bid(Reason::Bucket));
    assert_eq!(decide([M, U], b).0, Decision::no_bid(Reason::Unavailable));
}
