//! The configuration: flag > environment > file > default.
//!
//! Pure data, independent of what is built from it. One reading finds every mistake, each with its
//! location, the value found and the accepted values. An unknown key is a mistake.
//! `docs/reference/configuration.md` is generated from this module.
//!
//! Each key of `[server]` can be set as `RTAD_<KEY>` in the environment (`RTAD_MAX_BODY`), each of
//! `[store]` as `RTAD_STORE_<KEY>` (`RTAD_STORE_POLL_INTERVAL`), its URL as `RTAD_STORE`. Other
//! variables that begin with `RTAD_` are ignored: Kubernetes sets some, such as
//! `RTAD_SERVICE_HOST`.
//!
//! # Files
//!
//! Each file uses only those below it in the table. Of the rest of the crate this module uses
//! [`crate::strategy`], which is pure.
//!
//! | file | job |
//! |---|---|
//! | `platform` | `[[platform]]`; `custom` has the keys of mapped bodies |
//! | `rules` | `[ids]`, `[[audience]]`, `[[strategy]]` |
//! | `leases` | `[cap_leases]` |
//! | `store`, `trust` | `[store]`, and its public keys |
//! | `server` | `[server]`; `api` has `[server.api]` |
//! | `secret` | secrets, in the config or in a file |
//! | `values` | types of values that several tables use |
//! | `reader` | a TOML document with flags and environment over it |
//! | `mistake` | mistakes and their locations |

mod api;
mod leases;
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

pub use api::ApiConfig;
pub use leases::LeasesConfig;
pub use mistake::{ConfigError, Location, Mistake, Mistakes, Named};
pub use platform::{
    Algorithm, Body, CodeConfig, CustomConfig, HeaderConfig, HexCase, IdListConfig, KindRules,
    MAX_STRATEGIES, PlatformConfig, RequestConfig, ResponseConfig, SignatureConfig, SignatureMode,
    StrategiesAs, TimestampUnit, VerdictsConfig, Vocabulary,
};
pub use reader::Flags;
pub use rules::{AudienceConfig, CapConfig, IdsConfig, StrategyConfig};
pub use secret::{Secret, SecretConfig};
pub use server::ServerConfig;
pub use store::{StoreConfig, SwapMode};

use crate::strategy::Outcome;
use reader::Document;

/// The strategy of a configuration without audiences and strategies.
const DEFAULT_STRATEGY: &str = "new-users";

/// The whole configuration.
#[derive(Debug, Clone, Serialize)]
pub struct Config {
    /// `[server]`
    pub server: ServerConfig,
    /// `[store]`
    pub store: StoreConfig,
    /// `[ids]`
    pub ids: IdsConfig,
    /// `[[audience]]`; none = every audience in the store at start.
    #[serde(rename = "audience")]
    pub audiences: Vec<AudienceConfig>,
    /// `[[strategy]]`
    #[serde(rename = "strategy")]
    pub strategies: Vec<StrategyConfig>,
    /// `[cap_leases]`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap_leases: Option<LeasesConfig>,
    /// `[[platform]]`
    #[serde(rename = "platform")]
    pub platforms: Vec<PlatformConfig>,
    /// Hash of all files that were read. Comparable within one process only.
    #[serde(skip)]
    pub fingerprint: u64,
}

impl Config {
    /// Reads the configuration and every mistake in it; it is valid only without mistakes. `file`
    /// is a path, for messages, and its text. `environment` returns the value of a variable.
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
        let cap_leases = leases::read(d);
        rules::check_leases(d, &strategies, cap_leases.is_some());
        if strategy_names.is_empty() && audience_names.is_empty() {
            strategy_names.push(DEFAULT_STRATEGY.to_owned());
        }
        let platforms = platform::read_all(d, &strategy_names, vocabulary);
        let fingerprint = d.fingerprint();
        let config =
            Self { server, store, ids, audiences, strategies, cap_leases, platforms, fingerprint };
        (config, document.finish())
    }

    /// The configuration as TOML, including defaults.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("plain values serialize")
    }

    /// Adds these audiences to a configuration without any: all required, with one strategy
    /// `new-users` that excludes them.
    pub fn serve_all(&mut self, audiences: Vec<AudienceName>) {
        let strategy = StrategyConfig {
            name: DEFAULT_STRATEGY.to_owned(),
            exclude: audiences.clone(),
            include: Vec::new(),
            no_device: Outcome::NoBid,
            unavailable: Outcome::NoBid,
            cap: None,
        };
        let required = |name| AudienceConfig { name, required: true, max_age: None };
        self.audiences = audiences.into_iter().map(required).collect();
        self.strategies = vec![strategy];
    }

    /// Keys that differ from `other` and take effect only after a restart.
    pub fn needs_restart(&self, other: &Self) -> Vec<&'static str> {
        let changed = [
            ("server", self.server.needs_restart(&other.server)),
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
