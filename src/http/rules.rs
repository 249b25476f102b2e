//! Rules of the strategies in `GET /v1/status`, in words.

use std::time::SystemTime;

use serde::Serialize;

use crate::catalog::Catalog;
use crate::strategy::{BidValue, Strategy, Tiers, ValueEntry};
use rtad_core::clock::unix_seconds;

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
    catalog
        .strategies()
        .map(|strategy| rule(catalog, strategy))
        .collect()
}

fn rule<'a>(catalog: &'a Catalog, strategy: &'a Strategy) -> RuleStatus<'a> {
    let name = |index: usize| catalog.audiences()[index].name.as_str();
    let names = |indexes: &[usize]| indexes.iter().copied().map(name).collect();
    let experiments = catalog.experiments().list();
    let when = strategy.rule.as_ref();
    let schedule = strategy.schedule.as_ref().map(|schedule| ScheduleStatus {
        holds: schedule.holds(),
        next_change_unix_seconds: schedule.next_change(SystemTime::now()).map(unix_seconds),
    });
    let value = |entry: &ValueEntry| ValueStatus {
        audience: entry.audience.map(name),
        tier: entry.tiers,
        bucket: entry.part.map(|part| catalog.experiments().full_name(part)),
        value: entry.value,
    };
    RuleStatus {
        strategy: &strategy.name,
        shadow: strategy.is_shadow,
        exclude: names(&strategy.exclude),
        when: when.map(|rule| rule.to_text(&|index| name(index).to_owned(), experiments)),
        schedule,
        cap: strategy.cap.map(|index| catalog.caps().at(index).name()),
        values: strategy.values.iter().map(value).collect(),
    }
}
