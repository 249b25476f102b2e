//! Time zones of schedules and caps.

use rtad_config::values::text;
use rtad_core::period::{Calendar, PeriodUnit};
use serde::Deserializer;

/// A time zone, in the spelling of the database.
pub fn time_zone<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let accepted = "a name of the IANA database, such as Asia/Shanghai";
    text(deserializer, accepted, |text| {
        let calendar = Calendar::new(PeriodUnit::Day, Some(text)).ok()?;
        Some(calendar.zone_name().to_owned())
    })
}

/// An optional [`time_zone`].
pub fn optional_time_zone<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    time_zone(deserializer).map(Some)
}
