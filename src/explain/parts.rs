//! Audiences and strategies of an explanation, and the hashed form of an id.

use std::time::SystemTime;

use super::explainer::Explainer;
use super::report::{
    AudienceExplained, BucketExplained, NOT_CONFIGURED, OtherMembership, ScheduleExplained,
    SnapshotExplained, StrategyExplained, Unavailable, UnknownExplained, ValueExplained,
    WhenExplained,
};
use crate::catalog::{Audience, Catalog, RequestKeys};
use crate::platform::Verdicts;
use crate::strategy::{Assignment, AttributeValues, Decision, Facts, Reason, Rule, Tier};
use crate::sync::SyncHistory;
use rtad_core::clock::{now_unix_seconds, unix_seconds};
use rtad_core::device::{Case, DeviceKey, IdKind, trim};

/// The state of an audience, and its answer about the device of the facts, if it was asked.
pub fn explain_audience(
    explainer: &Explainer<'_>,
    index: usize,
    facts: &Facts<'_>,
) -> AudienceExplained {
    let audience = &explainer.catalog.audiences()[index];
    let mut membership = None;
    let mut value = None;
    if let Some(answer) = facts.answer_of(index) {
        membership = Some(facts.membership(index));
        if let Tier::Value(tier) = answer.tier {
            value = Some(tier);
        }
    }

    let age = audience.age_seconds(now_unix_seconds());
    let mut explained_snapshot = None;
    if let Some(snapshot) = &audience.snapshot {
        let manifest = snapshot.manifest();
        explained_snapshot = Some(SnapshotExplained {
            generation: manifest.generation(),
            keys: manifest.keys(),
            expected_fpr: manifest.expected_fpr(),
            has_values: manifest.filter().value_bits() > 0,
            age_seconds: age.unwrap_or(0),
        });
    }

    AudienceExplained {
        name: audience.name.to_string(),
        available: audience.available().is_some(),
        unavailable: unavailable(audience, age, explainer.history),
        snapshot: explained_snapshot,
        answer: membership,
        tier: value,
    }
}

fn unavailable(
    audience: &Audience,
    age: Option<u64>,
    history: &SyncHistory,
) -> Option<Unavailable> {
    if audience.available().is_some() {
        return None;
    }
    if audience.is_expired(now_unix_seconds()) {
        return Some(Unavailable::Expired);
    }

    if let Some(snapshot) = &audience.snapshot
        && let Some(reason) = snapshot.overlay().not_served(now_unix_seconds())
    {
        return Some(match reason {
            "deleted" => Unavailable::Deleted,
            "disabled" => Unavailable::Disabled,
            _ => Unavailable::Expired,
        });
    }

    if let (Some(_), Some(limit)) = (age, audience.max_age) {
        return Some(Unavailable::TooOld {
            max_age_seconds: limit.as_secs(),
        });
    }

    let error = history.last(&audience.name).and_then(|last| last.error);
    Some(Unavailable::NotLoaded { error })
}

/// Most changes that an explanation lists.
const MAX_CHANGES: usize = 8;

/// The parts of a strategy that leave a decision open, each once.
fn explain_unknown(catalog: &Catalog, unknown: Vec<Rule>) -> UnknownExplained {
    fn add<T: PartialEq>(to: &mut Vec<T>, one: T) {
        if !to.contains(&one) {
            to.push(one);
        }
    }

    let mut explained = UnknownExplained::default();
    for leaf in unknown {
        match leaf {
            Rule::Audience(audience) => {
                add(
                    &mut explained.audiences,
                    catalog.audiences()[audience].name.to_string(),
                );
            }
            Rule::Bucket(experiment, _) => {
                add(
                    &mut explained.experiments,
                    catalog.experiments().list()[experiment].name.clone(),
                );
            }
            Rule::Attribute(attribute, _) => add(&mut explained.attributes, attribute),
            Rule::Absent(_) | Rule::Any(_) | Rule::All(_) | Rule::None(_) => {}
        }
    }

    explained
}

/// The device that a decision is about.
#[derive(Debug)]
pub struct ExplainedDevice<'a> {
    pub facts: Facts<'a>,
    /// Kinds of the ids that are the units of the experiments, by index.
    pub units: Vec<Option<IdKind>>,
    /// The time of the decision.
    at: SystemTime,
}

impl<'a> ExplainedDevice<'a> {
    /// The device of a request with the facts about it, under the schedules of a time.
    pub fn new(
        catalog: &Catalog,
        keys: &RequestKeys,
        attributes: AttributeValues<'a>,
        at: Option<SystemTime>,
    ) -> Self {
        let all = 0..catalog.strategies().len();
        let mut facts = catalog.no_facts(keys);
        facts.attributes = attributes;
        catalog.look_up(keys, all, &mut facts);
        catalog.complete(keys, &mut facts);
        if let Some(at) = at {
            catalog.pause_at(at, &mut facts);
        }

        let mut units = Vec::new();
        for experiment in catalog.experiments().list() {
            let unit = keys.unit(experiment);
            units.push(unit.map(|(kind, _)| *kind));
        }
        let at = at.unwrap_or_else(SystemTime::now);
        Self { facts, units, at }
    }
}

