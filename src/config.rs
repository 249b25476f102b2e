//! The configuration: flag > environment > file > default.
//!
//! Data and the files that it names, independent of what is built from it. One reading finds every
//! mistake, each with its location, the value found and the accepted values. An unknown key is a
//! mistake. `docs/reference/configuration.md` is generated from this module.
//!
//! Five keys have a variable of the environment: those that differ between places where one file
//! is used.
//!
//! # Files
//!
//! Each file uses only those below it in the table. Of the rest of the crate this module uses
//! [`crate::strategy`], which is pure.
//!
//! | file | job |
//! |---|---|
//! | `changes` | keys that differ between two configs |
//! | `warnings` | valid settings that surprise |
//! | `log` | `[log]` |
//! | `platform` | `[[platform]]`; `custom` has the keys of mapped bodies |
//! | `cap` | `[[cap]]` |
//! | `rules` | `[ids]`, `[[audience]]`, `[[strategy]]` |
//! | `value` | `[[strategy.value]]` |
//! | `condition` | `when` of a strategy |
//! | `experiment` | `[[experiment]]` |
//! | `zone` | time zones |
//! | `store`, `trust` | `[store]`, and its public keys |
//! | `server` | `[server]` |
//! | `api` | `[server.api]` |

mod api;
mod cap;
mod changes;
mod condition;
mod experiment;
mod log;
mod platform;
#[cfg(test)]
mod reference;
mod rules;
mod server;
mod store;
mod trust;
mod value;
mod warnings;
mod zone;

use std::path::PathBuf;

use rtad_config::Document;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

pub use api::ApiConfig;
pub use cap::CapConfig;
pub use changes::{Difference, differences};
pub use experiment::{
    AssignedSlots, BucketConfig, ExperimentConfig, PartNames, SlotRanges, experiments,
};
pub use log::{ANY_FAILURE, LEAST_SECRET, LogConfig, RawBodies};
pub use platform::{
    Algorithm, BodyFormat, Code, CodeConfig, HeaderConfig, IdListConfig, KindRules, MAX_STRATEGIES,
    PlatformConfig, RequestConfig, ResponseConfig, SignatureConfig, SignatureMode, VerdictsConfig,
    Vocabulary,
};
pub use rules::{AudienceConfig, IdsConfig, StrategyConfig};
pub use server::ServerConfig;
pub use store::{StoreConfig, SwapMode};
pub use value::{ValueBounds, ValueConfig};
use zone::optional_time_zone;

pub use rtad_config::{ConfigError, Location, Mistake, Mistakes, Named, Secret, SecretConfig};

/// A configuration with every key that has an example, none with its default. The reference is
/// generated from it.
#[cfg(test)]
const EXAMPLE: &str = include_str!("config/example.toml");
/// The keys that a variable of the environment sets.
const VARIABLES: [(&str, &str); 5] = [
    ("store.url", "RTAD_STORE"),
    ("server.listen", "RTAD_LISTEN"),
    ("server.admin_listen", "RTAD_ADMIN_LISTEN"),
    ("server.workers", "RTAD_WORKERS"),
    ("server.drain_timeout", "RTAD_DRAIN_TIMEOUT"),
];

/// Values of the command line, by key: `("server.listen", "0.0.0.0:80")`.
pub type Flags = Vec<(&'static str, String)>;

/// Purpose for which a configuration is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigUse {
    /// It is served or checked.
    All,
    /// Only its rules are read: files of secrets and keys may be missing.
    Rules,
}

/// The whole configuration.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct Config {
    /// Time zone of the schedules and caps that name no other: a name of the IANA database in rtad
    /// itself.
    #[serde(deserialize_with = "optional_time_zone")]
    pub time_zone: Option<String>,
    /// `[server]`
    pub server: ServerConfig,
    /// `[store]`
    pub store: StoreConfig,
    /// `[ids]`
    pub ids: IdsConfig,
    /// `[[audience]]`
    #[serde(rename = "audience")]
    pub audiences: Vec<AudienceConfig>,
    /// `[[strategy]]`
    #[serde(rename = "strategy")]
    pub strategies: Vec<StrategyConfig>,
    /// `[[cap]]`
    #[serde(rename = "cap")]
    pub caps: Vec<CapConfig>,
    /// `[[experiment]]`
    #[serde(rename = "experiment")]
    pub experiments: Vec<ExperimentConfig>,
    /// `[log]`
    pub log: Option<LogConfig>,
    /// `[[platform]]`
    #[serde(rename = "platform")]
    pub platforms: Vec<PlatformConfig>,
    /// Hash of all files that were read. Comparable within one process only.
    #[serde(skip)]
    pub fingerprint: u64,
    /// The files that keys name, but for schemas.
    #[serde(skip)]
    pub files: Vec<PathBuf>,
    /// The first 16 hex digits of the SHA-256 of the file: the same in each pod.
    #[serde(skip)]
    pub id: String,
}

