//! Time zones: names of the IANA database.

use rtad_config::values::text;
use rtad_core::period::{Calendar, PeriodUnit};
use serde::Deserializer;

pub fn utc() -> String {
    "UTC".to_owned()
}

pub fn time_zone<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    text(
        deserializer,
        "a name of the IANA database, such as Asia/Shanghai",
        |text| {
            let calendar = Calendar::new(PeriodUnit::Day, Some(text)).ok()?;
            Some(calendar.zone_name().to_owned())
        },
    )
}
