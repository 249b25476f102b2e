//! Rules of the strategies in `GET /v1/status`, in words.

use serde::Serialize;

use crate::catalog::Catalog;
use crate::strategy::{BidValue, Strategy, Tiers};
use rtad_core::clock::{self, unix_seconds};

/// A strategy's rule.
#[derive(Serialize)]
pub struct RuleStatus<'a> {
    strategy: &'a str,
    /// Whether its decisions are counted, and answer nothing.
    shadow: bool,
    exclude: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    when: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    schedule: Option<ScheduleStatus>,
    /// Name of its cap.
    #[serde(skip_serializing_if = "Option::is_none")]
    cap: Option<&'a str>,
    values: Vec<ValueStatus<'a>>,
}

#[derive(Serialize)]
struct ScheduleStatus {
    holds: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_change_unix_seconds: Option<u64>,
}

#[derive(Serialize)]
struct ValueStatus<'a> {
    /// Null for any.
    audience: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<Tiers>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bucket: Option<String>,
    value: BidValue,
}

/// The rules of all strategies, in the config's order.
pub fn rules(catalog: &Catalog) -> Vec<RuleStatus<'_>> {
    let mut rules = Vec::new();
    for strategy in catalog.strategies() {
        rules.push(rule(catalog, strategy));
    }
    rules
}

fn rule<'a>(catalog: &'a Catalog, strategy: &'a Strategy) -> RuleStatus<'a> {
    let caps = catalog.caps();
    let experiments = catalog.experiments();

    let mut excluded = Vec::with_capacity(strategy.exclude.len());
    for index in &strategy.exclude {
        excluded.push(audience_name(catalog, *index));
    }
    let schedule = strategy.schedule.as_ref().map(|schedule| ScheduleStatus {
        holds: schedule.holds(),
        next_change_unix_seconds: schedule.next_change(clock::now()).map(unix_seconds),
    });
    let when = strategy.rule.as_ref().map(|rule| {
        rule.to_text(
            &|index| audience_name(catalog, index).to_owned(),
            experiments.list(),
        )
    });

    let mut values = Vec::with_capacity(strategy.values.len());
    for entry in &strategy.values {
        values.push(ValueStatus {
            audience: entry.audience.map(|index| audience_name(catalog, index)),
            tier: entry.tiers,
            bucket: entry.part.map(|part| experiments.full_name(part)),
            value: entry.value,
        });
    }

    RuleStatus {
        strategy: &strategy.name,
        shadow: strategy.is_shadow,
        exclude: excluded,
        when,
        schedule,
        cap: strategy.cap.map(|index| caps.at(index).name()),
        values,
    }
}

fn audience_name(catalog: &Catalog, index: usize) -> &str {
    catalog.audiences()[index].name.as_str()
}
