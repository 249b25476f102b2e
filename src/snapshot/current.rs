//! `CURRENT`: the one file that changes.

use serde::{Deserialize, Serialize};

use super::json::{
    MAX_CURRENT_BYTES, MAX_MANIFEST_BYTES, ManifestError, VERSION, at_most, check_envelope, from_json,
    to_json,
};
use super::name::Digest;

const FORMAT: &str = "rtad-current";

/// `CURRENT`: which generation is live.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Current {
    format: String,
    version: u32,
    /// Grows by one each time `CURRENT` is written, rollbacks included: tells a fresh copy from a stale one.
    pub sequence: u64,
    /// The live generation; at least 1.
    pub generation: u64,
    /// Size of its manifest.
    pub manifest_size_bytes: u64,
    /// Digest of its manifest.
    pub manifest_sha256: Digest,
    /// The highest generation that was live before an operator went back to this one: what a reader may still hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolled_back_from: Option<u64>,
}

impl Current {
    /// Points at a manifest's bytes.
    pub fn new(sequence: u64, generation: u64, manifest: &[u8], rolled_back_from: Option<u64>) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            sequence,
            generation,
            manifest_size_bytes: manifest.len() as u64,
            manifest_sha256: Digest::of(manifest),
            rolled_back_from,
        }
    }

    /// Reads `CURRENT`.
    ///
    /// # Errors
    ///
    /// [`ManifestError`] names the fault.
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        at_most("CURRENT", bytes.len() as u64, MAX_CURRENT_BYTES)?;
        check_envelope(bytes, FORMAT)?;
        let current: Self = from_json(bytes)?;
        at_most("the manifest", current.manifest_size_bytes, MAX_MANIFEST_BYTES)?;
        for (field, value) in [("sequence", current.sequence), ("generation", current.generation)] {
            if value == 0 {
                return Err(ManifestError::field(field, 0, "at least 1"));
            }
        }
        if let Some(from) = current.rolled_back_from
            && from <= current.generation
        {
            return Err(ManifestError::field(
                "rolled_back_from",
                from,
                "more than the generation rolled back to",
            ));
        }
        Ok(current)
    }

    /// The highest generation that any reader of it, or of one before it, may hold.
    pub fn highest_generation(&self) -> u64 {
        self.rolled_back_from.unwrap_or(self.generation)
    }

    /// The file's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        to_json(self)
    }
}
