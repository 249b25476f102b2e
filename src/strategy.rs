//! Strategies: rules that turn memberships in audiences into bid or no-bid.
//!
//! Pure: no IO and no clock. A strategy names audiences by index, and sees only their
//! [`Membership`]. A schedule is one bit that `sync` sets.

mod rule;
mod schedule;

use std::fmt;
use std::time::{Instant, SystemTime};

pub use rule::{Rule, Truth};
pub use schedule::Scheduled;

/// Membership of a device in an audience.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Membership {
    /// One of the device's ids is in it.
    Member,
    /// None of them is.
    NotMember,
    /// The audience is missing or too old.
    Unavailable,
}

/// Bid or no bid: the two normal outcomes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Show an ad.
    Bid,
    /// Do not.
    NoBid,
}

impl Outcome {
    /// The word in the config and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bid => "bid",
            Self::NoBid => "no_bid",
        }
    }
}

/// Reason of a decision.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The device is in an audience that decides.
    Member,
    /// The device is in none of them.
    NotMember,
    /// The request carries no usable id.
    NoDevice,
    /// An audience that the decision depends on is missing or too old, or the service is
    /// overloaded.
    Unavailable,
    /// The strategy would bid, but its cap of distinct devices is reached.
    Capped,
    /// The strategy would bid, and its cap is not reached, but this pod has leased no more of it
    /// yet.
    NoLease,
    /// The strategy's rule decides: it holds without other audiences, or it does not hold.
    Rule,
    /// The strategy's schedule does not hold now.
    NotScheduled,
}

impl Reason {
    /// All reasons, in the order of their counters.
    pub const ALL: [Self; 8] = [
        Self::Member,
        Self::NotMember,
        Self::NoDevice,
        Self::Unavailable,
        Self::Capped,
        Self::NoLease,
        Self::Rule,
        Self::NotScheduled,
    ];

    /// The word in answers and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::NotMember => "not_member",
            Self::NoDevice => "no_device",
            Self::Unavailable => "unavailable",
            Self::Capped => "capped",
            Self::NoLease => "no_lease",
            Self::Rule => "rule",
            Self::NotScheduled => "not_scheduled",
        }
    }
}

/// A strategy's answer for one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// Bid or no bid.
    pub outcome: Outcome,
    /// Its reason.
    pub reason: Reason,
}

impl Decision {
    /// No bid, because of a cap.
    pub const CAPPED: Self = Self::no_bid(Reason::Capped);
    /// No bid, because nothing of a cap is leased.
    pub const NO_LEASE: Self = Self::no_bid(Reason::NoLease);

    const fn no_bid(reason: Reason) -> Self {
        Self { outcome: Outcome::NoBid, reason }
    }

    const fn bid(reason: Reason) -> Self {
        Self { outcome: Outcome::Bid, reason }
    }

    /// Whether it is a bid.
    #[inline]
    pub const fn is_bid(self) -> bool {
        matches!(self.outcome, Outcome::Bid)
    }
}

/// A rule over audiences, which are named by their indexes in the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strategy {
    /// Its name in requests and in platforms' mappings.
    pub name: String,
    /// A member of any of these gets no bid.
    pub exclude: Vec<usize>,
    /// Unless empty, only members of at least one of these get a bid.
    pub include: Vec<usize>,
    /// Devices for which this does not hold get no bid.
    pub rule: Option<Rule>,
    /// No device gets a bid while this does not hold.
    pub schedule: Option<Scheduled>,
    /// The answer to a request without a usable id.
    pub no_device: Outcome,
    /// The answer when an audience that the decision depends on is unavailable.
    pub unavailable: Outcome,
}

