//! The rules: which audiences decide, and what is answered when there is nothing to decide by.
//!
//! Pure: no IO, no clock, no knowledge of where audiences come from. A strategy sees an audience by its place in a list and
//! asks one question of it, [`Membership`].

use std::fmt;
use std::str::FromStr;

/// What an audience says of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Membership {
    /// One of the device's ids is in it.
    Member,
    /// None of them is.
    NotMember,
    /// The audience is missing or too old to say.
    Unavailable,
}

/// Bid or no bid: the two normal outcomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
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

impl FromStr for Outcome {
    type Err = ();

    fn from_str(word: &str) -> Result<Self, ()> {
        [Self::Bid, Self::NoBid].into_iter().find(|outcome| outcome.as_str() == word).ok_or(())
    }
}

/// Why a decision is what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The device is in an audience that decides.
    Member,
    /// It is in none of them.
    NotMember,
    /// The request carries no usable id.
    NoDevice,
    /// An audience that it hangs on is missing or too old, or the service is overloaded.
    Unavailable,
}

impl Reason {
    /// All reasons, in the order of their counters.
    pub const ALL: [Self; 4] = [Self::Member, Self::NotMember, Self::NoDevice, Self::Unavailable];

    /// The word in answers and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::NotMember => "not_member",
            Self::NoDevice => "no_device",
            Self::Unavailable => "unavailable",
        }
    }
}

/// A strategy's answer for one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// Bid or no bid.
    pub outcome: Outcome,
    /// Why.
    pub reason: Reason,
}

/// A rule over audiences, which are named by their places in the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strategy {
    /// Its name, as platforms and callers know it.
    pub name: String,
    /// A member of any of these gets no bid.
    pub exclude: Vec<usize>,
    /// If there are any, a device must be a member of at least one to get a bid.
    pub include: Vec<usize>,
    /// The answer to a request without a usable id.
    pub no_device: Outcome,
    /// The answer when an audience that it hangs on cannot say.
    pub unavailable: Outcome,
}

impl Strategy {
    /// Decides about a device with at least one usable id. `ask` is called once for each audience until the answer is certain,
    /// excluding ones first. An audience that cannot say matters only if the others leave the answer open: a device that is
    /// known to be an old user stays one, whatever else is missing.
    #[inline]
    pub fn decide(&self, mut ask: impl FnMut(usize) -> Membership) -> Decision {
        let mut any = |audiences: &[usize]| {
            let mut answer = Membership::NotMember;
            for audience in audiences {
                match ask(*audience) {
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

    /// The answer when the audiences cannot be asked.
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
        for answers in itertools(&[M, N, U]) {
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

    fn itertools(values: &[Membership; 3]) -> impl Iterator<Item = [Membership; 4]> {
        (0..81).map(|n| [values[n % 3], values[n / 3 % 3], values[n / 9 % 3], values[n / 27]])
    }

    #[test]
    fn only_excluding_audiences_bid_for_everybody_else() {
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
    fn the_configured_answers_are_given() {
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
    fn audiences_are_asked_no_further_than_needed() {
        let mut asked = Vec::new();
        strategy(&[0, 1], &[2]).decide(|audience| {
            asked.push(audience);
            if audience == 0 { M } else { N }
        });
        assert_eq!(asked, [0]);
    }
}
