//! `[ids]`, `[[audience]]` and `[[strategy]]`: the rules of decisions.

use std::time::Duration;

use rtad_config::Document;
use rtad_config::values::{DAY, SECOND, as_optional_time, name, number, time};
use rtad_core::cap::MAX_DEVICES;
use rtad_core::period::{Calendar, PeriodUnit};
use rtad_core::snapshot::AudienceName;
use serde::{Deserialize, Deserializer, Serialize};

use super::zone::{time_zone, utc};
use crate::strategy::Outcome;

/// Device ids.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
#[serde(default)]
pub struct IdsConfig {
    /// Raw ids that stand for "no id", in addition to the built-in ones.
    pub blank: Vec<String>,
}

/// A served audience.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct StrategyConfig {
    /// Name of the strategy in `/v1/decide`, in metrics and in `[[platform]]`.
    #[serde(deserialize_with = "name::<_, AudienceName, _>")]
    pub name: String,
    /// Audiences whose members get no bid. A strategy needs `exclude`, `include` or both.
    #[serde(default)]
    pub exclude: Vec<AudienceName>,
    /// Audiences whose members get a bid: a device must be in at least one. Empty = every device.
    #[serde(default)]
    pub include: Vec<AudienceName>,
    /// Decision for a request without a usable id.
    #[serde(default = "no_bid")]
    pub no_device: Outcome,
    /// Decision if a needed audience is missing or too old, or the service is overloaded.
    #[serde(default = "no_bid")]
    pub unavailable: Outcome,
    /// Cap of the distinct devices that get a bid; see `[strategy.cap]`.
    pub cap: Option<CapConfig>,
}

/// A cap of the distinct devices that get a strategy's bid in a period.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct CapConfig {
    /// Most distinct devices that get a bid in a period. Takes 6 bytes of memory each.
    #[serde(deserialize_with = "number::<_, _, 1, { MAX_DEVICES as i64 }>")]
    pub unique_devices: u64,
    /// The period: each local day or hour counts anew.
    pub per: PeriodUnit,
    /// Time zone of the period, from the IANA database in rtad itself.
    #[serde(default = "utc", deserialize_with = "time_zone")]
    pub time_zone: String,
    /// This pod's share of the cap: with four pods behind a balancer 0.25. Rounded down to whole
    /// devices, at least one. Unset with `leased`.
    #[serde(default, deserialize_with = "share")]
    pub share: Option<f64>,
    /// Whether the pods lease their parts of the cap from `[cap_leases]`, in place of a share. Each
    /// pod takes memory for the whole cap.
    #[serde(default)]
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

const fn always() -> bool {
    true
}

const fn no_bid() -> Outcome {
    Outcome::NoBid
}

fn share<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let share = f64::deserialize(deserializer).ok();
    let share = share.filter(|share| *share > 0.0 && *share <= 1.0);
    share.map(Some).ok_or_else(|| serde::de::Error::custom("a number over 0, up to 1"))
}

/// Checks the audiences and the strategies that use them.
pub(super) fn check(d: &mut Document<'_>, strategies: &mut [StrategyConfig], has_leases: bool) {
    d.refuse_duplicates("audience", "name");
    d.refuse_duplicates("strategy", "name");
    // Invalid names too: such a name is one mistake, not another one per strategy that uses it.
    let audiences = d.texts("audience", "name");
    for (index, strategy) in strategies.iter_mut().enumerate() {
        let table = format!("strategy[{index}]");
        let accepted = format!("audiences of this file: {}", audiences.join(", "));
        for (key, names) in [("exclude", &strategy.exclude), ("include", &strategy.include)] {
            for (index, name) in names.iter().enumerate() {
                if !audiences.iter().any(|audience| audience == name.as_str()) {
                    d.reject(&format!("{table}.{key}[{index}]"), &accepted);
                }
            }
        }
        if strategy.exclude.is_empty() && strategy.include.is_empty() {
            d.mistake(&table, "names no audience", "exclude or include with at least one");
        }
        let Some(cap) = &mut strategy.cap else { continue };
        match (cap.leased, cap.share) {
            (true, Some(_)) => {
                let key = format!("{table}.cap.share");
                d.mistake(&key, "is beside leased = true", "one of share and leased");
            }
            (true, None) if !has_leases => {
                let key = format!("{table}.cap.leased");
                d.mistake(&key, "is true without a server", "[cap_leases] with a backend");
            }
            (true, None) => {}
            (false, share) => cap.share = Some(share.unwrap_or(1.0)),
        }
    }
}
