//! `[[platform]]`: an ad platform, its path and its protocol.
//!
//! The kinds of protocols and their rules come from a [`Vocabulary`].

mod custom;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;
use rtad_config::values::{DAY, SECOND, as_optional_time, name, text, time};
use rtad_config::{Document, Named, Secret};
use rtad_core::snapshot::AudienceName;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::experiment::{BucketConfig, ExperimentConfig};
use super::rules::StrategyConfig;
use super::value::{ValueBounds, ValueConfig};
use crate::strategy::{Attribute, Tag, ValueKey};

pub use custom::{
    Algorithm, BodyFormat, Code, CodeConfig, IdListConfig, RequestConfig, ResponseConfig,
    SignatureConfig, SignatureMode, VerdictsConfig,
};

/// Largest number of strategy ids of a platform.
pub const MAX_STRATEGIES: usize = 64;

/// Words of the config that other modules define.
#[derive(Debug, Clone, Copy)]
pub struct Vocabulary<'a> {
    /// The kinds of platforms.
    pub kinds: &'a [KindRules],
    /// Names that no platform may have, as metrics use them.
    pub reserved_names: &'a [&'a str],
    /// Causes of failures.
    pub failures: &'a [&'a str],
}
impl<'a> Vocabulary<'a> {
    fn kind(&self, word: &str) -> Option<&'a KindRules> {
        self.kinds.iter().find(|kind| kind.word == word)
    }
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
    /// Whether its requests may have an attribute, unless keys map it.
    pub sends: fn(Attribute) -> bool,
    /// Whether its answers may have a number of values, unless keys map it.
    pub carries: fn(ValueKey) -> bool,
    /// The values whose bounds its protocol publishes.
    pub value_bounds: &'static [ValueBounds],
    /// The least time for which the platform keeps an answer; zero if it is not known.
    pub least_cache: Duration,
    /// The greatest number of a bucket's tag.
    pub most_tag_number: u32,
    /// Whether keys of [`PlatformConfig`] map its bodies.
    pub is_mapped: bool,
}

/// An ad platform.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct PlatformConfig {
    /// Protocol of the platform.
    pub kind: String,
    /// Name in metrics, in `rtad explain` and in `/v1/explain/{platform}`.
    #[serde(deserialize_with = "name::<_, AudienceName, _>")]
    pub name: String,
    /// Path of its requests on the decision port.
    #[serde(deserialize_with = "path")]
    pub path: String,
    /// Time for which the platform may cache an answer with a bid; unset = the platform decides.
    #[serde(
        default,
        deserialize_with = "time::<_, _, SECOND, { 7 * DAY }>",
        serialize_with = "as_optional_time"
    )]
    pub bid_cache: Option<Duration>,
    /// Time for which the platform may cache an answer without a bid; unset = the platform decides.
    #[serde(
        default,
        deserialize_with = "time::<_, _, SECOND, { 7 * DAY }>",
        serialize_with = "as_optional_time"
    )]
    pub no_bid_cache: Option<Duration>,
    /// Headers that admit a request. Any one of them is enough; none = every request is admitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<HeaderConfig>,
    /// Mapping from the platform's strategy ids to names of strategies, 64 entries at most. The
    /// form of an id depends on `kind`.
    pub strategies: BTreeMap<String, String>,
    /// Format of the request and response bodies. Required for `custom`, as are `request` and
    /// `response`; other kinds have none of the following keys.
    pub body: Option<BodyFormat>,
    /// Schema of the bodies, a `.proto` file. Required for `protobuf`, unknown for `json`.
    pub proto: Option<Named>,
    /// Path of [`Self::proto`], resolved against the config's folder.
    #[serde(skip)]
    pub proto_path: PathBuf,
    /// Full name of the request message. Required for `protobuf`, unknown for `json`.
    pub request_message: Option<Named>,
    /// Full name of the response message. Required for `protobuf`, unknown for `json`.
    pub response_message: Option<Named>,
    /// Fields of the request, see `[platform.request]`.
    pub request: Option<RequestConfig>,
    /// Fields of the response, see `[platform.response]`.
    pub response: Option<ResponseConfig>,
    /// Signature of the request, see `[platform.signature]`; unset = signatures are not checked.
    pub signature: Option<SignatureConfig>,
    /// Whether all keys of `custom` were read without a mistake: a schema can be compiled, and its
    /// mistakes noted. Later checks may have noted others.
    #[serde(skip)]
    pub is_whole: bool,
}

/// A header that admits a request.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct HeaderConfig {
    /// Name of the header.
    #[serde(deserialize_with = "header_name", serialize_with = "as_header_name")]
    pub name: HeaderName,
    /// The secret. Either this or `value_file` is required.
    value: Option<Secret>,
    /// File that holds the secret alone.
    value_file: Option<String>,
    /// The secret itself.
    #[serde(skip)]
    pub secret: Secret,
}

impl PlatformConfig {
    /// The secrets of its headers.
    pub(super) fn secrets(&self) -> Vec<Secret> {
        let headers = self.headers.iter();
        headers.map(|header| header.secret.clone()).collect()
    }

