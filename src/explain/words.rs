//! Reasons as sentences, for a terminal: of an id, an audience, a strategy and the whole answer.
//!
//! A reason follows the word "because" and has no full stop. The JSON has the codes and facts
//! alone.

use std::collections::BTreeSet;
use std::time::Duration;

use super::report::{
    AudienceExplained, Explanation, FailureExplained, IdExplained, NOT_CONFIGURED, OtherMembership,
    StrategyExplained, Unavailable, ValueExplained,
};
use super::trace::ID_SKIPPED;
use crate::catalog::IdResult;
use crate::platform::api::UNKNOWN_STRATEGY;
use crate::platform::{Failure, MAX_IDS, MAX_READ_IDS};
use crate::strategy::{Membership, Reason, Tiers};
use rtad_core::device::IdField;

/// Different reasons that a conclusion lists.
const MAX_REASONS: usize = 3;

/// Strategies with one decision for one reason.
struct ReasonGroup<'e> {
    bid: bool,
    because: String,
    ids: Vec<&'e str>,
}

/// Seconds in words, in the two largest units.
pub fn duration(seconds: u64) -> String {
    let whole = humantime::format_duration(Duration::from_secs(seconds)).to_string();
    whole.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// The reason for ignoring an id.
pub fn id(id: &IdExplained) -> Option<String> {
    let because = match id.result {
        IdResult::Usable => return None,
        IdResult::Blank => "it stands for \"no id\"".to_owned(),
        IdResult::Malformed => {
            format!("it is not {}", IdField::named(id.kind)?.kind().accepted())
        }
        IdResult::Doubtful => "the platform marks it as doubtful".to_owned(),
        IdResult::Duplicate => "an earlier id has the same md5".to_owned(),
        IdResult::NotLookedAt => format!(
            "only the first {MAX_IDS} usable ids are looked up, of the first {MAX_READ_IDS} ids"
        ),
    };
    Some(because)
}

/// The reason why an audience is unavailable.
pub fn unavailable(audience: &AudienceExplained) -> Option<String> {
    let because = match audience.unavailable.as_ref()? {
        Unavailable::Expired => "it has expired".to_owned(),
        Unavailable::Disabled => "it is disabled".to_owned(),
        Unavailable::Deleted => "it is deleted".to_owned(),
        Unavailable::TooOld { max_age_seconds } => {
            let age = audience
                .snapshot
                .as_ref()
                .map_or(0, |snapshot| snapshot.age_seconds);
            let age = duration(age);
            let limit = duration(*max_age_seconds);
            format!("its snapshot is {age} old, and max_age is {limit}")
        }
        Unavailable::NotLoaded { error: Some(error) } => error.clone(),
        Unavailable::NotLoaded { error: None } => {
            "no snapshot of it has been loaded yet".to_owned()
        }
    };

    Some(because)
}

impl Explanation {
    /// The reason of the failure.
    pub(super) fn of_failure(&self, failure: &FailureExplained) -> String {
        if failure.cause == UNKNOWN_STRATEGY {
            let detail = failure.detail.as_deref().unwrap_or_default();
            return format!("it names a strategy that the config does not have; {detail}");
        }
        let cause = Failure::ALL
            .into_iter()
            .find(|cause| cause.as_str() == failure.cause);

        let because = match cause.unwrap_or(Failure::Internal) {
            Failure::BadBody => {
                let detail = failure.detail.as_deref().unwrap_or("no details");
                return format!("the body is not a valid message of this protocol: {detail}");
            }
            Failure::BadEncoding => {
                "the body is compressed, by its Content-Encoding or its first bytes: the platform \
                 must send it uncompressed"
            }
            Failure::TooLarge => {
                let size = self.body.size_bytes;
                let limit = self.body.max_bytes;
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

    /// The reason of a strategy's decision, and whether it is in shadow.
    pub(super) fn of_strategy(&self, one: &StrategyExplained) -> String {
        let because = self.of_decision(one);
        if one.shadow {
            format!("{because} (in shadow: not answered)")
        } else {
            because
        }
    }

    fn of_decision(&self, one: &StrategyExplained) -> String {
        if one.reason == NOT_CONFIGURED {
            return "the config does not map this id to a strategy".to_owned();
        }

        let outcome = if one.bid { "bid" } else { "no bid" };
        let reason = Reason::ALL
            .into_iter()
            .find(|reason| reason.as_str() == one.reason);

        match reason.expect("a decision's reason") {
            Reason::Member => self.of_member(one),
            Reason::NotMember => format!("no id is in {}", listed(&one.exclude, "or")),
            Reason::Capped => {
                let cap = one.cap.as_deref().unwrap_or_default();
                format!("its cap {cap} is reached, and this device was not counted")
            }
            Reason::NoGrant => {
                let cap = one.cap.as_deref().unwrap_or_default();
                format!("its cap {cap} is not reached, but this pod was granted no more of it yet")
            }
            Reason::Rule => of_rule(one),
            Reason::Bucket => format!("{}; {}", of_rule(one), of_buckets(one)),
            Reason::NotScheduled => of_schedule(one),
            Reason::NoDevice => {
                let because = self.of_no_device();
                format!("{because}, and its `no_device` answer is {outcome}")
            }
            Reason::Unavailable => {
                let cause = match self.failure.as_ref().map(|failure| failure.cause) {
                    Some(cause) if cause == Failure::TooManyIds.as_str() => {
                        format!("not every id is checked ({cause})")
                    }
                    Some(cause) => format!("no audience is checked ({cause})"),
                    None => of_unknown(one),
                };
                format!("{cause}, and its `unavailable` answer is {outcome}")
            }
        }
    }

    /// The reason why the device has no usable id.
    fn of_no_device(&self) -> &'static str {
        if !self.ids.is_empty() {
            return "no id is usable";
        }
        if self.notes.iter().any(|note| note.what == ID_SKIPPED) {
            return "no id has a type that the config maps";
        }
        "the request has no id"
    }

    /// The value of a strategy's bid; `None` if the strategy has no values.
    pub(super) fn of_value(&self, one: &StrategyExplained) -> Option<String> {
        if !one.bid || one.values.is_empty() {
            return None;
        }
        let chosen = one.values.iter().position(|value| value.chosen);

        let before = &one.values[..chosen.unwrap_or(one.values.len())];
        let mut because = String::new();
        for value in before {
            if let Some(reason) = self.without_value(one, value) {
                because = format!(", as {reason}");
                break;
            }
        }
        let Some(chosen) = chosen else {
            return Some(format!("no value fits{because}"));
        };

        let value = &one.values[chosen];
        let mut numbers = Vec::new();
        for (key, number) in value.value.numbers() {
            numbers.push(format!("{} {number}", key.as_str()));
        }
        let mut origin = Vec::new();
        match (&value.audience, value.tier) {
            (Some(audience), None) => origin.push(audience.clone()),
            (Some(audience), Some(tier)) => origin.push(format!("{audience} with tier {tier}")),
            (None, _) => {}
        }
        origin.extend(value.bucket.clone());
        let origin = if origin.is_empty() {
            "other bids".to_owned()
        } else {
            listed(&origin, "and")
        };

        let mut text = format!("its value is {}, that of {origin}", listed(&numbers, "and"));
        text += &because;
        let is_by_bucket = one.values.iter().any(|value| value.bucket.is_some());
        if is_by_bucket && !one.buckets.is_empty() && one.reason != Reason::Bucket.as_str() {
            text += &format!("; {}", of_buckets(one));
        }
        Some(text)
    }

    /// The reason why an entry does not fit that might fit otherwise.
    fn without_value(&self, one: &StrategyExplained, value: &ValueExplained) -> Option<String> {
        if let Some(part) = &value.bucket {
            let experiment = part.split(':').next();
            let mut known = one.buckets.iter();
            let is_refused = known.any(|found| {
                Some(found.experiment.as_str()) == experiment
                    && format!("{}:{}", found.experiment, found.bucket) != *part
            });
            if is_refused {
                return None;
            }
        }

        if let Some(because) = self.without_audience(value) {
            return Some(because);
        }
        let experiment = value.bucket.as_ref()?.split(':').next()?;
        let mut known = one.buckets.iter();
        let is_known = known.any(|found| found.experiment == experiment);
        (!is_known).then(|| format!("the bucket in {experiment} is unknown"))
    }

    /// The reason why the audience of an entry does not fit that might fit otherwise.
    fn without_audience(&self, value: &ValueExplained) -> Option<String> {
        let audience = self
            .audiences
            .iter()
            .find(|one| Some(&one.name) == value.audience.as_ref())?;
        let name = &audience.name;
        let is_member = audience.answer == Some(Membership::Member);
        let is_incomplete = self
            .failure
            .as_ref()
            .is_some_and(|one| one.cause == Failure::TooManyIds.as_str());

        match (&audience.snapshot, value.tier) {
            _ if !audience.available => Some(format!("{name} is unavailable")),
            (_, Some(_)) if is_member && is_incomplete => {
                Some(format!("another id may have a greater value in {name}"))
            }
            (Some(snapshot), Some(Tiers::Range(..))) if is_member && audience.tier.is_none() => {
                if snapshot.has_values {
                    Some(format!("the device has no value in {name}"))
                } else {
                    Some(format!("{name} was built without values"))
                }
            }
            _ => None,
        }
    }

    fn of_member(&self, one: &StrategyExplained) -> String {
        for audience in &self.audiences {
            if !one.exclude.contains(&audience.name) {
                continue;
            }
            let member = self.ids.iter().find(|id| {
                let mut audiences = id.audiences.iter().filter(|it| it.name == audience.name);
                one.device.as_ref().is_none_or(|device| *device == id.value)
                    && audiences.any(|it| it.answer == Some(Membership::Member))
            });
            let path = match member {
                Some(id) => id.path.as_str(),
                None if audience.answer == Some(Membership::Member) => "the device",
                None => continue,
            };
            return format!("{path} is in {}, which it excludes", audience.name);
        }

        "the device is a member".to_owned()
    }

    /// The reason of the whole answer, in one sentence.
    pub(super) fn conclusion(&self) -> String {
        let failure = self
            .failure
            .as_ref()
            .map(|failure| self.of_failure(failure));

        if self.strategies.is_empty() {
            return match failure {
                Some(because) => format!("Rejected, because {because}."),
                None if self.notes.iter().any(|note| note.what == "ping") => {
                    "A ping is answered at once: no audience is checked and no strategy decides."
                        .to_owned()
                }
                None => "No bid, because the request names no strategy.".to_owned(),
            };
        }

        if self.strategies.iter().any(|one| one.device.is_some()) {
            let mut accepted = BTreeSet::new();
            let mut devices = BTreeSet::new();
            for one in &self.strategies {
                devices.insert(&one.device);
                if one.bid && !one.shadow && one.device.is_some() {
                    accepted.insert(&one.device);
                }
            }
            return format!(
                "Accepts {} of {} different ids, each a device of its own.",
                accepted.len(),
                devices.len()
            );
        }

        let mut groups: Vec<ReasonGroup<'_>> = Vec::new();
        for one in &self.strategies {
            let because = match &failure {
                Some(because) if one.reason == Reason::Unavailable.as_str() => because.clone(),
                _ => self.of_strategy(one),
            };
            let group = groups
                .iter_mut()
                .find(|group| group.bid == one.bid && group.because == because);
            match group {
                Some(group) if group.ids.contains(&one.id.as_str()) => {}
                Some(group) => group.ids.push(&one.id),
                None => groups.push(ReasonGroup {
                    bid: one.bid,
                    because,
                    ids: vec![&one.id],
                }),
            }
        }

        let mut parts = Vec::new();
        for ReasonGroup { bid, because, ids } in groups.iter().take(MAX_REASONS) {
            let outcome = if *bid { "bid" } else { "no bid" };
            let names = listed(ids, "and");
            parts.push(format!("{outcome} for {names}, because {because}"));
        }
        if groups.len() > MAX_REASONS {
            parts.push("the others as listed above".to_owned());
        }

        let mut sentence = parts.join("; ") + ".";
        sentence[..1].make_ascii_uppercase();
        sentence
    }
}

/// The parts that leave a decision open.
fn of_unknown(one: &StrategyExplained) -> String {
    let unknown = one
        .unknown
        .as_ref()
        .expect("an unavailable decision has its unknown parts");
    let mut parts = Vec::new();

    if !unknown.audiences.is_empty() {
        let verb = if unknown.audiences.len() == 1 {
            "is"
        } else {
            "are"
        };
        parts.push(format!(
            "{} {verb} unavailable",
            listed(&unknown.audiences, "and")
        ));
    }
    if !unknown.attributes.is_empty() {
        let attributes: Vec<_> = unknown.attributes.iter().map(|it| it.as_str()).collect();
        parts.push(format!("the request lacks {}", listed(&attributes, "and")));
    }
    if !unknown.experiments.is_empty() {
        parts.push(format!(
            "the bucket in {} is unknown",
            listed(&unknown.experiments, "and")
        ));
    }

    parts.join(", ")
}

/// The rule with its truth, and the changes that would change it.
fn of_rule(one: &StrategyExplained) -> String {
    let Some(when) = &one.when else {
        return "its rule decides".to_owned();
    };
    let (verb, other) = if one.bid {
        ("holds", "would not")
    } else {
        ("does not hold", "would")
    };

    let mut text = format!("its rule {} {verb}", when.rule);
    let mut changes = Vec::new();
    for memberships in &when.changes {
        let mut places = Vec::new();
        for OtherMembership { audience, answer } in memberships {
            let is_in = *answer == Some(Membership::Member);
            let word = if is_in { "in" } else { "not in" };
            places.push(format!("{word} {audience}"));
        }
        changes.push(listed(&places, "and"));
    }
    if !changes.is_empty() {
        text += &format!("; it {other} if the device were {}", listed(&changes, "or"));
    }
    text
}

/// The device's parts in the strategy's experiments.
fn of_buckets(one: &StrategyExplained) -> String {
    let mut parts = Vec::new();
    for bucket in &one.buckets {
        let experiment = &bucket.experiment;
        let part = &bucket.bucket;
        parts.push(match bucket.unit {
            Some(unit) => format!("{experiment}:{part} by its {unit}"),
            None => {
                let kinds = listed(&bucket.kinds, "or");
                format!("{experiment}:{part}, as it has no usable {kinds}")
            }
        });
    }
    format!("the device is in {}", listed(&parts, "and"))
}

fn of_schedule(one: &StrategyExplained) -> String {
    let schedule = one.schedule.as_ref();
    match schedule.and_then(|schedule| schedule.next_change.as_ref()) {
        Some(at) => format!("its schedule does not hold before {at}"),
        None => "its schedule does not hold any more".to_owned(),
    }
}

/// `a, b and c`.
fn listed(words: &[impl AsRef<str>], last: &str) -> String {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match &words[..] {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [before @ .., end] => format!("{} {last} {end}", before.join(", ")),
    }
}