fn name_of(catalog: &Catalog, audience: usize) -> String {
    catalog.audiences()[audience].name.to_string()
}

fn explain_rule(catalog: &Catalog, rule: &Rule, facts: &Facts<'_>) -> WhenExplained {
    let mut audiences = Vec::new();
    for audience in rule.audiences() {
        audiences.push(name_of(catalog, audience));
    }

    let mut changes = Vec::new();
    for memberships in rule.changes(facts).into_iter().take(MAX_CHANGES) {
        let mut change = Vec::new();
        for (audience, answer) in memberships {
            change.push(OtherMembership {
                audience: name_of(catalog, audience),
                answer: Some(answer),
            });
        }
        changes.push(change);
    }

    WhenExplained {
        rule: rule.to_text(
            &|audience| name_of(catalog, audience),
            catalog.experiments().list(),
        ),
        audiences,
        truth: rule.truth(facts),
        changes,
    }
}

/// A strategy's decision and its reason, for a device.
fn explain_strategy(
    catalog: &Catalog,
    id: String,
    index: usize,
    decision: Decision,
    device: &ExplainedDevice<'_>,
) -> StrategyExplained {
    let facts = &device.facts;
    let strategy = catalog.strategy(index);
    let experiments = catalog.experiments();
    let caps = catalog.caps();

    let mut excluded = Vec::new();
    for audience in &strategy.exclude {
        excluded.push(name_of(catalog, *audience));
    }
    let rule = strategy.rule.as_ref();
    let when = rule.map(|rule| explain_rule(catalog, rule, facts));
    let mut buckets = Vec::new();
    for index in &strategy.experiments {
        let experiment = &experiments.list()[*index];
        let part = facts.part(*index);
        if part != Assignment::Unknown {
            buckets.push(BucketExplained {
                experiment: experiment.name.clone(),
                bucket: experiment.part_name(part).to_owned(),
                unit: device.units[*index].map(IdKind::as_str),
                kinds: experiment.unit.iter().map(|kind| kind.as_str()).collect(),
            });
        }
    }
    let mut explained_schedule = None;
    if let Some(schedule) = &strategy.schedule {
        let next = schedule.next_change(device.at);
        explained_schedule = Some(ScheduleExplained {
            holds: !facts.paused.contains(&index),
            next_change_unix_seconds: next.map(unix_seconds),
            next_change: next.map(|next| schedule.local(next)),
        });
    }

    let mut unknown = None;
    if decision.reason == Reason::Unavailable {
        unknown = Some(explain_unknown(catalog, strategy.unknown(facts)));
    }
    let chosen = decision.value.index.map(usize::from);
    let mut values = Vec::new();
    for (row, entry) in strategy.values.iter().enumerate() {
        values.push(ValueExplained {
            audience: entry.audience.map(|index| name_of(catalog, index)),
            tier: entry.tiers,
            bucket: entry.part.map(|part| experiments.full_name(part)),
            value: entry.value,
            chosen: chosen == Some(row),
        });
    }

    StrategyExplained {
        id,
        device: None,
        buckets,
        strategy: Some(strategy.name.clone()),
        exclude: excluded,
        when,
        schedule: explained_schedule,
        cap: strategy.cap.map(|index| caps.at(index).name().to_owned()),
        unknown,
        shadow: strategy.is_shadow,
        values,
        bid: decision.is_bid(),
        reason: decision.reason.as_str(),
    }
}

/// The decisions of these strategies, each with the id that asks for it, without those that did not
/// decide.
pub fn explain_strategies(
    catalog: &Catalog,
    asked: Vec<(String, Option<usize>)>,
    device: &ExplainedDevice<'_>,
    verdicts: &Verdicts,
) -> Vec<StrategyExplained> {
    let mut explained = Vec::new();
    for (id, index) in asked {
        let Some(index) = index else {
            explained.push(not_configured(id));
            continue;
        };

        let mut verdicts = verdicts.iter();
        if let Some(verdict) = verdicts.find(|verdict| verdict.strategy == index) {
            let decision = verdict.decision;
            explained.push(explain_strategy(catalog, id, index, decision, device));
        }
    }
    explained
}

/// A requested strategy id that the config does not map.
fn not_configured(id: String) -> StrategyExplained {
    StrategyExplained {
        id,
        device: None,
        strategy: None,
        exclude: Vec::new(),
        when: None,
        schedule: None,
        cap: None,
        unknown: None,
        buckets: Vec::new(),
        values: Vec::new(),
        shadow: false,
        bid: false,
        reason: NOT_CONFIGURED,
    }
}

/// The form that is hashed, if the value differs from it. This function repeats the conversion, so
/// it returns only a form whose md5 is `key`.
pub fn canonical(value: &str, kind: IdKind, key: DeviceKey) -> Option<String> {
    let trimmed = str::from_utf8(trim(value.as_bytes())).ok()?;
    let canonical = match kind.canonical_case() {
        Case::Lower => trimmed.to_ascii_lowercase(),
        Case::Upper => trimmed.to_ascii_uppercase(),
        Case::AsIs | Case::All => trimmed.to_owned(),
    };
    let is_hashed = kind != IdKind::Md5 && canonical != value;
    (is_hashed && DeviceKey::of_canonical(canonical.as_bytes()) == key).then_some(canonical)
}
