//! A request and its verdicts as facts of the log.

use std::fmt::Write as _;

use rtad_log::row::{
    AskedIds, AudienceFacts, DecisionFacts, ExperimentFacts, UnnamedDevice, UnnamedFacts,
};
use rtad_log::{
    AudienceFact, CapFact, CapState, DecisionFact, ExperimentFact, InAudience, LoggedFacts,
    LookedUpIds,
};
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::catalog::{Audience, Catalog, RequestKeys};
use crate::platform::{AskedList, Digits, Read, Value};
use crate::strategy::{
    Assignment, Attribute, AttributeValue, AttributeValues, AudienceAnswer, Decision, Experiment,
    Facts, LookedUp, Membership, Reason, Tier, ValueKey,
};

/// Stands for a text that is not UTF-8: it is equal to no text of a configuration.
const NOT_UTF8: &str = "\u{fffd}";

/// The parts of a request that are logged, beside its ids.
pub struct LoggedRequest<'r> {
    /// The request's own id.
    pub request_id: Option<&'r str>,
    /// The platform's ids of the requested strategies; `None` = all.
    pub asked: Option<AskedIds<'r>>,
    /// Its attributes.
    pub attributes: AttributeValues<'r>,
}

/// Decimal digits of the numbers of a request.
#[derive(Default)]
pub struct Numbers {
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
    /// The facts about its device, with an answer of each audience.
    pub facts: &'d Facts<'r>,
    /// Its time.
    pub at: Instant,
}

impl<'r> LoggedRequest<'r> {
    /// That of a platform's request.
    pub(crate) fn of_read(read: &'r Read<'_>, numbers: &'r mut Numbers) -> Self {
        let asked = match &read.asked {
            AskedList::All(_) => None,
            AskedList::Named(named) => {
                numbers.asked.resize_with(named.len(), Digits::new);
                let mut ids = AskedIds::new();
                for (asked, digits) in named.iter().zip(&mut numbers.asked) {
                    ids.push(text(asked.id.text(digits)));
                }
                Some(ids)
            }
        };

        let request_id = match &read.request_id {
            Value::Absent => None,
            id => Some(text(id.text(&mut numbers.request_id))),
        };

        Self {
            request_id,
            asked,
            attributes: read.attributes(),
        }
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or(NOT_UTF8)
}

/// The facts of a request, with its decisions by index of the strategy.
pub fn facts<'f, 'd: 'f, 'r: 'f>(
    decided: &'f Decided<'d, 'r>,
    decisions: impl Iterator<Item = (usize, Decision)>,
    digits: &'f mut [Digits; Attribute::ALL.len()],
) -> UnnamedFacts<'f> {
    let catalog = decided.catalog;
    let request = decided.request;
    let mut facts = LoggedFacts {
        request_id: request.request_id,
        device: decided.keys.device().map(UnnamedDevice::new),
        ids: looked_up(decided.facts.looked_up),
        attributes: [None; Attribute::ALL.len()],
        asked: None,
        audiences: AudienceFacts::new(),
        experiments: ExperimentFacts::new(),
        decisions: DecisionFacts::new(),
    };

    if let Some(asked) = &request.asked {
        facts.asked = Some(asked.iter().copied().collect());
    }
    let attributes = Attribute::ALL.into_iter().zip(&mut facts.attributes);
    for ((attribute, fact), digits) in attributes.zip(digits) {
        *fact = match request.attributes[attribute as usize] {
            Some(AttributeValue::Text(bytes)) => Some(text(bytes)),
            Some(AttributeValue::Number(number)) => {
                write!(digits, "{number}").expect("20 digits hold any 64-bit number");
                Some(digits)
            }
            None => None,
        };
    }

    for (index, audience) in catalog.audiences().iter().enumerate() {
        // Nothing is looked up without a usable id.
        if let Some(answer) = decided.facts.answer_of(index) {
            facts.audiences.push(of_audience(audience, answer));
        }
    }
    let experiments = catalog.experiments().list().iter();
    for (experiment, part) in experiments.zip(&decided.facts.parts) {
        facts
            .experiments
            .push(of_experiment(decided, experiment, *part));
    }
    for (index, decision) in decisions {
        facts.decisions.push(of_decision(decided, index, decision));
    }
    facts
}

fn looked_up(ids: LookedUp) -> LookedUpIds {
    match ids {
        LookedUp::All => LookedUpIds::All,
        LookedUp::TooMany => LookedUpIds::TooMany,
        LookedUp::None => LookedUpIds::None,
        LookedUp::Unread => LookedUpIds::Unread,
    }
}

fn of_experiment<'f>(
    decided: &Decided<'_, '_>,
    experiment: &'f Experiment,
    part: Assignment,
) -> ExperimentFact<'f> {
    let mut slots = None;
    if part != Assignment::Unknown {
        let unit = decided.keys.unit(experiment);
        slots = unit.map(|(_, unit)| experiment.slots(unit));
    }

    ExperimentFact {
        name: &experiment.name,
        rule: experiment.rule_id(),
        bucket: experiment.part_name(part),
        slots,
    }
}

fn of_decision<'f>(
    decided: &'f Decided<'_, '_>,
    index: usize,
    decision: Decision,
) -> DecisionFact<'f> {
    let strategy = decided.catalog.strategy(index);
    let value = strategy.value_of(decision);
    let has_schedule = strategy.schedule.is_some();
    DecisionFact {
        strategy: &strategy.name,
        bid: decision.is_bid(),
        reason: decision.reason.as_str(),
        condition: decided
            .catalog
            .refusing_condition(index, decision, decided.facts),
        shadow: strategy.is_shadow,
        cap: cap(decided, index, decision),
        scheduled: has_schedule.then(|| !decided.facts.paused.contains(&index)),
        numbers: ValueKey::ALL.map(|key| value?.get(key)),
    }
}

fn of_audience(audience: &Audience, answer: AudienceAnswer) -> AudienceFact<'_> {
    let member = match answer.membership {
        Membership::Member => InAudience::Yes,
        Membership::NotMember => InAudience::No,
        Membership::Unavailable => InAudience::Unavailable,
    };
    let mut value = None;
    if let Tier::Value(tier) = answer.tier {
        value = Some(tier);
    }

    let snapshot = audience.snapshot.as_ref();
    AudienceFact {
        name: audience.name.as_str(),
        generation: snapshot.map(|snapshot| snapshot.manifest().generation()),
        member,
        value,
    }
}

/// State of the strategy's cap for the device. If the strategy refused the device for another
/// reason, the cap is read again without counting.
fn cap<'d>(decided: &Decided<'d, '_>, index: usize, decision: Decision) -> Option<CapFact<'d>> {
    let caps = decided.catalog.caps();
    let name = caps.at(decided.catalog.strategy(index).cap?).name();
    let verdict = caps.verdict(index, decided.keys.keys(), decided.at)?;

    if decision.is_bid() {
        let state = CapState::Admitted;
        return Some(CapFact { name, state });
    }

    let reason = match decision.reason {
        Reason::Capped | Reason::NoGrant => decision.reason,
        _ => verdict.reason,
    };
    let state = match reason {
        Reason::Capped => CapState::Capped,
        Reason::NoGrant => CapState::NoGrant,
        _ => CapState::Admitted,
    };
    Some(CapFact { name, state })
}
