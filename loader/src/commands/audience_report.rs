//! Facts of a generation and of its deltas, for reports.

use indicatif::HumanCount;
use serde::Serialize;

use rtad_core::clock::now_unix_seconds;
use rtad_core::snapshot::{Current, DeltaEntry, FillRatio, Manifest};

#[derive(Debug, Serialize)]
pub(super) struct GenerationReport {
    pub(super) created_unix_seconds: u64,
    pub(super) age_seconds: u64,
    pub(super) keys: u64,
    pub(super) size_bytes: u64,
    pub(super) filter: &'static str,
    pub(super) target_fpr: f64,
    pub(super) expected_fpr: f64,
}

impl GenerationReport {
    pub(super) fn of(manifest: &Manifest) -> Self {
        Self {
            created_unix_seconds: manifest.created_unix_seconds(),
            age_seconds: now_unix_seconds().saturating_sub(manifest.created_unix_seconds()),
            keys: manifest.keys(),
            size_bytes: manifest.size_bytes(),
            filter: manifest.filter().kind().as_str(),
            target_fpr: manifest.target_fpr(),
            expected_fpr: manifest.expected_fpr(),
        }
    }
}

/// Kind and figures of a generation's filters.
#[derive(Debug, Serialize)]
pub(super) struct FilterReport {
    pub(super) filter: &'static str,
    pub(super) hashes: u32,
    pub(super) millibits_per_key: u32,
    pub(super) target_fpr: f64,
    pub(super) expected_fpr: f64,
    /// The fill of Bloom filters.
    #[serde(skip_serializing_if = "Option::is_none")]
    fill_ratio: Option<FillRatio>,
    /// Keys outside the first tier of ribbon filters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) diverted_keys: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) listed_keys: Option<u64>,
}

impl FilterReport {
    pub(super) fn of(manifest: &Manifest) -> Self {
        let (spec, ribbon) = (manifest.filter(), manifest.diverted_and_listed_keys());
        Self {
            filter: spec.kind().as_str(),
            hashes: spec.hashes(),
            millibits_per_key: spec.millibits_per_key(),
            target_fpr: manifest.target_fpr(),
            expected_fpr: manifest.expected_fpr(),
            fill_ratio: manifest.fill_ratio(),
            diverted_keys: ribbon.map(|(diverted, _)| diverted),
            listed_keys: ribbon.map(|(_, listed)| listed),
        }
    }
}

/// Deltas and state of the live generation.
#[derive(Debug, Serialize)]
pub(super) struct DeltaReport {
    sequence: u64,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_unix_seconds: Option<u64>,
    deltas: usize,
    added: u64,
    removed: u64,
    tombstones: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    appended_unix_seconds: Option<u64>,
}

impl DeltaReport {
    pub(super) fn of(current: &Current) -> Self {
        let sum = |count: fn(&DeltaEntry) -> u64| current.deltas.iter().map(count).sum();
        Self {
            sequence: current.sequence,
            state: current.state.as_str(),
            expires_unix_seconds: current.expires_unix_seconds,
            deltas: current.deltas.len(),
            added: sum(|entry| entry.added),
            removed: sum(|entry| entry.removed),
            tombstones: current.tombstones.as_ref().map_or(0, |entry| entry.removed),
            appended_unix_seconds: current.appended_unix_seconds,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.deltas == 0
            && self.tombstones == 0
            && self.state == "live"
            && self.expires_unix_seconds.is_none()
    }

    pub(super) fn text(&self) -> String {
        let Self { deltas, added, removed, tombstones, state, .. } = self;
        let expiry = self
            .expires_unix_seconds
            .map(|end| format!(", expires at {end} (seconds since 1970 UTC)"));
        format!(
            "{} added and {} removed by {deltas} deltas, {} tombstones, {state}{}",
            HumanCount(*added),
            HumanCount(*removed),
            HumanCount(*tombstones),
            expiry.unwrap_or_default()
        )
    }
}
