//! Strategies: rules that turn memberships in audiences into bid or no-bid.
//!
//! Pure: no IO and no clock. A strategy names audiences by index, and sees only their
//! [`Membership`].

use std::fmt;

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
}

impl Reason {
    /// All reasons, in the order of their counters.
    pub const ALL: [Self; 6] = [
        Self::Member,
        Self::NotMember,
        Self::NoDevice,
        Self::Unavailable,
        Self::Capped,
        Self::NoLease,
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
    pub const CAPPED: Self = Self { outcome: Outcome::NoBid, reason: Reason::Capped };
    /// No bid, because nothing of a cap is leased.
    pub const NO_LEASE: Self = Self { outcome: Outcome::NoBid, reason: Reason::NoLease };
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
    /// The answer to a request without a usable id.
    pub no_device: Outcome,
    /// The answer when an audience that the decision depends on is unavailable.
    pub unavailable: Outcome,
}

impl Strategy {
    /// Decides about a device with at least one usable id.
    ///
    /// Calls `membership` once per audience, excluding ones first, until the decision is final. An
    /// unavailable audience matters only if the others leave the answer open.
    #[inline]
    pub fn decide(&self, mut membership: impl FnMut(usize) -> Membership) -> Decision {
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
        let decision = |outcome, reason| Decision { outcome, reason };
        match any(&self.exclude) {
            Membership::Member => return decision(Outcome::NoBid, Reason::Member),
            Membership::Unavailable => return self.when_unavailable(),
            Membership::NotMember if self.include.is_empty() => {
                return decision(Outcome::Bid, Reason::NotMember);
            }
            Membership::NotMember => {}
        }
        match any(&self.include) {
            Membership::Member => decision(Outcome::Bid, Reason::Member),
            Membership::NotMember => decision(Outcome::NoBid, Reason::NotMember),
            Membership::Unavailable => self.when_unavailable(),
        }
    }

    /// The answer to a request without a usable id.
    pub const fn without_device(&self) -> Decision {
        Decision { outcome: self.no_device, reason: Reason::NoDevice }
    }

    /// The answer when the audiences are unavailable.
    pub const fn when_unavailable(&self) -> Decision {
        Decision { outcome: self.unavailable, reason: Reason::Unavailable }
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

    fn strategy(exclude: &[usize], include: &[usize]) -> Strategy {
        Strategy {
            name: "new-users".to_owned(),
            exclude: exclude.to_vec(),
            include: include.to_vec(),
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
}
