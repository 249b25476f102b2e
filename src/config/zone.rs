//! Time zones of schedules and caps.

use rtad_config::values::text;
use rtad_core::period::{Calendar, PeriodUnit};
use serde::Deserializer;

/// The accepted values where a zone is needed.
pub const ACCEPTED: &str = "a name of the IANA database, such as Asia/Shanghai, here or before all \
                            tables, for the whole file";

fn time_zone<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let accepted = "a name of the IANA database, such as Asia/Shanghai";
    text(deserializer, accepted, |text| {
        let calendar = Calendar::new(PeriodUnit::Day, Some(text)).ok()?;
        Some(calendar.zone_name().to_owned())
    })
}

/// A time zone, in the spelling of the database.
pub fn optional_time_zone<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    time_zone(deserializer).map(Some)
}
