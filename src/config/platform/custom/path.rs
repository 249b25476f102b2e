//! Paths of field names.

use rtad_config::Named;
use rtad_config::values::named;
use serde::Deserializer;

/// A path of field names.
pub fn path<'de, D: Deserializer<'de>, T: From<Named>>(deserializer: D) -> Result<T, D::Error> {
    named(deserializer, "a path of field names, such as device.imei")
}
