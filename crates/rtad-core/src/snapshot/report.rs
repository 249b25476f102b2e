//! Facts of a generation and of its deltas, as JSON shows them.

use serde::Serialize;

use super::{Current, Manifest};
use crate::clock::now_unix_seconds;

/// Facts of a generation.
#[derive(Debug, Serialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct GenerationReport {
    pub created_unix_seconds: u64,
    pub age_seconds: u64,
    pub keys: u64,
    pub size_bytes: u64,
    pub filter: &'static str,
    pub target_fpr: f64,
    pub expected_fpr: f64,
}

impl GenerationReport {
    /// Facts of the generation with this manifest, now.
    pub fn of(manifest: &Manifest) -> Self {
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

/// Deltas and state of the live generation.
#[derive(Debug, Serialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct DeltaReport {
    pub sequence: u64,
    pub state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_unix_seconds: Option<u64>,
    pub deltas: usize,
    pub added: u64,
    pub removed: u64,
    pub tombstones: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub appended_unix_seconds: Option<u64>,
}

impl DeltaReport {
    /// Facts of a record.
    pub fn of(current: &Current) -> Self {
        let mut added = 0;
        let mut removed = 0;
        for delta in &current.deltas {
            added += delta.added;
            removed += delta.removed;
        }

        Self {
            sequence: current.sequence,
            state: current.state.as_str(),
            expires_unix_seconds: current.expires_unix_seconds,
            deltas: current.deltas.len(),
            added,
            removed,
            tombstones: current.tombstones.as_ref().map_or(0, |entry| entry.removed),
            appended_unix_seconds: current.appended_unix_seconds,
        }
    }

    /// Whether the generation is served as it was built.
    pub fn is_empty(&self) -> bool {
        self.deltas == 0
            && self.tombstones == 0
            && self.state == "live"
            && self.expires_unix_seconds.is_none()
    }
}