impl Strategy {
    /// Decides about a device with at least one usable id.
    ///
    /// Calls `membership` for excluding audiences first, then for including ones and for those of
    /// the rule, until the decision is final. An unavailable audience matters only if the others
    /// leave the answer open.
    #[inline]
    pub fn decide(&self, mut membership: impl FnMut(usize) -> Membership) -> Decision {
        if !self.is_scheduled() {
            return Decision::no_bid(Reason::NotScheduled);
        }
        let decision = self.decide_by_lists(&mut membership);
        match &self.rule {
            Some(rule) if decision.reason == Reason::Unavailable || decision.is_bid() => {
                self.decide_by_rule(rule, decision, membership)
            }
            _ => decision,
        }
    }

    /// The decision of `exclude` and `include`.
    #[inline]
    fn decide_by_lists(&self, mut membership: impl FnMut(usize) -> Membership) -> Decision {
        let mut any = |audiences: &[usize]| {
            let mut answer = Membership::NotMember;
            for audience in audiences {
                match membership(*audience) {
                    Membership::Member => return Membership::Member,
                    Membership::Unavailable => answer = Membership::Unavailable,
                    Membership::NotMember => {}
                }
            }
            answer
        };
        match any(&self.exclude) {
            Membership::Member => return Decision::no_bid(Reason::Member),
            Membership::Unavailable => return self.unavailable(),
            Membership::NotMember if self.include.is_empty() => {
                return Decision::bid(Reason::NotMember);
            }
            Membership::NotMember => {}
        }
        match any(&self.include) {
            Membership::Member => Decision::bid(Reason::Member),
            Membership::NotMember => Decision::no_bid(Reason::NotMember),
            Membership::Unavailable => self.unavailable(),
        }
    }

    /// The decision of a rule, given that of the lists, which leaves it open.
    fn decide_by_rule(
        &self,
        rule: &Rule,
        lists: Decision,
        mut membership: impl FnMut(usize) -> Membership,
    ) -> Decision {
        let has_lists = !self.exclude.is_empty() || !self.include.is_empty();
        match rule.truth(&mut membership) {
            Truth::False => Decision::no_bid(Reason::Rule),
            Truth::Unknown => self.unavailable(),
            Truth::True if has_lists => lists,
            Truth::True => Decision::bid(Reason::Rule),
        }
    }

    /// The answer to a request without a usable id.
    pub fn without_device(&self) -> Decision {
        if self.is_scheduled() {
            Decision { outcome: self.no_device, reason: Reason::NoDevice }
        } else {
            Decision::no_bid(Reason::NotScheduled)
        }
    }

    /// The answer when no audience is looked up.
    pub fn when_unavailable(&self) -> Decision {
        if self.is_scheduled() {
            self.unavailable()
        } else {
            Decision::no_bid(Reason::NotScheduled)
        }
    }

    const fn unavailable(&self) -> Decision {
        Decision { outcome: self.unavailable, reason: Reason::Unavailable }
    }

    /// Sets the bit of its schedule, and logs a change.
    pub fn follow_schedule(&self, wall: SystemTime, now: Instant) {
        let Some(schedule) = &self.schedule else { return };
        if schedule.follow(wall, now) {
            let (strategy, holds) = (self.name.as_str(), schedule.holds());
            tracing::info!(strategy, holds, "schedule of the strategy has changed");
        }
    }

    #[inline]
    fn is_scheduled(&self) -> bool {
        self.schedule.as_ref().is_none_or(Scheduled::holds)
    }

