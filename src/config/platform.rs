//! `[[platform]]`: who asks, at which path, in which protocol.

mod custom;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderName;
use serde::Serialize;

pub use custom::CustomConfig;

use super::as_optional_duration;
use super::reader::{Document, Section};
use super::sections::{NAME, SECOND, duplicates, duration};
use crate::platform::{
    Access, Adapter, CacheTimes, MAX_STRATEGIES, Ocean, Platform, Secret, StrategyIds, Tencent,
};
use crate::telemetry::Route;
use rtad_core::snapshot::AudienceName;

/// A platform that asks.
#[derive(Debug, Clone, Serialize)]
pub struct PlatformConfig {
    /// Its protocol.
    pub kind: PlatformKind,
    /// Its name in metrics, and for `explain`.
    pub name: String,
    /// The path of its requests on the decision port.
    pub path: String,
    /// How long it may keep an answer of at least one bid; unset leaves it to the platform.
    #[serde(serialize_with = "as_optional_duration", skip_serializing_if = "Option::is_none")]
    pub bid_cache: Option<Duration>,
    /// How long it may keep an answer without any.
    #[serde(serialize_with = "as_optional_duration", skip_serializing_if = "Option::is_none")]
    pub no_bid_cache: Option<Duration>,
    /// Headers of which any one lets a request in; none lets in all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<HeaderConfig>,
    /// The platform's own strategy ids, and the names of the strategies that they stand for.
    pub strategies: BTreeMap<String, String>,
    /// What a custom platform's bodies are.
    #[serde(flatten)]
    pub custom: Option<CustomConfig>,
    /// What all of this makes.
    #[serde(skip)]
    pub built: Arc<Platform>,
}

/// A platform's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PlatformKind {
    /// Tencent Ads.
    Tencent,
    /// Ocean Engine.
    Ocean,
    /// Any other, as it is mapped.
    Custom,
}

impl PlatformKind {
    fn named(name: &str) -> Option<Self> {
        match name {
            "tencent" => Some(Self::Tencent),
            "ocean" => Some(Self::Ocean),
            "custom" => Some(Self::Custom),
            _ => None,
        }
    }
}

/// A header that lets a request in. Its secret is printed as its file's name, or not at all.
#[derive(Debug, Clone, Serialize)]
pub struct HeaderConfig {
    /// Its name.
    pub name: String,
    /// `value` or `value_file`.
    #[serde(flatten)]
    pub value: SecretConfig,
}

/// A secret, written in the config or in a file of its own.
#[derive(Debug, Clone, Serialize)]
pub struct SecretConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_file: Option<String>,
    #[serde(skip)]
    secret: Secret,
}

/// Printed instead of a secret.
const REDACTED: &str = "<redacted>";

const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// Reads every `[[platform]]`. `strategies` are the names of `[[strategy]]`, in their order.
pub(super) fn read_all(d: &mut Document<'_>, strategies: &[String]) -> Vec<PlatformConfig> {
    let sections = d.sections("platform");
    let platforms: Vec<PlatformConfig> =
        sections.into_iter().filter_map(|section| read(d, section, strategies)).collect();
    duplicates(d, "platform", platforms.iter().map(|platform| platform.name.as_str()));
    duplicates(d, "platform.path", platforms.iter().map(|platform| platform.path.as_str()));
    platforms
}

fn read(d: &mut Document<'_>, mut section: Section, strategies: &[String]) -> Option<PlatformConfig> {
    let kind = section.read_required(d, "kind", "tencent, ocean or custom", PlatformKind::named);
    let name = section.read_required(d, "name", &format!("{NAME}; not a name of rtad's own routes"), name);
    let path = section.read_required(d, "path", "a path such as /rta/tencent, not under /v1", path);
    let time = "a duration from 1s to 7d, such as 1h";
    let bid_cache = section.read(d, "bid_cache", time, duration(SECOND..=WEEK));
    let no_bid_cache = section.read(d, "no_bid_cache", time, duration(SECOND..=WEEK));
    let example = "{ name = \"X-Rta-Token\", value_file = \"/etc/rtad/token\" }";
    let headers = section.sections(d, "headers", example);
    let headers: Vec<(HeaderName, HeaderConfig)> =
        headers.into_iter().filter_map(|header| read_header(d, header)).collect();
    // Without a known kind nothing can be said of ids; without ids, of nothing else.
    let kind = kind?;
    let ids = read_strategies(d, &mut section, kind, strategies);
    let custom = if kind == PlatformKind::Custom { custom::read(d, &mut section) } else { None };
    section.finish(d);
    let seconds = |time: Option<Duration>| time.map(|time| u32::try_from(time.as_secs()).unwrap_or(u32::MAX));
    let cache = CacheTimes { bid: seconds(bid_cache), no_bid: seconds(no_bid_cache) };
    let adapter = match kind {
        PlatformKind::Tencent => {
            let id = |(id, place): &(String, usize)| (Bytes::from(id.clone().into_bytes()), *place);
            Adapter::Tencent(Tencent::new(StrategyIds::new(ids.iter().map(id).collect()), cache))
        }
        PlatformKind::Ocean => {
            let id = |(id, place): &(String, usize)| Some((id.parse().ok()?, *place));
            Adapter::Ocean(Ocean::new(StrategyIds::new(ids.iter().filter_map(id).collect()), cache))
        }
        PlatformKind::Custom => {
            let id = |(id, place): &(String, usize)| (Bytes::from(id.clone().into_bytes()), *place);
            let ids = StrategyIds::new(ids.iter().map(id).collect());
            let (_, mapping) = custom.as_ref()?;
            Adapter::Custom(Box::new(custom::build(d, mapping, ids, cache)?))
        }
    };
    let access = headers.iter().map(|(name, header)| (name.clone(), header.value.secret.clone())).collect();
    let (name, path) = (name?, path?);
    let platform =
        Platform { name: name.clone(), path: path.clone(), access: Access::any_of(access), adapter };
    Some(PlatformConfig {
        kind,
        name,
        path,
        bid_cache,
        no_bid_cache,
        headers: headers.into_iter().map(|(_, header)| header).collect(),
        strategies: ids.into_iter().map(|(id, place)| (id, strategies[place].clone())).collect(),
        custom: custom.map(|(config, _)| config),
        built: Arc::new(platform),
    })
}

