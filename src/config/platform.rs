//! `[[platform]]`: an ad platform, its path and its protocol.
//!
//! The kinds of protocols and their rules come from a [`Vocabulary`].

mod custom;

use std::collections::BTreeMap;
use std::time::Duration;

use http::HeaderName;
use rtad_core::snapshot::AudienceName;
use serde::Serialize;

pub use custom::{
    Algorithm, Body, CodeConfig, CustomConfig, HexCase, IdListConfig, RequestConfig,
    ResponseConfig, SignatureConfig, SignatureMode, StrategiesAs, TimestampUnit, VerdictsConfig,
};

use super::reader::{Document, Section};
use super::secret::{self, SecretConfig};
use super::values::{DAY, NAME, SECOND, as_optional_duration, duplicates, duration};

/// Largest number of strategy ids of a platform.
pub const MAX_STRATEGIES: usize = 64;

/// Words of the config that other modules define.
#[derive(Debug, Clone, Copy)]
pub struct Vocabulary<'a> {
    /// The kinds of platforms.
    pub kinds: &'a [KindRules],
    /// Names that no platform may have, as metrics use them.
    pub reserved_names: &'a [&'a str],
}

/// The config rules of a kind of platform.
#[derive(Debug, Clone, Copy)]
pub struct KindRules {
    /// The value of `kind`.
    pub word: &'static str,
    /// Description of its strategy ids.
    pub strategy_id: &'static str,
    /// Whether a text is a valid strategy id.
    pub is_strategy_id: fn(&str) -> bool,
    /// Whether [`CustomConfig`] maps its bodies.
    pub is_mapped: bool,
}

/// An ad platform.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct PlatformConfig {
    /// Protocol of the platform.
    pub kind: &'static str,
    /// Name in metrics, in `rtad explain` and in `/v1/explain/{platform}`.
    pub name: String,
    /// Path of its requests on the decision port.
    pub path: String,
    /// Time for which the platform may cache an answer with a bid; unset = the platform decides.
    #[serde(serialize_with = "as_optional_duration", skip_serializing_if = "Option::is_none")]
    pub bid_cache: Option<Duration>,
    /// Time for which the platform may cache an answer without a bid; unset = the platform decides.
    #[serde(serialize_with = "as_optional_duration", skip_serializing_if = "Option::is_none")]
    pub no_bid_cache: Option<Duration>,
    /// Headers that admit a request. Any one of them is enough; none = every request is admitted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<HeaderConfig>,
    /// Mapping from the platform's strategy ids to names of strategies, 64 entries at most.
    pub strategies: BTreeMap<String, String>,
    /// Mapping of the bodies, of a `custom` platform.
    #[serde(flatten)]
    pub custom: Option<CustomConfig>,
}

/// A header that admits a request.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct HeaderConfig {
    /// Name of the header.
    #[serde(rename = "name")]
    spelling: String,
    /// Its name.
    #[serde(skip)]
    pub name: HeaderName,
    /// `value` or `value_file`.
    #[serde(flatten)]
    pub value: SecretConfig,
}

const WEEK: Duration = DAY.saturating_mul(7);

/// Reads every `[[platform]]`. `strategies` are the names of `[[strategy]]`, in their order.
///
/// Keeps a platform of a known kind despite mistakes, so that building it finds further ones.
pub(super) fn read_all(
    d: &mut Document<'_>,
    strategies: &[String],
    vocabulary: &Vocabulary<'_>,
) -> Vec<PlatformConfig> {
    let sections = d.sections("platform");
    let platforms: Vec<PlatformConfig> = sections
        .into_iter()
        .filter_map(|section| read(d, section, strategies, vocabulary))
        .collect();
    let given = |text: &&str| !text.is_empty();
    let names = platforms.iter().map(|platform| platform.name.as_str()).filter(given);
    duplicates(d, "platform", names);
    let paths = platforms.iter().map(|platform| platform.path.as_str()).filter(given);
    duplicates(d, "platform.path", paths);
    platforms
}

