//! A request and its verdicts as facts of the log.

use std::fmt::Write as _;
use std::time::Instant;

use crate::platform::DeviceKeys;
use rtad_core::device::{DeviceKey, IdKind};
use rtad_log::{
    AudienceFact, CapState, DecisionFact, ExperimentFact, InAudience, LoggedFacts, LookedUpIds,
};
use smallvec::SmallVec;

use crate::catalog::{Audience, Catalog, RequestKeys};
use crate::platform::{AskedList, Digits, Read, Value};
use crate::strategy::{
    Assignment, Assignments, Attribute, AttributeValue, Attributes, Decision, Membership, Reason,
    Tier, ValueKey,
};

/// Stands for a text that is not UTF-8: it is equal to no text of a configuration.
const NOT_UTF8: &str = "\u{fffd}";

/// The parts of a request that are logged, beside its ids.
pub struct LoggedRequest<'r> {
    /// The request's own id.
    pub request_id: Option<&'r str>,
    /// The platform's ids of the requested strategies; `None` = all.
    pub asked: Option<SmallVec<[&'r str; 8]>>,
    /// Its attributes.
    pub attributes: &'r dyn Attributes,
    /// The kind of id by which the platform caches the answer.
    pub cached_kind: Option<IdKind>,
}

/// Decimal digits of the numbers of a request.
#[derive(Default)]
pub(super) struct Numbers {
    request_id: Digits,
    asked: SmallVec<[Digits; 8]>,
}

/// A request and its decisions.
#[derive(Clone, Copy)]
pub struct Decided<'d, 'r> {
    /// The catalog that decided.
    pub catalog: &'d Catalog,
    /// The request.
    pub request: &'d LoggedRequest<'r>,
    /// Its keys.
    pub keys: &'d RequestKeys,
    /// The device's parts in the experiments.
    pub assignments: &'d Assignments,
    /// Its time.
    pub at: Instant,
}

impl<'r> LoggedRequest<'r> {
    /// That of a platform's request.
    pub(super) fn of_read(read: &'r Read<'_>, numbers: &'r mut Numbers) -> Self {
        let asked = match &read.asked {
            AskedList::All(_) => None,
            AskedList::Named(named) => {
                numbers.asked.resize_with(named.len(), Digits::new);
                let ids = named.iter().zip(&mut numbers.asked);
                Some(
                    ids.map(|(asked, digits)| text(asked.id.text(digits)))
                        .collect(),
                )
            }
        };
        let request_id = match &read.request_id {
            Value::Absent => None,
            id => Some(text(id.text(&mut numbers.request_id))),
        };
        Self {
            request_id,
            asked,
            attributes: read,
            cached_kind: read.cached_kind,
        }
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or(NOT_UTF8)
}

/// The facts of a request, with its decisions by index of the strategy: lists as iterators. Looks
/// up each audience of the catalog, as other rules may read it.
pub fn facts<'f, 'd: 'f, 'r: 'f>(
    decided: &'f Decided<'d, 'r>,
    decisions: impl Iterator<Item = (usize, Decision)>,
    digits: &'f mut [Digits; Attribute::ALL.len()],
) -> LoggedFacts<
    'f,
    DeviceKey,
    impl Iterator<Item = &'f str>,
    impl Iterator<Item = AudienceFact<'f>>,
    impl Iterator<Item = ExperimentFact<'f>>,
    impl Iterator<Item = DecisionFact<'f>>,
> {
    let &Decided {
        catalog,
        request,
        keys,
        assignments,
        at,
    } = decided;
    let ids = if keys.is_unreadable() {
        LookedUpIds::Unread
    } else if keys.has_too_many_ids() {
        LookedUpIds::TooMany
    } else if keys.keys().is_empty() {
        LookedUpIds::None
    } else {
        LookedUpIds::All
    };
    let mut attributes = [None; Attribute::ALL.len()];
    for ((attribute, to), digits) in Attribute::ALL.into_iter().zip(&mut attributes).zip(digits) {
        *to = request
            .attributes
            .attribute(attribute)
            .map(|value| match value {
                AttributeValue::Text(bytes) => text(bytes),
                AttributeValue::Number(number) => {
                    write!(digits, "{number}").expect("20 digits hold any 64-bit number");
                    digits
                }
            });
    }
    let experiments = catalog.experiments().list().iter().zip(assignments);
    let experiments = experiments.map(move |(experiment, part)| ExperimentFact {
        name: &experiment.name,
        rule: experiment.rule_id(),
        bucket: experiment.part_name(*part),
        slots: keys
            .unit(experiment, request.cached_kind)
            .filter(|_| *part != Assignment::Unknown)
            .map(|(_, unit)| experiment.slots(unit)),
    });
    let decision = move |(index, decision): (usize, Decision)| {
        let strategy = catalog.strategy(index);
        let value = strategy.value_of(decision);
        DecisionFact {
            strategy: &strategy.name,
            bid: decision.is_bid(),
            reason: decision.reason.as_str(),
            shadow: strategy.is_shadow,
            cap: cap(catalog, index, decision, keys, at),
            scheduled: strategy.schedule.as_ref().map(|schedule| schedule.holds()),
            numbers: ValueKey::ALL.map(|key| value?.get(key)),
        }
    };
    LoggedFacts {
        request_id: request.request_id,
        device: keys.device().copied(),
        ids,
        attributes,
        asked: request
            .asked
            .as_ref()
            .map(|asked| asked.iter().map(|id| -> &'f str { id })),
        audiences: audiences(catalog, keys),
        experiments,
        decisions: decisions.map(decision),
    }
}

/// The device of a request in each audience of a catalog; empty without a usable id.
fn audiences<'c>(
    catalog: &'c Catalog,
    keys: &RequestKeys,
) -> impl Iterator<Item = AudienceFact<'c>> {
    let keys = keys.keys();
    let audiences = if keys.is_empty() {
        &[]
    } else {
        catalog.audiences()
    };
    audiences
        .iter()
        .map(move |audience| of_audience(audience, keys))
}

fn of_audience<'f>(audience: &'f Audience, keys: &DeviceKeys) -> AudienceFact<'f> {
    let member = match audience.membership(keys) {
        Membership::Member => InAudience::Yes,
        Membership::NotMember => InAudience::No,
        Membership::Unavailable => InAudience::Unavailable,
    };
    let value = match member {
        InAudience::Yes if !audience.has_no_values() => match audience.tier(keys) {
            Tier::Value(value) => Some(value),
            Tier::None | Tier::Unknown => None,
        },
        _ => None,
    };
    let generation = audience
        .snapshot
        .as_ref()
        .map(|snapshot| snapshot.manifest().generation());
    AudienceFact {
        name: audience.name.as_str(),
        generation,
        member,
        value,
    }
}

/// State of the strategy's cap for the device. If the strategy refused the device for another
/// reason, the cap is read again without counting.
fn cap(
    catalog: &Catalog,
    index: usize,
    decision: Decision,
    keys: &RequestKeys,
    at: Instant,
) -> Option<CapState> {
    let verdict = catalog.caps().verdict(index, keys.keys().counted(), at)?;
    let reason = match decision.reason {
        Reason::Capped | Reason::NoLease => decision.reason,
        _ if decision.is_bid() => return Some(CapState::Admitted),
        _ => verdict.reason,
    };
    Some(match reason {
        Reason::Capped => CapState::Capped,
        Reason::NoLease => CapState::NoLease,
        _ => CapState::Admitted,
    })
}
