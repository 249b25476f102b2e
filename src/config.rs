//! The configuration: flag > environment > file > default, read whole or not at all.
//!
//! Pure data: nothing here knows what is built from it. Every mistake is found in one reading, each
//! with its location, what was found and what is accepted. An unknown key is a mistake too.
//! `docs/reference/configuration.md` is generated from this module.
//!
//! Each key of `[server]` can be set as `RTAD_<KEY>` in the environment (`RTAD_MAX_BODY`), each of
//! `[store]` as `RTAD_STORE_<KEY>` (`RTAD_STORE_POLL_INTERVAL`), its URL as `RTAD_STORE`. Other
//! variables that begin with `RTAD_` are left alone: Kubernetes sets `RTAD_SERVICE_HOST` and its
//! like by itself.
//!
//! # Files
//!
//! Each file uses only those below it in the table. Of the rest of the crate this module uses
//! [`crate::strategy`], which is pure.
//!
//! | file | job |
//! |---|---|
//! | `platform` | `[[platform]]`; in `custom`, the keys of mapped bodies |
//! | `rules` | `[ids]`, `[[audience]]`, `[[strategy]]` |
//! | `store`, `trust` | `[store]`, and in it the public keys |
//! | `server` | `[server]` |
//! | `secret` | secrets, in the config or in a file of their own |
//! | `values` | values that several tables have |
//! | `reader` | a TOML document, key by key, under flags and environment |
//! | `mistake` | mistakes and their locations |

mod mistake;
mod platform;
mod reader;
#[cfg(test)]
mod reference;
mod rules;
mod secret;
mod server;
mod store;
mod trust;
mod values;

use rtad_core::snapshot::AudienceName;
use serde::Serialize;

pub use mistake::{ConfigError, Location, Mistake, Mistakes, Named};
pub use platform::{
    Algorithm, Body, CodeConfig, CustomConfig, HeaderConfig, HexCase, IdListConfig, KindRules,
    MAX_STRATEGIES, PlatformConfig, RequestConfig, ResponseConfig, SignatureConfig, SignatureMode,
    StrategiesAs, TimestampUnit, VerdictsConfig, Vocabulary,
};
pub use reader::Flags;
pub use rules::{AudienceConfig, IdsConfig, StrategyConfig};
pub use secret::{Secret, SecretConfig};
pub use server::ServerConfig;
pub use store::{StoreConfig, SwapMode};

use crate::strategy::Outcome;
use reader::Document;

/// The strategy of a configuration that names neither audiences nor strategies.
const DEFAULT_STRATEGY: &str = "new-users";

/// Everything that can be set.
#[derive(Debug, Clone, Serialize)]
pub struct Config {
    /// `[server]`
    pub server: ServerConfig,
    /// `[store]`
    pub store: StoreConfig,
    /// `[ids]`
    pub ids: IdsConfig,
    /// `[[audience]]`; none at all means every audience that the store holds at start.
    #[serde(rename = "audience")]
    pub audiences: Vec<AudienceConfig>,
    /// `[[strategy]]`
    #[serde(rename = "strategy")]
    pub strategies: Vec<StrategyConfig>,
    /// `[[platform]]`
    #[serde(rename = "platform")]
    pub platforms: Vec<PlatformConfig>,
    /// Another if any file that this was read from, those that it names included, holds something
    /// else. Within one process.
    #[serde(skip)]
    pub fingerprint: u64,
}

impl Config {
    /// Reads the configuration as far as it can be read, and every mistake in it: it is good only if
    /// there are none. `file` is a path, for messages, and its text; `environment` looks a variable
    /// up; `vocabulary` has the words that only the rest of the service knows.
    pub fn read(
        file: Option<(&str, &str)>,
        environment: impl Fn(&str) -> Option<String>,
        flags: &Flags,
        vocabulary: &Vocabulary<'_>,
    ) -> (Self, Mistakes) {
        let (path, text) = file.unwrap_or(("", ""));
        let mut document = Document::parse(path, text, flags, &environment);
        let d = &mut document;
        let server = server::read(d);
        let store = store::read(d);
        let ids = rules::read_ids(d);
        let (audiences, audience_names) = rules::read_audiences(d);
        let (strategies, mut strategy_names) = rules::read_strategies(d, &audience_names);
        rules::check_names(d, &audiences, &strategies);
        if strategy_names.is_empty() && audience_names.is_empty() {
            strategy_names.push(DEFAULT_STRATEGY.to_owned());
        }
        let platforms = platform::read_all(d, &strategy_names, vocabulary);
        let fingerprint = d.fingerprint();
        let config = Self { server, store, ids, audiences, strategies, platforms, fingerprint };
        (config, document.finish())
    }

    /// The configuration as a file that says all of it.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("every field is plain")
    }

    /// Serves these audiences, for a configuration that names none: all required, and one strategy
    /// `new-users` that excludes each of them.
    pub fn serve_all(&mut self, audiences: Vec<AudienceName>) {
        let strategy = StrategyConfig {
            name: DEFAULT_STRATEGY.to_owned(),
            exclude: audiences.clone(),
            include: Vec::new(),
            no_device: Outcome::NoBid,
            unavailable: Outcome::NoBid,
        };
        let required = |name| AudienceConfig { name, required: true, max_age: None };
        self.audiences = audiences.into_iter().map(required).collect();
        self.strategies = vec![strategy];
    }

    /// Keys that differ from `other` and that a reload cannot change.
    pub fn needs_restart(&self, other: &Self) -> Vec<&'static str> {
        let changed = [
            ("server", self.server != other.server),
            ("store.url", self.store.url != other.store.url),
            ("store.cache_dir", self.store.cache_dir != other.store.cache_dir),
            ("store.stall_timeout", self.store.stall_timeout != other.store.stall_timeout),
            ("store.public_keys", self.store.public_keys != other.store.public_keys),
            ("ids", self.ids != other.ids),
        ];
        changed.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
    }
}

#[cfg(test)]
mod tests;