impl Config {
    /// Reads the configuration and every mistake in it; it is valid only without mistakes. `file`
    /// is a path, for messages, and its text. `environment` returns the value of a variable.
    ///
    /// # Errors
    ///
    /// Mistakes of syntax or types. Checks of meaning have not run.
    pub fn read(
        file: Option<(&str, &str)>,
        environment: impl Fn(&str) -> Option<String>,
        flags: &Flags,
        vocabulary: &Vocabulary<'_>,
        uses: ConfigUse,
    ) -> Result<(Self, Mistakes), Mistakes> {
        let (path, text) = file.unwrap_or(("", ""));
        let overlays = overlays(environment, flags);
        let mut document = Document::parse(path, text)?;
        if uses == ConfigUse::Rules {
            document.ignore_missing_files();
        }
        for overlay in &overlays {
            let is_number = overlay.key == "server.workers";
            document.put_over(overlay.key, &overlay.name, &overlay.text, is_number);
        }

        let Some(mut config) = document.read::<Self>() else {
            return Err(document.finish());
        };

        let d = &mut document;
        config.server.check(d);
        config.store.check(d);

        if let Some(log) = &mut config.log {
            log.check(d, config.store.cache_dir.as_ref(), vocabulary);
        }

        experiment::check(d, &config.experiments);
        let parts = PartNames::of(&config.experiments);
        let zone = config.time_zone.as_ref();
        rules::check(d, &mut config.strategies, &parts, zone);
        cap::check(d, &mut config.caps, &config.strategies, zone);
        if uses == ConfigUse::All && !config.caps.is_empty() {
            config.store.check_caps_store(d);
        }

        let strategies = d.texts("strategy", "name");
        platform::check(d, &mut config.platforms, &strategies, vocabulary);

        let Self {
            platforms,
            strategies,
            experiments,
            ..
        } = &config;
        platform::check_values(d, platforms, strategies, vocabulary);
        platform::check_tags(d, platforms, strategies, experiments, vocabulary);

        config.fingerprint = d.fingerprint();
        config.files = d.files().to_vec();
        config.id = const_hex::encode(&Sha256::digest(text)[..8]);
        Ok((config, document.finish()))
    }

    /// The configuration as TOML, including defaults.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("plain values serialize")
    }

    /// Keys that differ from `other` and take effect only after a restart.
    pub fn needs_restart(&self, other: &Self) -> Vec<&'static str> {
        let changed = [
            ("server", self.server.needs_restart(&other.server)),
            ("store.url", self.store.url != other.store.url),
            ("store.urls", self.store.urls != other.store.urls),
            (
                "store.caps_url",
                self.store.caps_url != other.store.caps_url,
            ),
            (
                "store.cache_dir",
                self.store.cache_dir != other.store.cache_dir,
            ),
            (
                "store.public_keys",
                self.store.public_keys != other.store.public_keys,
            ),
            ("ids", self.ids != other.ids),
            (
                "log",
                LogConfig::needs_restart(self.log.as_ref(), other.log.as_ref()),
            ),
        ];

        let mut keys = Vec::new();
        for (key, differs) in changed {
            if differs {
                keys.push(key);
            }
        }
        keys
    }
}

/// A value of a flag or a variable over a key of the file.
struct Overlay {
    key: &'static str,
    /// Name of the flag or variable, for messages.
    name: String,
    text: String,
}

/// Values of variables, then those of flags, which are put over them.
fn overlays(environment: impl Fn(&str) -> Option<String>, flags: &Flags) -> Vec<Overlay> {
    let mut overlays = Vec::new();
    for (key, variable) in VARIABLES {
        if let Some(text) = environment(variable) {
            let name = variable.to_owned();
            overlays.push(Overlay { key, name, text });
        }
    }

    for (key, text) in flags {
        let flag = match key.split_once('.') {
            Some(("store", "url")) => "store",
            Some((_, name)) => name,
            None => key,
        };
        overlays.push(Overlay {
            key,
            name: format!("--{}", flag.replace('_', "-")),
            text: text.clone(),
        });
    }
    overlays
}

#[cfg(test)]
mod tests;