fn read(
    d: &mut Document<'_>,
    mut section: Section,
    strategies: &[String],
    vocabulary: &Vocabulary<'_>,
) -> Option<PlatformConfig> {
    let kind = |word: &str| vocabulary.kinds.iter().find(|kind| kind.word == word);
    let kind = section.read_required(d, "kind", &one_of(vocabulary.kinds), kind);
    // The name is a label value next to those of rtad's own routes.
    let name = |text: &str| {
        let name = text.parse().ok().filter(|_| !vocabulary.reserved_names.contains(&text));
        name.map(|name: AudienceName| name.into())
    };
    let accepted = format!("{NAME}; not a name of rtad's own routes");
    let name: Option<String> = section.read_required(d, "name", &accepted, name);
    let path = section.read_required(d, "path", "a path such as /rta/tencent, not under /v1", path);
    let time = "a duration from 1s to 7d, such as 1h";
    let bid_cache = section.read(d, "bid_cache", time, duration(SECOND..=WEEK));
    let no_bid_cache = section.read(d, "no_bid_cache", time, duration(SECOND..=WEEK));
    let example = "{ name = \"X-Rta-Token\", value_file = \"/etc/rtad/token\" }";
    let headers = section.sections(d, "headers", example);
    let headers = headers.into_iter().filter_map(|header| read_header(d, header)).collect();
    // The other keys depend on the kind.
    let kind = kind?;
    let ids = read_strategies(d, &mut section, kind, strategies);
    let custom = kind.is_mapped.then(|| custom::read(d, &mut section));
    section.finish(d);
    Some(PlatformConfig {
        kind: kind.word,
        name: name.unwrap_or_default(),
        path: path.unwrap_or_default(),
        bid_cache,
        no_bid_cache,
        headers,
        strategies: ids,
        custom,
    })
}

/// The words of all kinds, for messages: "a, b or c".
fn one_of(kinds: &[KindRules]) -> String {
    let words: Vec<&str> = kinds.iter().map(|kind| kind.word).collect();
    match words.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => words.concat(),
    }
}

fn path(text: &str) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
    let is_reserved = text == "/" || text == "/v1" || text.starts_with("/v1/");
    (text.starts_with('/') && !is_reserved && text.len() <= 256 && text.bytes().all(is_plain))
        .then(|| text.to_owned())
}

fn read_strategies(
    d: &mut Document<'_>,
    section: &mut Section,
    kind: &KindRules,
    strategies: &[String],
) -> BTreeMap<String, String> {
    let accepted = format!(
        "{{ \"id of the platform\" = \"strategy\" }} with an id of {} and one of the strategies {}",
        kind.strategy_id,
        strategies.join(", ")
    );
    let (line, path) = (section.line(), format!("{}.strategies", section.path()));
    let Some(table) = section.section(d, "strategies", &accepted) else {
        if !section.had("strategies") {
            d.mistake(line, &path, "is missing", &accepted);
        }
        return BTreeMap::new();
    };
    let line = table.line();
    if table.is_empty() {
        d.mistake(line, &path, "is empty", &accepted);
    }
    let mut ids = table.read_map(d, &accepted, |id, strategy| {
        let is_known = strategies.iter().any(|name| name == strategy);
        (is_known && (kind.is_strategy_id)(id)).then(|| (id.to_owned(), strategy.to_owned()))
    });
    if ids.len() > MAX_STRATEGIES {
        let (found, accepted) =
            (format!("has {} ids", ids.len()), format!("{MAX_STRATEGIES} at most"));
        d.mistake(line, &path, &found, &accepted);
        ids.truncate(MAX_STRATEGIES);
    }
    ids.into_iter().collect()
}

fn read_header(d: &mut Document<'_>, mut section: Section) -> Option<HeaderConfig> {
    let parsed = |text: &str| {
        HeaderName::from_bytes(text.as_bytes()).ok().map(|name| (text.to_owned(), name))
    };
    let name = section.read_required(d, "name", "a header's name, such as X-Rta-Token", parsed);
    let value = secret::read(d, &mut section);
    let is_padded =
        |secret: &SecretConfig| secret.secret.expose() != secret.secret.expose().trim_ascii();
    if value.as_ref().is_some_and(is_padded) {
        let found = "has a secret that begins or ends with a space, which HTTP removes";
        d.mistake(section.line(), section.path(), found, "a secret without spaces around it");
    }
    section.finish(d);
    let (spelling, name) = name?;
    Some(HeaderConfig { spelling, name, value: value? })
}
