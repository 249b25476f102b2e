//! `[[cap]]`: caps of the distinct devices that get bids.

use rtad_config::Document;
use rtad_config::values::{name, number};
use rtad_core::cap::MAX_DEVICES;
use rtad_core::period::{Calendar, PeriodUnit};
use rtad_core::snapshot::AudienceName;
use serde::{Deserialize, Serialize};

use super::condition::refuse_unknown;
use super::rules::StrategyConfig;
use super::zone::{ACCEPTED, optional_time_zone};

/// A cap of the distinct devices that get a bid of its strategies in a period.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct CapConfig {
    /// Name in `[[strategy]]`, in metrics and in the store.
    #[serde(deserialize_with = "name::<_, AudienceName, _>")]
    pub name: String,
    /// Most distinct devices that get a bid in a period, of all its strategies and all pods
    /// together. Takes 6 bytes of memory each, on each pod.
    #[serde(deserialize_with = "number::<_, _, 1, { MAX_DEVICES as i64 }>")]
    pub limit: u64,
    /// The period: each local day or hour counts anew.
    pub period: PeriodUnit,
    /// Time zone of the period. Unset = that of the file, one of which is needed.
    #[serde(default, deserialize_with = "optional_time_zone")]
    pub time_zone: Option<String>,
}

impl CapConfig {
    /// The time zone.
    ///
    /// # Panics
    ///
    /// If there is none. Reading a file sets it.
    pub fn zone(&self) -> &str {
        let zone = self.time_zone.as_deref();
        zone.expect("reading requires a time zone")
    }

    /// The periods.
    pub fn calendar(&self) -> Calendar {
        Calendar::new(self.period, Some(self.zone())).expect("reading checked the time zone")
    }
}

/// Checks the caps, and the strategies that share them.
pub fn check(
    d: &mut Document<'_>,
    caps: &mut [CapConfig],
    strategies: &[StrategyConfig],
    zone: Option<&String>,
) {
    d.refuse_duplicates("cap", "name");
    for (index, cap) in caps.iter_mut().enumerate() {
        let table = format!("cap[{index}]");
        cap.time_zone = cap.time_zone.take().or(zone.cloned());
        if cap.time_zone.is_none() {
            d.require(&format!("{table}.time_zone"), ACCEPTED);
        }
    }

    let names = d.texts("cap", "name");
    for (index, strategy) in strategies.iter().enumerate() {
        let Some(name) = &strategy.cap else {
            continue;
        };
        let key = format!("strategy[{index}].cap");
        refuse_unknown(d, &key, name, "caps", &names);

        // It would take devices from answers.
        let mut others = strategies.iter();
        let answering = others.find(|other| other.cap == strategy.cap && !other.shadow);
        if let Some(other) = answering
            && strategy.shadow
        {
            let found = format!("is shared by {}, which is not in shadow", other.name);
            d.mistake(&key, &found, "a cap of its own for a strategy in shadow");
        }
    }
}
