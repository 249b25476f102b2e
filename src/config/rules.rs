//! `[ids]`, `[[audience]]` and `[[strategy]]`: the rules of decisions.

use std::time::Duration;

use rtad_config::Document;
use rtad_config::values::{DAY, SECOND, as_optional_time, name, time};
use rtad_core::schedule::{Day, Hours, Moment, Schedule};
use rtad_core::snapshot::AudienceName;
use serde::{Deserialize, Deserializer, Serialize};

use super::condition::{Condition, refuse_unknown};
use super::experiment::PartNames;
use super::value::{self, ValueConfig, ValueContext};
use super::zone::{ACCEPTED, optional_time_zone};
use crate::strategy::Outcome;

/// Device ids.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
#[serde(default, deny_unknown_fields)]
pub struct IdsConfig {
    /// Raw ids that stand for "no id", in addition to the built-in ones.
    pub blank: Vec<String>,
}

/// A served audience.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct AudienceConfig {
    /// Name of the audience in the store.
    pub name: AudienceName,
    /// Makes readiness of the pod wait until this audience is loaded.
    #[serde(default = "always")]
    pub required: bool,
    /// Age from which the snapshot counts as unavailable, checked every second; unset = never.
    #[serde(
        default,
        deserialize_with = "time::<_, _, SECOND, { 365 * DAY }>",
        serialize_with = "as_optional_time"
    )]
    pub max_age: Option<Duration>,
}

/// A rule over audiences.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct StrategyConfig {
    /// Name of the strategy in `/v1/decide`, in metrics and in `[[platform]]`.
    #[serde(deserialize_with = "name::<_, AudienceName, _>")]
    pub name: String,
    /// Audiences whose members get no bid. A strategy needs `exclude` or `when`.
    #[serde(default)]
    pub exclude: Vec<AudienceName>,
    /// Condition that a device must meet for a bid, beside `exclude`: an audience, or a table, each
    /// key of which must hold: `audience`; attributes of the request (`os`, `app`, `slot`,
    /// `region`, `request_type`) with one or more values; `absent` with an attribute; `bucket` with
    /// one or more parts of experiments, as `EXPERIMENT:BUCKET`; or `any`, `all` and `none` with
    /// lists of conditions. Their order does not matter.
    pub when: Option<Condition>,
    /// Time from which the strategy bids, with an offset from UTC. Unset = always.
    pub valid_from: Option<Moment>,
    /// Time from which it no longer bids.
    pub valid_until: Option<Moment>,
    /// Days of the week on which it bids. Empty = every day.
    #[serde(default)]
    pub days: Vec<Day>,
    /// Hours of the local clock in which it bids; the end does not belong to them. Hours over
    /// midnight belong to the day on which they begin. Empty = the whole day.
    #[serde(default)]
    pub hours: Vec<Hours>,
    /// Time zone of `days` and `hours`. Unset = that of the file, one of which they need.
    #[serde(default, deserialize_with = "optional_time_zone")]
    pub time_zone: Option<String>,
    /// Whether decisions are only counted, in `rtad_shadow_decisions_total`: answers do not contain
    /// them. Its cap counts devices as well.
    #[serde(default)]
    pub shadow: bool,
    /// Decision for a request without a usable id.
    #[serde(default = "no_bid")]
    pub no_device: Outcome,
    /// Decision if a needed audience is missing or too old, the request lacks a needed attribute,
    /// or a platform's request is not read: its body is invalid or too large, or the service is
    /// overloaded.
    #[serde(default = "no_bid")]
    pub unavailable: Outcome,
    /// Numbers that bids carry; see `[[strategy.value]]`. The first entry that fits counts.
    #[serde(default, rename = "value", skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<ValueConfig>,
    /// Cap of the distinct devices that get a bid; see `[[cap]]`. Strategies with the same cap
    /// share it.
    #[serde(default, deserialize_with = "cap_name")]
    pub cap: Option<String>,
}

impl StrategyConfig {
    /// Whether its condition or a value depends on a part in this experiment.
    pub(super) fn reads_experiment(&self, name: &str) -> bool {
        let when = self.when.as_ref();
        when.is_some_and(|when| when.reads_experiment(name))
            || self.values.iter().any(|value| value.reads_experiment(name))
    }

    /// The times at which the strategy may bid; `None` = always.
    pub fn schedule(&self) -> Option<Schedule> {
        let bounds = Schedule::between(self.valid_from, self.valid_until);
        match &self.time_zone {
            Some(zone) => {
                let weekly = bounds.weekly(&self.days, &self.hours, zone);
                Some(weekly.expect("reading checked the time zone"))
            }
            None => (self.valid_from.is_some() || self.valid_until.is_some()).then_some(bounds),
        }
    }
}

fn cap_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    name::<_, AudienceName, _>(deserializer).map(Some)
}

const fn always() -> bool {
    true
}

const fn no_bid() -> Outcome {
    Outcome::NoBid
}

/// Checks the audiences and the strategies that use them.
pub fn check(
    d: &mut Document<'_>,
    strategies: &mut [StrategyConfig],
    parts: &PartNames,
    zone: Option<&String>,
) {
    d.refuse_duplicates("audience", "name");
    d.refuse_duplicates("strategy", "name");
    // Invalid names too: such a name is one mistake, not another one per strategy that uses it.
    let audiences = d.texts("audience", "name");

    for (index, strategy) in strategies.iter_mut().enumerate() {
        let table = format!("strategy[{index}]");
        for (index, name) in strategy.exclude.iter().enumerate() {
            let key = format!("{table}.exclude[{index}]");
            refuse_unknown(d, &key, name.as_str(), "audiences", &audiences);
        }

        if let Some(when) = &strategy.when {
            let key = format!("{table}.when");
            when.check(d, &key, 0, &audiences, parts);
            if !d.has_mistake(&table) && when.holds_only_in(&strategy.exclude) {
                let found = "holds only for members of exclude: the strategy never bids";
                d.mistake(&key, found, "an audience that is not in exclude");
            }
        } else if strategy.exclude.is_empty() {
            d.mistake(
                &table,
                "names no audience",
                "exclude or when with at least one",
            );
        }

        let context = ValueContext {
            excluded: &strategy.exclude,
            when: strategy.when.as_ref(),
            audiences: &audiences,
            parts,
        };
        value::check(d, &table, &strategy.values, &context);
        check_schedule(d, &table, strategy, zone);
    }
}

fn check_schedule(
    d: &mut Document<'_>,
    table: &str,
    strategy: &mut StrategyConfig,
    file_zone: Option<&String>,
) {
    let has_hours = !strategy.days.is_empty() || !strategy.hours.is_empty();
    let zone = format!("{table}.time_zone");
    if has_hours {
        strategy.time_zone = strategy.time_zone.take().or(file_zone.cloned());
        if strategy.time_zone.is_none() {
            d.require(&zone, ACCEPTED);
        }
    } else if strategy.time_zone.is_some() {
        d.mistake(
            &zone,
            "is given without days and hours",
            "one of them, or no time_zone",
        );
    }

    if let (Some(from), Some(until)) = (strategy.valid_from, strategy.valid_until)
        && until <= from
    {
        let found = "is not after valid_from: the strategy never bids";
        d.mistake(&format!("{table}.valid_until"), found, "a later time");
    } else if !d.has_mistake(&zone) && strategy.schedule().is_some_and(|it| it.never_holds()) {
        let found = "comes before any of the days and hours: the strategy never bids";
        d.mistake(
            &format!("{table}.valid_until"),
            found,
            "a time after some of them",
        );
    }
}
