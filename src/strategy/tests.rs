//! Decisions of strategies by memberships, and their schedules.

mod deciding;

use rtad_core::schedule::Moment;

use super::Membership::{Member as M, NotMember as N, Unavailable as U};
use super::facts::tests::facts;
use super::*;

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
        let decision = rule.decide(&facts(&answers));
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
    let lists = |rule: &Strategy, answers: [Membership; 4]| rule.unknown(&facts(&answers));
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
    let open = facts(&[N, N, U, N]);
    let decision = rule.decide(&open);
    let deciding = rule.deciding(decision, &open);
    assert_eq!(
        (decision.reason, deciding),
        (Reason::Unavailable, Some(Leaf::Attribute(Attribute::Slot)))
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
        rule.decide(&facts(&[N; 3])),
        Decision::bid(Reason::NotMember)
    );
    assert_eq!(rule.decide(&facts(&[M])), Decision::no_bid(Reason::Member));
}

#[test]
fn unavailable_and_no_device_give_the_configured_answers() {
    let mut rule = strategy(&[0]);
    rule.unavailable = Outcome::Bid;
    rule.no_device = Outcome::Bid;
    assert_eq!(
        rule.decide(&facts(&[U])),
        Decision::bid(Reason::Unavailable)
    );
    let without_device = Facts::new(LookedUp::None, 1);
    assert_eq!(
        rule.decide(&without_device),
        Decision::bid(Reason::NoDevice)
    );
    let unread = Facts::new(LookedUp::Unread, 1);
    assert_eq!(rule.decide(&unread), Decision::bid(Reason::Unavailable));
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
        let decision = rule.decide(&facts(&answers));
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
    assert_eq!(rule.decide(&facts(&[N; 3])), Decision::bid(Reason::Rule));
}

#[test]
fn schedule_that_does_not_hold_refuses_every_device() {
    let mut strategy = strategy(&[0]);
    strategy.no_device = Outcome::Bid;
    strategy.unavailable = Outcome::Bid;
    let rules = Rules::new(vec![strategy.clone(), strategy]);

    for mut facts in [
        facts(&[N]),
        Facts::new(LookedUp::None, 1),
        Facts::new(LookedUp::Unread, 1),
    ] {
        facts.paused.push(1);
        assert!(rules.decide(0, &facts).is_bid());
        let refused = Decision::no_bid(Reason::NotScheduled);
        assert_eq!(rules.decide(1, &facts), refused);
    }
}

#[test]
fn only_bids_have_values() {
    let mut rule = strategy(&[0]);
    rule.rule = Some(Rule::None(vec![Rule::Audience(2)]));
    rule.no_device = Outcome::Bid;
    rule.unavailable = Outcome::Bid;
    let entry = |audience| ValueEntry {
        audience,
        ..ValueEntry::default()
    };
    rule.values = vec![entry(Some(1)), entry(None)];
    let decide = |answers: [Membership; 3]| {
        let decision = rule.decide(&facts(&answers));
        (decision.value.index, decision.value.is_fallback)
    };
    assert_eq!(decide([N, M, N]), (Some(0), false));
    assert_eq!(decide([N, U, N]), (Some(1), true));
    assert_eq!(decide([M, M, N]), (None, false));
    assert_eq!(decide([N, M, M]), (None, false));

    let without_lookups = [LookedUp::None, LookedUp::Unread].map(|ids| Facts::new(ids, 3));
    let defaults = without_lookups.each_ref().map(|facts| rule.decide(facts));
    assert_eq!(defaults.map(|decision| decision.value.index), [Some(1); 2]);
    rule.no_device = Outcome::NoBid;
    assert_eq!(rule.decide(&without_lookups[0]).value.index, None);
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
        let mut facts = facts(&answers);
        facts.parts.push(part);
        rule.decide(&facts)
    };
    let a = Assignment::Bucket(0);
    let b = Assignment::Bucket(1);
    assert_eq!(decide([N, M], b), Decision::bid(Reason::Rule));
    assert_eq!(decide([M, N], b), Decision::no_bid(Reason::Rule));
    assert_eq!(decide([M, M], b), Decision::bid(Reason::Bucket));
    assert_eq!(decide([M, M], a), Decision::no_bid(Reason::Bucket));
    assert_eq!(decide([M, U], a), Decision::no_bid(Reason::Bucket));
    assert_eq!(decide([M, U], b), Decision::no_bid(Reason::Unavailable));
}

#[test]
fn state_follows_the_wall_clock_and_is_shared() {
    let [from, until] = ["2030-01-01T00:00:00Z", "2030-01-01T01:00:00Z"]
        .map(|text| Moment::try_from(text.to_owned()).ok());
    let scheduled = Scheduled::new(Schedule::between(from, until));
    let copy = scheduled.clone();
    assert!(!scheduled.holds());
    let start = scheduled.next_change(SystemTime::now()).unwrap();
    let (hour, second) = (Duration::from_secs(3600), Duration::from_secs(1));
    let now = Instant::now();
    assert!(!scheduled.follow(start - second, now));
    assert!(scheduled.changes_in(false, now).unwrap() <= second);
    assert!(scheduled.follow(start, now) && copy.holds());
    // A request that began before the change.
    assert_eq!(copy.changes_in(false, now), Some(Duration::ZERO));
    let left = copy.changes_in(true, now + second).unwrap();
    assert!(
        left <= hour - second && left > hour - 3 * second,
        "{left:?}"
    );
    // The clock is set back.
    assert!(scheduled.follow(start - hour, now) && !copy.holds());
    assert!(!scheduled.follow(start + hour, now) && copy.changes_in(false, now).is_none());
}