    /// Whether an id of the platform stands for the strategy.
    pub(super) fn maps(&self, strategy: &StrategyConfig) -> bool {
        self.strategies.values().any(|name| *name == strategy.name)
    }

    /// Whether a strategy of the platform reads the experiment: then answers have its tags.
    pub(super) fn reads(
        &self,
        experiment: &ExperimentConfig,
        strategies: &[StrategyConfig],
    ) -> bool {
        let mut mapped = strategies.iter().filter(|it| self.maps(it));
        mapped.any(|strategy| strategy.reads_experiment(&experiment.name))
    }

    /// The tags of all buckets that have one, in order. They are empty in experiments that no
    /// strategy of the platform reads.
    pub fn tags(
        &self,
        experiments: &[ExperimentConfig],
        strategies: &[StrategyConfig],
    ) -> Vec<Tag> {
        let mut tags = Vec::new();
        for experiment in experiments {
            let is_read = self.reads(experiment, strategies);
            for tag in experiment.buckets.iter().filter_map(BucketConfig::tag) {
                tags.push(if is_read { tag } else { Tag::default() });
            }
        }
        tags
    }

    /// Checks the platform at `table`. `strategies` are the names of `[[strategy]]`.
    fn check(
        &mut self,
        d: &mut Document<'_>,
        table: &str,
        strategies: &[String],
        vocabulary: &Vocabulary<'_>,
    ) {
        // The name is a label value next to those of rtad's own routes.
        if vocabulary.reserved_names.contains(&self.name.as_str()) {
            d.reject(
                &format!("{table}.name"),
                "a name that none of rtad's own routes has",
            );
        }

        for (index, header) in self.headers.iter_mut().enumerate() {
            let key = format!("{table}.headers[{index}]");
            header.secret = d.load_secret(&key, &header.value, &header.value_file);
            if header.secret.expose() != header.secret.expose().trim_ascii() {
                let found = "has a secret that begins or ends with a space, which HTTP removes";
                d.mistake(&key, found, "a secret without spaces around it");
            }
        }

        let key = format!("{table}.kind");
        let Some(kind) = vocabulary.kind(&self.kind) else {
            return d.reject(&key, &one_of(vocabulary.kinds));
        };
        self.check_strategies(d, &format!("{table}.strategies"), kind, strategies);

        if kind.is_mapped {
            check_custom(d, table, self);
        } else {
            refuse_custom(d, table, kind.word);
        }
    }

    fn check_strategies(
        &mut self,
        d: &mut Document<'_>,
        key: &str,
        kind: &KindRules,
        strategies: &[String],
    ) {
        let accepted = format!(
            "{{ \"id of the platform\" = \"strategy\" }} with an id of {} and a strategy of this \
             file: {}",
            kind.strategy_id,
            strategies.join(", ")
        );

        if self.strategies.is_empty() {
            d.mistake(key, "is empty", &accepted);
        }
        for (id, strategy) in &self.strategies {
            if !strategies.contains(strategy) || !(kind.is_strategy_id)(id) {
                d.reject_entry(key, id, &accepted);
            }
        }

        if self.strategies.len() > MAX_STRATEGIES {
            let found = format!("has {} ids", self.strategies.len());
            d.mistake(key, &found, &format!("{MAX_STRATEGIES} at most"));
        }

        // The platform is built despite mistakes, to find further ones.
        self.strategies = std::mem::take(&mut self.strategies)
            .into_iter()
            .filter(|(id, strategy)| strategies.contains(strategy) && (kind.is_strategy_id)(id))
            .take(MAX_STRATEGIES)
            .collect();
    }
}

/// Checks every platform. Those that remain have a known kind.
pub fn check(
    d: &mut Document<'_>,
    platforms: &mut Vec<PlatformConfig>,
    strategies: &[String],
    vocabulary: &Vocabulary<'_>,
) {
    for (index, platform) in platforms.iter_mut().enumerate() {
        platform.check(d, &format!("platform[{index}]"), strategies, vocabulary);
    }
    d.refuse_duplicates("platform", "name");
    d.refuse_duplicates("platform", "path");

    platforms.retain(|platform| vocabulary.kind(&platform.kind).is_some());
}

/// Notes numbers of tags that a platform of the experiment's strategies does not accept.
pub fn check_tags(
    d: &mut Document<'_>,
    platforms: &[PlatformConfig],
    strategies: &[StrategyConfig],
    experiments: &[ExperimentConfig],
    vocabulary: &Vocabulary<'_>,
) {
    for platform in platforms {
        let kind = vocabulary.kind(&platform.kind);
        let most = kind.map_or(u32::MAX, |kind| kind.most_tag_number);

        for (index, experiment) in experiments.iter().enumerate() {
            if !platform.reads(experiment, strategies) {
                continue;
            }
            for (bucket, config) in experiment.buckets.iter().enumerate() {
                let key = format!("experiment[{index}].buckets[{bucket}].tag_number");
                if config.tag_number.is_some_and(|number| number > most) && !d.has_mistake(&key) {
                    let name = &platform.name;
                    d.reject(
                        &key,
                        &format!("1 to {most}, which the platform {name} accepts"),
                    );
                }
            }
        }
    }
}