/// The name is a label beside those of rtad's own routes.
fn name(text: &str) -> Option<String> {
    let is_taken = text == "api" || Route::ALL.iter().any(|route| route.as_str() == text);
    text.parse().ok().filter(|_| !is_taken).map(|name: AudienceName| name.into())
}

fn path(text: &str) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
    let is_ours = text == "/" || text == "/v1" || text.starts_with("/v1/");
    (text.starts_with('/') && !is_ours && text.len() <= 256 && text.bytes().all(is_plain))
        .then(|| text.to_owned())
}

fn read_strategies(
    d: &mut Document<'_>,
    section: &mut Section,
    kind: PlatformKind,
    strategies: &[String],
) -> Vec<(String, usize)> {
    let id = match kind {
        PlatformKind::Tencent => "1 to 32 visible characters",
        PlatformKind::Ocean => "a whole number",
        PlatformKind::Custom => "1 to 128 visible characters",
    };
    let accepted = format!(
        "{{ \"id of the platform\" = \"strategy\" }} with an id of {id} and one of the strategies {}",
        strategies.join(", ")
    );
    let (line, path) = (section.line(), format!("{}.strategies", section.path()));
    let Some(table) = section.section(d, "strategies", &accepted) else {
        if !section.had("strategies") {
            d.mistake(line, &path, "is missing", &accepted);
        }
        return Vec::new();
    };
    let is_id = |id: &str| match kind {
        PlatformKind::Tencent => {
            (1..=32).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
        }
        PlatformKind::Custom => {
            (1..=128).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
        }
        // Written as a number is written, so that no two spellings are one id.
        PlatformKind::Ocean => id.parse::<i64>().is_ok_and(|number| number.to_string() == id),
    };
    let line = table.line();
    if table.is_empty() {
        d.mistake(line, &path, "is empty", &accepted);
    }
    let mut ids = table.read_map(d, &accepted, |id, strategy| {
        let place = strategies.iter().position(|name| name == strategy)?;
        is_id(id).then(|| (id.to_owned(), place))
    });
    if ids.len() > MAX_STRATEGIES {
        d.mistake(line, &path, &format!("has {} ids", ids.len()), &format!("{MAX_STRATEGIES} at most"));
        ids.truncate(MAX_STRATEGIES);
    }
    ids
}

fn read_header(d: &mut Document<'_>, mut section: Section) -> Option<(HeaderName, HeaderConfig)> {
    let parsed =
        |text: &str| HeaderName::from_bytes(text.as_bytes()).ok().map(|name| (text.to_owned(), name));
    let name = section.read_required(d, "name", "a header's name, such as X-Rta-Token", parsed);
    let value = read_secret(d, &mut section);
    section.finish(d);
    let (written, name) = name?;
    Some((name, HeaderConfig { name: written, value: value? }))
}

/// Reads `value` or `value_file`. What a secret is, no message says.
pub(super) fn read_secret(d: &mut Document<'_>, section: &mut Section) -> Option<SecretConfig> {
    const ACCEPTED: &str = "value, or value_file with a path, of which the line end is left out";
    let (line, path) = (section.line(), section.path().to_owned());
    let value = section.read(d, "value", ACCEPTED, |text| Some(text.to_owned()));
    let file = section.read(d, "value_file", ACCEPTED, |text| Some(text.to_owned()));
    let secret = match (value, &file) {
        (Some(value), None) => value.into_bytes(),
        (None, Some(file)) => {
            let place = d.beside(file);
            match std::fs::read(&place) {
                Ok(text) => {
                    d.saw(&text);
                    text.trim_ascii_end().to_vec()
                }
                Err(error) => {
                    let found = format!("is {:?}: {error}", place.display().to_string());
                    d.mistake(line, &format!("{path}.value_file"), &found, "a file that can be read");
                    return None;
                }
            }
        }
        (None, None) if section.had("value") || section.had("value_file") => return None,
        _ => {
            d.mistake(line, &path, "does not say its value once", ACCEPTED);
            return None;
        }
    };
    if secret == REDACTED.as_bytes() {
        d.mistake(line, &path, "is redacted: this is what check-config prints", "the secret itself");
        return None;
    }
    if secret.is_empty() || !secret.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ') {
        d.mistake(line, &path, "has a secret that is empty or not printable ASCII", "one that is");
        return None;
    }
    let value = file.is_none().then_some(REDACTED);
    Some(SecretConfig { value, value_file: file, secret: Secret::new(secret) })
}

#[cfg(test)]
mod tests;