    /// Its audiences, in the order in which they are looked up, some more than once.
    pub fn audiences(&self) -> impl Iterator<Item = usize> {
        let of_rule = self.rule.as_ref().map_or_else(Vec::new, Rule::audiences);
        self.exclude.iter().chain(&self.include).copied().chain(of_rule)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::Membership::{Member as M, NotMember as N, Unavailable as U};
    use super::*;
    use rtad_core::schedule::{Moment, Schedule};

    fn strategy(exclude: &[usize], include: &[usize]) -> Strategy {
        Strategy {
            name: "new-users".to_owned(),
            exclude: exclude.to_vec(),
            include: include.to_vec(),
            rule: None,
            schedule: None,
            no_device: Outcome::NoBid,
            unavailable: Outcome::NoBid,
        }
    }

    #[test]
    fn every_combination_of_two_excluding_and_two_including_audiences() {
        let rule = strategy(&[0, 1], &[2, 3]);
        for answers in combinations(&[M, N, U]) {
            let decision = rule.decide(|audience| answers[audience]);
            let [a, b, c, d] = answers;
            let expected = if a == M || b == M {
                (Outcome::NoBid, Reason::Member)
            } else if a == U || b == U {
                (Outcome::NoBid, Reason::Unavailable)
            } else if c == M || d == M {
                (Outcome::Bid, Reason::Member)
            } else if c == U || d == U {
                (Outcome::NoBid, Reason::Unavailable)
            } else {
                (Outcome::NoBid, Reason::NotMember)
            };
            assert_eq!((decision.outcome, decision.reason), expected, "{answers:?}");
        }
    }

    fn combinations(values: &[Membership; 3]) -> impl Iterator<Item = [Membership; 4]> {
        (0..81).map(|n| [values[n % 3], values[n / 3 % 3], values[n / 9 % 3], values[n / 27]])
    }

    #[test]
    fn excluding_audiences_alone_bid_for_non_members() {
        let rule = strategy(&[0], &[]);
        assert_eq!(
            rule.decide(|_| N),
            Decision { outcome: Outcome::Bid, reason: Reason::NotMember }
        );
        assert_eq!(
            rule.decide(|_| M),
            Decision { outcome: Outcome::NoBid, reason: Reason::Member }
        );
    }

    #[test]
    fn unavailable_and_no_device_give_the_configured_answers() {
        let mut rule = strategy(&[0], &[]);
        rule.unavailable = Outcome::Bid;
        rule.no_device = Outcome::Bid;
        assert_eq!(
            rule.decide(|_| U),
            Decision { outcome: Outcome::Bid, reason: Reason::Unavailable }
        );
        assert_eq!(
            rule.without_device(),
            Decision { outcome: Outcome::Bid, reason: Reason::NoDevice }
        );
    }

    #[test]
    fn evaluation_stops_at_the_first_excluding_member() {
        let mut evaluated = Vec::new();
        strategy(&[0, 1], &[2]).decide(|audience| {
            evaluated.push(audience);
            if audience == 0 { M } else { N }
        });
        assert_eq!(evaluated, [0]);
    }

    /// A rule excludes whatever the lists decide, unless they refuse already.
    #[test]
    fn rule_and_lists_are_order_free() {
        let mut rule = strategy(&[0], &[1]);
        rule.rule = Some(Rule::None(vec![Rule::Audience(2)]));
        rule.unavailable = Outcome::Bid;
        for answers in combinations(&[M, N, U]) {
            let [excluding, including, refused, _] = answers;
            let decision = rule.decide(|audience| answers[audience]);
            let expected = match (excluding, including, refused) {
                (M, ..) => Decision::no_bid(Reason::Member),
                (N, N, _) => Decision::no_bid(Reason::NotMember),
                (.., M) => Decision::no_bid(Reason::Rule),
                (N, M, N) => Decision::bid(Reason::Member),
                _ => Decision::bid(Reason::Unavailable),
            };
            assert_eq!(decision, expected, "{answers:?}");
        }
        rule.exclude.clear();
        rule.include.clear();
        assert_eq!(rule.decide(|_| N), Decision::bid(Reason::Rule));
    }

    #[test]
    fn schedule_that_does_not_hold_refuses_every_device() {
        let mut rule = strategy(&[0], &[]);
        (rule.no_device, rule.unavailable) = (Outcome::Bid, Outcome::Bid);
        let past =
            Schedule::between(None, Moment::try_from("2020-01-01T00:00:00Z".to_owned()).ok());
        rule.schedule = Some(Scheduled::new(past));
        let refused = Decision::no_bid(Reason::NotScheduled);
        let answers = [rule.decide(|_| panic!("looked up")), rule.without_device()];
        assert_eq!((answers, rule.when_unavailable()), ([refused; 2], refused));
    }
}