/// Notes numbers that a platform of the strategy does not accept.
pub fn check_values(
    d: &mut Document<'_>,
    platforms: &[PlatformConfig],
    strategies: &[StrategyConfig],
    vocabulary: &Vocabulary<'_>,
) {
    for platform in platforms {
        let kind = vocabulary.kind(&platform.kind);
        let bounds = kind.map_or(&[][..], |kind| kind.value_bounds);

        for (index, strategy) in strategies.iter().enumerate() {
            if !platform.maps(strategy) {
                continue;
            }
            for (entry, value) in strategy.values.iter().map(ValueConfig::numbers).enumerate() {
                for bounds in bounds {
                    let Some(accepted) = bounds.refused(&value) else {
                        continue;
                    };
                    let key = format!("strategy[{index}].value[{entry}].{}", bounds.key.as_str());
                    // Of several platforms, the first one is named.
                    if !d.has_mistake(&key) {
                        let name = &platform.name;
                        d.reject(
                            &key,
                            &format!("{accepted}, which the platform {name} accepts"),
                        );
                    }
                }
            }
        }
    }
}

/// A key of a mapping.
struct MappingKey {
    name: &'static str,
    /// Its accepted value, as messages describe it.
    accepted: &'static str,
    need: Need,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Always,
    /// With messages of Protocol Buffers; otherwise it is refused.
    Protobuf,
    Optional,
}

const KEYS: [MappingKey; 7] = {
    const fn key(name: &'static str, need: Need, accepted: &'static str) -> MappingKey {
        MappingKey {
            name,
            accepted,
            need,
        }
    }
    use Need::{Always, Optional, Protobuf};
    [
        key("body", Always, "protobuf, json or form"),
        key("proto", Protobuf, "a .proto file, beside this one"),
        key("request_message", Protobuf, "a message's full name"),
        key("response_message", Protobuf, "a message's full name"),
        key(
            "request",
            Always,
            "[platform.request] with request_id, strategies, ids and so on",
        ),
        key(
            "response",
            Always,
            "[platform.response] with code, verdicts, accepted and so on",
        ),
        key(
            "signature",
            Optional,
            "[platform.signature] with algorithm, template and so on",
        ),
    ]
};

/// Refuses the keys in the table of another kind.
fn refuse_custom(d: &mut Document<'_>, table: &str, kind: &str) {
    for MappingKey { name, .. } in KEYS {
        let key = format!("{table}.{name}");
        if d.has(&key) {
            let found = format!("is not known for kind = {kind:?}");
            d.mistake(&key, &found, "the keys of every kind");
        }
    }
}

/// Checks the mapping of a platform at `table`.
fn check_custom(d: &mut Document<'_>, table: &str, platform: &mut PlatformConfig) {
    let body = platform.body;
    for MappingKey {
        name,
        accepted,
        need,
    } in KEYS
    {
        let key = format!("{table}.{name}");
        match (need, body) {
            (Need::Always, _) | (Need::Protobuf, Some(BodyFormat::Protobuf)) => {
                d.require(&key, accepted);
            }
            (Need::Protobuf, Some(format)) if d.has(&key) => {
                let found = format!("is not known for body = {:?}", format.as_str());
                d.mistake(&key, &found, "body = \"protobuf\" with it");
            }
            _ => {}
        }
    }

    platform.is_whole = KEYS
        .iter()
        .all(|key| !d.has_mistake(&format!("{table}.{}", key.name)));
    platform.body = body;

    if let Some(proto) = &platform.proto {
        platform.proto_path = d.beside(&proto.text);
    }
    if let Some(request) = &mut platform.request {
        request.check(d, &format!("{table}.request"));
    }
    if let Some(response) = &mut platform.response {
        response.check(d, &format!("{table}.response"));
    }
    if let Some(signature) = &mut platform.signature {
        signature.check(d, &format!("{table}.signature"));
    }

    if let Some(ResponseConfig {
        is_whole: true,
        cache: None,
        ..
    }) = &platform.response
    {
        for key in ["bid_cache", "no_bid_cache"].map(|key| format!("{table}.{key}")) {
            if d.has(&key) {
                d.mistake(
                    &key,
                    "is written nowhere",
                    "platform.response.cache with its field",
                );
            }
        }
    }
}

/// The words of all kinds, for messages: "a, b or c".
fn one_of(kinds: &[KindRules]) -> String {
    let words: Vec<&str> = kinds.iter().map(|kind| kind.word).collect();
    match words.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => words.concat(),
    }
}

fn path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    text(
        deserializer,
        "a path such as /rta/tencent, not under /v1",
        |text| {
            let is_plain = text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte));
            let is_reserved = text == "/" || text == "/v1" || text.starts_with("/v1/");
            (text.starts_with('/') && !is_reserved && text.len() <= 256 && is_plain)
                .then(|| text.to_owned())
        },
    )
}

fn header_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<HeaderName, D::Error> {
    text(
        deserializer,
        "a header's name, such as X-Rta-Token",
        |text| text.parse().ok(),
    )
}

fn as_header_name<S: Serializer>(name: &HeaderName, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(name.as_str())
}
