//! `[ids]`, `[[audience]]` and `[[strategy]]`: the rules of decisions.

use std::time::Duration;

use rtad_core::cap::MAX_DEVICES;
use rtad_core::period::{Calendar, PeriodUnit};
use rtad_core::snapshot::AudienceName;
use serde::Serialize;

use super::reader::{Document, Section};
use super::values::{DAY, NAME, SECOND, as_optional_duration, duplicates, duration, word};
use crate::strategy::Outcome;

/// Device ids.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct IdsConfig {
    /// Raw ids that stand for "no id", in addition to the built-in ones.
    pub blank: Vec<String>,
}

/// A served audience.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct AudienceConfig {
    /// Name of the audience in the store.
    pub name: AudienceName,
    /// Makes readiness of the pod wait until this audience is loaded.
    pub required: bool,
    /// Age from which the snapshot counts as unavailable, checked every second; unset = never.
    #[serde(serialize_with = "as_optional_duration", skip_serializing_if = "Option::is_none")]
    pub max_age: Option<Duration>,
}

/// A rule over audiences.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct StrategyConfig {
    /// Name of the strategy in `/v1/decide`, in metrics and in `[[platform]]`.
    pub name: String,
    /// Audiences whose members get no bid. A strategy needs `exclude`, `include` or both.
    pub exclude: Vec<AudienceName>,
    /// Audiences whose members get a bid: a device must be in at least one. Empty = every device.
    pub include: Vec<AudienceName>,
    /// Decision for a request without a usable id.
    pub no_device: Outcome,
    /// Decision if a needed audience is missing or too old, or the service is overloaded.
    pub unavailable: Outcome,
    /// Cap of the distinct devices that get a bid; see `[strategy.cap]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<CapConfig>,
}

/// A cap of the distinct devices that get a strategy's bid in a period.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct CapConfig {
    /// Most distinct devices that get a bid in a period. Takes 6 bytes of memory each.
    pub unique_devices: u64,
    /// The period: each local day or hour counts anew.
    pub per: PeriodUnit,
    /// Time zone of the period, from the IANA database in rtad itself.
    pub time_zone: String,
    /// This pod's share of the cap: with four pods behind a balancer 0.25. Rounded down to whole
    /// devices, at least one. Unset with `leased`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Whether the pods lease their parts of the cap from `[cap_leases]`, in place of a share. Each
    /// pod takes memory for the whole cap.
    pub leased: bool,
}

impl CapConfig {
    /// Most devices of this pod in a period: its share, or all if it leases them.
    pub fn capacity(&self) -> u64 {
        // A share such as 0.29 is slightly less as a float.
        let part = |share| (self.unique_devices as f64 * share + 1e-6) as u64;
        self.share.map_or(self.unique_devices, part).max(1)
    }

    /// The periods.
    pub fn calendar(&self) -> Calendar {
        Calendar::new(self.per, Some(&self.time_zone)).expect("reading checked the time zone")
    }
}

const YEAR: Duration = DAY.saturating_mul(365);
const OUTCOME: &str = "bid or no_bid";

pub(super) fn read_ids(d: &mut Document<'_>) -> IdsConfig {
    let mut section = d.section("ids");
    let blank = section.read_list(d, "blank", "a list of strings", |text| Some(text.to_owned()));
    section.finish(d);
    IdsConfig { blank }
}

/// The audiences, and all their names, including invalid ones: an invalid name is one mistake, not
/// another one per strategy that uses it.
pub(super) fn read_audiences(d: &mut Document<'_>) -> (Vec<AudienceConfig>, Vec<String>) {
    let sections = d.sections("audience");
    let named =
        sections.iter().filter_map(|section| section.text("name").map(str::to_owned)).collect();
    let audiences: Vec<AudienceConfig> =
        sections.into_iter().filter_map(|section| read_audience(d, section)).collect();
    (audiences, named)
}

/// The strategies, and all their names, including those with mistakes.
pub(super) fn read_strategies(
    d: &mut Document<'_>,
    audiences: &[String],
) -> (Vec<StrategyConfig>, Vec<String>) {
    let sections = d.sections("strategy");
    let named = sections
        .iter()
        .map(|section| section.text("name").unwrap_or_default().to_owned())
        .collect();
    let strategies =
        sections.into_iter().filter_map(|section| read_strategy(d, section, audiences)).collect();
    (strategies, named)
}

