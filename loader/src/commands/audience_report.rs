//! Facts of a generation and of its deltas, for reports.

use indicatif::HumanCount;
use serde::Serialize;

use super::lineage_args::rfc3339;

use rtad_core::snapshot::{DeltaReport, FillRatio, Manifest};

/// Kind and figures of a generation's filters.
#[derive(Debug, Serialize)]
pub struct FilterReport {
    pub filter: &'static str,
    pub hashes: u32,
    pub millibits_per_key: u32,
    /// Bits of each key's value; absent if keys have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_bits: Option<u32>,
    pub target_fpr: f64,
    pub expected_fpr: f64,
    /// The fill of Bloom filters.
    #[serde(skip_serializing_if = "Option::is_none")]
    fill_ratio: Option<FillRatio>,
    /// Keys outside the first tier of ribbon filters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diverted_keys: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listed_keys: Option<u64>,
}

impl FilterReport {
    pub fn of(manifest: &Manifest) -> Self {
        let spec = manifest.filter();
        let ribbon = manifest.diverted_and_listed_keys();
        Self {
            filter: spec.kind().as_str(),
            hashes: spec.hashes(),
            millibits_per_key: spec.millibits_per_key(),
            value_bits: (spec.value_bits() > 0).then_some(spec.value_bits()),
            target_fpr: manifest.target_fpr(),
            expected_fpr: manifest.expected_fpr(),
            fill_ratio: manifest.fill_ratio(),
            diverted_keys: ribbon.map(|(diverted, _)| diverted),
            listed_keys: ribbon.map(|(_, listed)| listed),
        }
    }
}

/// The deltas and the state of a live generation, as text.
pub fn delta_text(report: &DeltaReport) -> String {
    let DeltaReport {
        deltas,
        added,
        removed,
        tombstones,
        state,
        ..
    } = report;

    let expiry = report
        .expires_unix_seconds
        .map(|end| format!(", expires at {}", rfc3339(end)));
    format!(
        "{} added and {} removed by {deltas} deltas, {} tombstones, {state}{}",
        HumanCount(*added),
        HumanCount(*removed),
        HumanCount(*tombstones),
        expiry.unwrap_or_default()
    )
}
