//! Origin of a generation: the report of its build, labels and inputs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::json::{is_zero, present};

/// Report of a build's input, and of its comparison with earlier generations. Readers ignore it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BuildReport {
    /// Name and version of the program that built it.
    pub tool: String,
    /// Rows read.
    pub rows: u64,
    /// Duplicate keys.
    pub duplicates: u64,
    /// Rows without a usable id.
    pub rejected: u64,
    /// The share of the devices of the generation before that stayed members, 0 to 1.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub overlap: Option<f64>,
    /// Keys of the generations before, newest first, up to [`BuildReport::MAX_RECENT`]: what the
    /// next build is compared with. They outlast a gc, and leave out generations that were rolled
    /// back from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recent_keys: Vec<u64>,
}

impl BuildReport {
    /// Most generations in `recent_keys`: with the live one they are the last seven.
    pub const MAX_RECENT: usize = 6;
}

/// Origin of a generation: labels, and inputs with their counts. Informational.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lineage {
    /// The operator's own facts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The inputs in their order, up to [`Lineage::MAX_INPUTS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<InputRecord>,
    /// Number of further inputs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_inputs: u64,
}

/// An input of a build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputRecord {
    /// Path or URL; `-` is stdin.
    pub name: String,
    /// Size as stored; absent for a stream.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub size_bytes: Option<u64>,
    /// Rows read.
    pub rows: u64,
    /// Usable ids, duplicates included.
    pub usable: u64,
    /// Values that mean "no id".
    pub blank: u64,
    /// Other values without a usable id.
    pub malformed: u64,
    /// Version or entity tag of an object, time of a file's last change; absent for a stream.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub version: Option<String>,
}

impl Lineage {
    /// Most inputs in a manifest.
    pub const MAX_INPUTS: usize = 1000;
}
