//! Reasons, as sentences: of an id, a strategy, a failure, and of the whole answer.
//!
//! A reason follows the word "because" and has no full stop. Scripts read `reason`, `result` and
//! `cause` instead.

use std::time::Duration;

use super::report::{
    AudienceExplained, FailureExplained, IdExplained, NOT_CONFIGURED, StrategyExplained,
};
use super::trace::Note;
use crate::catalog::Found;
use crate::platform::{Failure, MAX_IDS, MAX_READ_IDS};
use crate::strategy::{Decision, Membership, Outcome, Reason, Strategy};
use rtad_core::device::IdKind;

/// Different reasons that a conclusion lists.
const MAX_REASONS: usize = 3;

/// Seconds in words, in the two largest units.
pub(super) fn duration(seconds: u64) -> String {
    let whole = humantime::format_duration(Duration::from_secs(seconds)).to_string();
    whole.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// The reason for ignoring an id.
pub(super) fn id(found: Found, kind: IdKind) -> Option<String> {
    let because = match found {
        Found::Usable => return None,
        Found::Blank => "it stands for \"no id\"".to_owned(),
        Found::Malformed => format!("it is not {}", kind.accepted()),
        Found::Doubtful => "the platform marks it as doubtful".to_owned(),
        Found::Duplicate => "an earlier id has the same md5".to_owned(),
        Found::NotLookedAt => format!(
            "only the first {MAX_IDS} usable ids are looked up, of the first {MAX_READ_IDS} ids"
        ),
    };
    Some(because)
}

/// The reason of a failure.
pub(super) fn failure(
    failure: Failure,
    unreadable: Option<&str>,
    size: usize,
    limit: usize,
) -> String {
    let because = match failure {
        Failure::BadBody => match unreadable {
            Some(reason) => {
                return format!("the body is not a valid message of this protocol: {reason}");
            }
            None => "the body is not a valid message of this protocol",
        },
        Failure::TooLarge => {
            return format!("the body has {size} bytes, and server.max_body is {limit}");
        }
        Failure::BodyLost => "the body was incomplete or too late",
        Failure::Unauthorized => "no header carries a configured value",
        Failure::BadSignature => "the signature is missing or wrong",
        Failure::BadTimestamp => "the timestamp is too far from the current time",
        Failure::Overload => "too many requests were in flight",
        Failure::TooManyIds => {
            return format!(
                "the request carries more than {MAX_IDS} usable ids or {MAX_READ_IDS} ids, and \
                 another one could be a member"
            );
        }
        Failure::Internal => "internal error of rtad: please report it",
    };
    because.to_owned()
}

/// A requested strategy id that the config does not map.
pub(super) fn not_configured(id: String) -> StrategyExplained {
    StrategyExplained {
        id,
        strategy: None,
        exclude: Vec::new(),
        include: Vec::new(),
        bid: false,
        reason: NOT_CONFIGURED,
        because: "the config does not map this id to a strategy".to_owned(),
    }
}

/// The inputs of the decisions.
pub(super) struct Facts<'a> {
    pub(super) ids: &'a [IdExplained],
    pub(super) audiences: &'a [AudienceExplained],
    pub(super) failure: Option<&'static str>,
}

