//! `[platform.signature]`: signatures of a custom platform's requests.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::mistake::Named;
use crate::config::reader::{Document, Section};
use crate::config::secret::{self, SecretConfig};
use crate::config::values::{DAY, SECOND, as_optional_duration, duration, word};

/// `[platform.signature]`
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct SignatureConfig {
    /// Handling of a wrong signature: `enforce` rejects the request, `observe` counts it, `off`
    /// checks nothing.
    pub mode: SignatureMode,
    /// Digest of the signed text.
    pub algorithm: Algorithm,
    /// Signed text, with placeholders.
    pub template: Named,
    /// Case of the hex digits of the digest.
    pub encoding: HexCase,
    /// Location of the signature in the request.
    #[serde(rename = "in")]
    pub source: Named,
    /// Location of the time in the request. Requires `max_skew`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Named>,
    /// Unit of the time since 1970.
    pub timestamp_unit: TimestampUnit,
    /// Largest difference between the time and the clock. Requires `timestamp`.
    #[serde(serialize_with = "as_optional_duration", skip_serializing_if = "Option::is_none")]
    pub max_skew: Option<Duration>,
    /// Accepted secrets: a signature with any of them is valid, see `platform.signature.secrets`.
    pub secrets: Vec<SecretConfig>,
}

/// Handling of a wrong signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SignatureMode {
    /// The request is rejected.
    Enforce,
    /// The failure is counted, and the request is answered.
    Observe,
    /// Signatures are not checked.
    Off,
}

/// Digest of the signed text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Algorithm {
    /// MD5 of the text.
    #[serde(rename = "md5")]
    Md5,
    /// SHA-1 of the text.
    #[serde(rename = "sha1")]
    Sha1,
    /// SHA-256 of the text.
    #[serde(rename = "sha256")]
    Sha256,
    /// HMAC-SHA-256 of the text, keyed with the secret.
    #[serde(rename = "hmac-sha256")]
    HmacSha256,
}

/// The case of a digest's hex digits. The other case is a wrong signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HexCase {
    /// `0a1b`
    #[serde(rename = "lower-hex")]
    Lower,
    /// `0A1B`
    #[serde(rename = "upper-hex")]
    Upper,
}

/// Unit of a Unix timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimestampUnit {
    /// Seconds.
    #[serde(rename = "s")]
    Seconds,
    /// Milliseconds.
    #[serde(rename = "ms")]
    Milliseconds,
}

const SOURCE: &str = "body:PATH, header:NAME or query:NAME";

/// Reads the keys; `None` after a mistake.
pub(super) fn read(d: &mut Document<'_>, mut section: Section) -> Option<SignatureConfig> {
    let mode = section.read(d, "mode", "enforce, observe or off", word);
    let algorithm = section.read_required(d, "algorithm", "md5, sha1, sha256 or hmac-sha256", word);
    let example = "such as {request_id}{request_time}{secret}";
    let template = section.read_required_named(d, "template", example);
    let encoding = section.read(d, "encoding", "lower-hex or upper-hex", word);
    let source = section.read_required_named(d, "in", SOURCE);
    let timestamp = section.read_named(d, "timestamp", SOURCE);
    let unit = section.read(d, "timestamp_unit", "s or ms", word);
    let max_skew =
        section.read(d, "max_skew", "a duration from 1s to 1d, such as 5m", duration(SECOND..=DAY));
    if section.had("timestamp") != section.had("max_skew") {
        let found = "has one of timestamp and max_skew";
        d.mistake(section.line(), section.path(), found, "both, or neither");
    }
    let tables = section.sections(d, "secrets", "{ value = \"…\" } or { value_file = \"…\" }");
    if tables.is_empty() {
        d.mistake(section.line(), section.path(), "has no secrets", "secrets with at least one");
    }
    let mut secrets = Vec::with_capacity(tables.len());
    for mut table in tables {
        secrets.push(secret::read(d, &mut table));
        table.finish(d);
    }
    section.finish(d);
    Some(SignatureConfig {
        mode: mode.unwrap_or(SignatureMode::Enforce),
        algorithm: algorithm?,
        template: template?,
        encoding: encoding.unwrap_or(HexCase::Lower),
        source: source?,
        timestamp,
        timestamp_unit: unit.unwrap_or(TimestampUnit::Milliseconds),
        max_skew,
        secrets: secrets.into_iter().collect::<Option<_>>()?,
    })
}