/// Records caps that are leased without a server.
pub(super) fn check_leases(d: &mut Document<'_>, strategies: &[StrategyConfig], has_leases: bool) {
    let is_leased =
        |strategy: &&StrategyConfig| strategy.cap.as_ref().is_some_and(|cap| cap.leased);
    if let Some(strategy) = strategies.iter().find(is_leased)
        && !has_leases
    {
        let key = format!("strategy {:?}: cap.leased", strategy.name);
        d.mistake(None, &key, "is true without a server", "[cap_leases] with a backend");
    }
}

/// Records duplicate names.
pub(super) fn check_names(
    d: &mut Document<'_>,
    audiences: &[AudienceConfig],
    strategies: &[StrategyConfig],
) {
    duplicates(d, "audience", audiences.iter().map(|audience| audience.name.as_str()));
    duplicates(d, "strategy", strategies.iter().map(|strategy| strategy.name.as_str()));
}

fn read_audience(d: &mut Document<'_>, mut section: Section) -> Option<AudienceConfig> {
    let name = section.read_required(d, "name", NAME, |text| text.parse().ok());
    let required =
        section.read(d, "required", "true or false", |text| text.parse().ok()).unwrap_or(true);
    let max_age = section.read(
        d,
        "max_age",
        "a duration from 1s to 365d, such as 48h",
        duration(SECOND..=YEAR),
    );
    section.finish(d);
    Some(AudienceConfig { name: name?, required, max_age })
}

fn read_strategy(
    d: &mut Document<'_>,
    mut section: Section,
    audiences: &[String],
) -> Option<StrategyConfig> {
    let accepted = format!("a list of audiences of this file: {}", audiences.join(", "));
    let audience =
        |text: &str| audiences.iter().any(|name| name == text).then(|| text.parse().ok());
    let name = section.read_required(d, "name", NAME, |text| {
        text.parse().ok().map(|name: AudienceName| name.into())
    });
    let exclude: Vec<AudienceName> =
        section.read_list(d, "exclude", &accepted, audience).into_iter().flatten().collect();
    let include: Vec<AudienceName> =
        section.read_list(d, "include", &accepted, audience).into_iter().flatten().collect();
    if !section.had("exclude") && !section.had("include") {
        let accepted = "exclude or include with at least one";
        d.mistake(section.line(), section.path(), "names no audience", accepted);
    }
    let outcome = |text: &str| text.parse().ok();
    let no_device = section.read(d, "no_device", OUTCOME, outcome).unwrap_or(Outcome::NoBid);
    let unavailable = section.read(d, "unavailable", OUTCOME, outcome).unwrap_or(Outcome::NoBid);
    let cap = section.section(d, "cap", "a table with unique_devices and per");
    let cap = cap.and_then(|section| read_cap(d, section));
    section.finish(d);
    Some(StrategyConfig { name: name?, exclude, include, no_device, unavailable, cap })
}

fn read_cap(d: &mut Document<'_>, mut section: Section) -> Option<CapConfig> {
    let accepted = "a number from 1 to 1000000000";
    let unique_devices = section.read_required(d, "unique_devices", accepted, |text| {
        text.parse().ok().filter(|devices| (1..=MAX_DEVICES).contains(devices))
    });
    let per = section.read_required(d, "per", "hour or day", word);
    let zone = |text: &str| {
        let calendar = Calendar::new(PeriodUnit::Day, Some(text)).ok()?;
        Some(calendar.zone_name().to_owned())
    };
    let accepted = "a name of the IANA database, such as Asia/Shanghai";
    let time_zone = section.read(d, "time_zone", accepted, zone).unwrap_or("UTC".to_owned());
    let accepted = "a number over 0, up to 1";
    let share = section.read(d, "share", accepted, |text| {
        text.parse().ok().filter(|share: &f64| *share > 0.0 && *share <= 1.0)
    });
    let leased = section.read(d, "leased", "true or false", |text| text.parse().ok());
    let leased = leased.unwrap_or(false);
    if leased && share.is_some() {
        let line = section.line_of("share");
        let share = format!("{}.share", section.path());
        d.mistake(line, &share, "is beside leased = true", "one of share and leased");
    }
    section.finish(d);
    let share = (!leased).then(|| share.unwrap_or(1.0));
    Some(CapConfig { unique_devices: unique_devices?, per: per?, time_zone, share, leased })
}