impl Facts<'_> {
    /// The reason of a strategy's decision.
    pub(super) fn because(&self, strategy: &Strategy, decision: Decision) -> String {
        let bids = decision.outcome == Outcome::Bid;
        let outcome = if bids { "bid" } else { "no bid" };
        match decision.reason {
            Reason::Member if bids => self.member_of(&strategy.include, "includes"),
            Reason::Member => self.member_of(&strategy.exclude, "excludes"),
            Reason::NotMember if bids => {
                format!("no id is in {}", self.names(&strategy.exclude, "or"))
            }
            Reason::NotMember => {
                format!(
                    "it bids only for members of {}, and no id is",
                    self.names(&strategy.include, "or")
                )
            }
            Reason::Capped => {
                "its cap of distinct devices is reached, and this one was not counted".to_owned()
            }
            Reason::NoDevice => format!("no id is usable, and its `no_device` answer is {outcome}"),
            Reason::Unavailable => match self.failure {
                Some(cause) => {
                    let is_partial = cause == Failure::TooManyIds.as_str();
                    let checked = if is_partial { "not every id is" } else { "no audience is" };
                    format!(
                        "{checked} checked ({cause}), and its `unavailable` answer is {outcome}"
                    )
                }
                None => {
                    format!("{}, and its `unavailable` answer is {outcome}", self.missing(strategy))
                }
            },
        }
    }

    fn member_of(&self, audiences: &[usize], verb: &str) -> String {
        let of = self.of(audiences);
        let Some(audience) = of.iter().find(|audience| audience.answer == Some(Membership::Member))
        else {
            return "the device is a member".to_owned();
        };
        let is_member = |id: &&IdExplained| {
            let mut in_it = id.audiences.iter().filter(|one| one.name == audience.name);
            in_it.any(|one| one.answer == Some(Membership::Member))
        };
        let path = self.ids.iter().find(is_member).map_or("the device", |id| id.path.as_str());
        format!("{path} is in {}, which it {verb}", audience.name)
    }

    fn missing(&self, strategy: &Strategy) -> String {
        let needed = [self.of(&strategy.exclude), self.of(&strategy.include)].concat();
        let names: Vec<&str> = needed
            .iter()
            .filter(|audience| !audience.available)
            .map(|audience| audience.name.as_str())
            .collect();
        let verb = if names.len() == 1 { "is" } else { "are" };
        format!("{} {verb} unavailable", listed(&names, "and"))
    }

    fn of(&self, indexes: &[usize]) -> Vec<&AudienceExplained> {
        self.audiences.iter().filter(|audience| indexes.contains(&audience.index)).collect()
    }

    fn names(&self, indexes: &[usize], last: &str) -> String {
        let names: Vec<&str> =
            self.of(indexes).iter().map(|audience| audience.name.as_str()).collect();
        listed(&names, last)
    }
}

/// `a, b and c`.
fn listed(words: &[&str], last: &str) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [before @ .., end] => format!("{} {last} {end}", before.join(", ")),
    }
}

/// The reason of the whole answer, in one sentence.
pub(super) fn conclusion(
    failure: Option<&FailureExplained>,
    strategies: &[StrategyExplained],
    notes: &[Note],
) -> String {
    if strategies.is_empty() {
        return match failure {
            Some(failure) => format!("Rejected, because {}.", failure.because),
            None if notes.iter().any(|note| note.what == "ping") => {
                "A ping is answered at once: no audience is checked and no strategy decides."
                    .to_owned()
            }
            None => "No bid, because the request names no strategy.".to_owned(),
        };
    }
    let mut groups: Vec<(bool, &str, Vec<&str>)> = Vec::new();
    for one in strategies {
        let because = match failure {
            Some(failure) if one.reason == Reason::Unavailable.as_str() => failure.because.as_str(),
            _ => one.because.as_str(),
        };
        match groups.iter_mut().find(|(bid, reason, _)| (*bid, *reason) == (one.bid, because)) {
            Some((.., ids)) if !ids.contains(&one.id.as_str()) => ids.push(&one.id),
            Some(_) => {}
            None => groups.push((one.bid, because, vec![&one.id])),
        }
    }
    let part = |(bid, because, ids): &(bool, &str, Vec<&str>)| {
        let outcome = if *bid { "bid" } else { "no bid" };
        format!("{outcome} for {}, because {because}", listed(ids, "and"))
    };
    let mut parts: Vec<String> = groups.iter().take(MAX_REASONS).map(part).collect();
    if groups.len() > MAX_REASONS {
        parts.push("the others as listed above".to_owned());
    }
    let mut sentence = parts.join("; ") + ".";
    sentence[..1].make_ascii_uppercase();
    sentence
}
