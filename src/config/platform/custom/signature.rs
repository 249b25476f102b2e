//! `[platform.signature]`: how a custom platform signs its requests.

use std::time::Duration;

use serde::Serialize;

use super::super::{SecretConfig, as_optional_duration, duration, read_secret};
use super::{Document, Section, optional, required, text};
use crate::config::sections::SECOND;
use crate::platform::custom::{Algorithm, HexCase, SignatureMapping, TimestampUnit};

/// `[platform.signature]`
#[derive(Debug, Clone, Serialize)]
pub(super) struct SignatureConfig {
    mode: &'static str,
    algorithm: &'static str,
    template: String,
    encoding: &'static str,
    #[serde(rename = "in")]
    source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<String>,
    timestamp_unit: &'static str,
    #[serde(serialize_with = "as_optional_duration", skip_serializing_if = "Option::is_none")]
    max_skew: Option<Duration>,
    secrets: Vec<SecretConfig>,
}

const DAY: Duration = Duration::from_secs(24 * 3600);
const SOURCE: &str = "body:PATH, header:NAME or query:NAME";

const ALGORITHMS: [(&str, Algorithm); 4] = [
    ("md5", Algorithm::Md5),
    ("sha1", Algorithm::Sha1),
    ("sha256", Algorithm::Sha256),
    ("hmac-sha256", Algorithm::HmacSha256),
];
const ENCODINGS: [(&str, HexCase); 2] = [("lower-hex", HexCase::Lower), ("upper-hex", HexCase::Upper)];
const UNITS: [(&str, TimestampUnit); 2] =
    [("ms", TimestampUnit::Milliseconds), ("s", TimestampUnit::Seconds)];

/// What a mode does with a wrong signature: nothing looks at it, it is counted, it is refused.
const MODES: [(&str, Option<bool>); 3] = [("enforce", Some(false)), ("observe", Some(true)), ("off", None)];

/// Reads the keys. There is no mapping if the mode is `off`.
pub(super) fn read(
    d: &mut Document<'_>,
    mut section: Section,
) -> Option<(SignatureConfig, Option<SignatureMapping>)> {
    let mode = section.read(d, "mode", "enforce, observe or off", |text| word(&MODES, text));
    let algorithm = section
        .read_required(d, "algorithm", "md5, sha1, sha256 or hmac-sha256", |text| word(&ALGORITHMS, text));
    let template = required(d, &mut section, "template", "such as {request_id}{request_time}{secret}");
    let encoding = section.read(d, "encoding", "lower-hex or upper-hex", |text| word(&ENCODINGS, text));
    let source = required(d, &mut section, "in", SOURCE);
    let timestamp = optional(d, &mut section, "timestamp", SOURCE);
    let unit = section.read(d, "timestamp_unit", "s or ms", |text| word(&UNITS, text));
    let max_skew =
        section.read(d, "max_skew", "a duration from 1s to 1d, such as 5m", duration(SECOND..=DAY));
    if section.had("timestamp") != section.had("max_skew") {
        let found = "has one of timestamp and max_skew";
        d.mistake(section.line(), section.path(), found, "both, or neither");
    }
    let example = "{ value = \"…\" } or { value_file = \"…\" }";
    let tables = section.sections(d, "secrets", example);
    if tables.is_empty() {
        d.mistake(section.line(), section.path(), "has no secrets", "secrets with at least one");
    }
    let mut secrets = Vec::with_capacity(tables.len());
    for mut table in tables {
        secrets.push(read_secret(d, &mut table));
        table.finish(d);
    }
    section.finish(d);
    let (mode, is_observed) = mode.unwrap_or(MODES[0]);
    let (algorithm, template, source) = (algorithm?, template?, source?);
    let (encoding, unit) = (encoding.unwrap_or(ENCODINGS[0]), unit.unwrap_or(UNITS[0]));
    let secrets = secrets.into_iter().collect::<Option<Vec<SecretConfig>>>()?;
    let config = SignatureConfig {
        mode,
        algorithm: algorithm.0,
        template: template.text.clone(),
        encoding: encoding.0,
        source: source.text.clone(),
        timestamp: text(timestamp.as_ref()),
        timestamp_unit: unit.0,
        max_skew,
        secrets: secrets.clone(),
    };
    let mapping = is_observed.map(|is_observed| SignatureMapping {
        is_observed,
        algorithm: algorithm.1,
        template,
        encoding: encoding.1,
        source,
        timestamp,
        timestamp_unit: unit.1,
        max_skew,
        secrets: secrets.into_iter().map(|secret| secret.secret).collect(),
    });
    Some((config, mapping))
}

/// The entry of a table by its word.
fn word<T: Copy>(table: &[(&'static str, T)], text: &str) -> Option<(&'static str, T)> {
    table.iter().find(|(word, _)| *word == text).copied()
}
