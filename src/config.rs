//! The configuration: flag > environment > file > default, read whole or not at all.
//!
//! Every mistake is found in one reading, each with its place, what was found and what is accepted. A key that is not known is a
//! mistake too. `docs/operations.md` lists the keys; [`Config`]'s fields are the same list.
//!
//! Each key of `[server]` can be set as `RTAD_<KEY>` in the environment (`RTAD_MAX_BODY`), each of `[store]` as `RTAD_STORE_<KEY>`
//! (`RTAD_STORE_POLL_INTERVAL`), its URL as `RTAD_STORE`. Other variables that begin with `RTAD_` are left alone: Kubernetes
//! sets `RTAD_SERVICE_HOST` and its like by itself.

mod platform;
mod reader;
mod sections;
mod trust;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, Serializer};

pub use platform::{CustomConfig, HeaderConfig, PlatformConfig, PlatformKind};
use reader::Document;
use sections::{DEFAULT_STRATEGY, read_all};

use crate::catalog::Audience;
use crate::strategy::{Outcome, Strategy};
use crate::sync::{Plan, SwapMode};
use rtad_core::snapshot::AudienceName;
use rtad_store::PublicKey;

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
    /// Another if any file that this was read from, those that it names included, holds something else. Within one process.
    #[serde(skip)]
    pub fingerprint: u64,
}

/// Ports and limits. Changing any of them takes a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServerConfig {
    /// Decision port.
    pub listen: SocketAddr,
    /// Admin port.
    pub admin_listen: SocketAddr,
    /// Threads that answer decisions; 0 = one per CPU that the cgroup grants.
    pub workers: usize,
    /// Open connections of the decision port; one more is refused at once.
    pub max_connections: usize,
    /// A connection without a request for so long is closed; also bounds how long a request's head or body may take.
    #[serde(serialize_with = "as_duration")]
    pub idle_timeout: Duration,
    /// Largest request body in bytes. A batch check may have 2 MiB, if that is more.
    #[serde(serialize_with = "as_size")]
    pub max_body: u64,
    /// Requests that wait for their bodies; one more is shed at once.
    pub max_in_flight: usize,
    /// A batch check whose head has waited so long for its worker is shed.
    #[serde(serialize_with = "as_duration")]
    pub max_wait: Duration,
    /// How long requests and connections get to end after SIGTERM.
    #[serde(serialize_with = "as_duration")]
    pub drain_timeout: Duration,
    /// How often to look whether the config has changed, and reload it; unset = only when told.
    #[serde(serialize_with = "as_optional_duration", skip_serializing_if = "Option::is_none")]
    pub watch_config: Option<Duration>,
}

/// Where snapshots come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoreConfig {
    /// One of [`rtad_store::ACCEPTED_URLS`]. Changing it takes a restart.
    pub url: String,
    /// Time between looks, give or take a tenth.
    #[serde(serialize_with = "as_duration")]
    pub poll_interval: Duration,
    /// Larger snapshots are refused, in bytes.
    #[serde(serialize_with = "as_size")]
    pub max_snapshot_size: u64,
    /// A read without progress for so long is given up and made again. Changing it takes a restart.
    #[serde(serialize_with = "as_duration")]
    pub stall_timeout: Duration,
    /// How a new generation comes to be served. `rolling` needs a `cache_dir`.
    pub swap: SwapMode,
    /// Where verified chunks are kept for the next start; unset = nowhere. Changing it takes a restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_dir: Option<PathBuf>,
    /// Manifests must be signed by any one of these; none = nothing needs to be signed. Those of `public_keys_file` are among
    /// them. Changing them takes a restart.
    pub public_keys: Vec<PublicKey>,
}

/// Device ids.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct IdsConfig {
    /// Raw ids that stand for "no id", besides the built-in ones. Changing them takes a restart.
    pub blank: Vec<String>,
}

/// An audience to be served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AudienceConfig {
    /// Its name in the store.
    pub name: AudienceName,
    /// Whether the pod is not ready without it.
    pub required: bool,
    /// Older than this counts as unavailable; unset = never.
    #[serde(serialize_with = "as_optional_duration", skip_serializing_if = "Option::is_none")]
    pub max_age: Option<Duration>,
}

/// A rule over audiences.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StrategyConfig {
    /// Its name.
    pub name: String,
    /// A member of any gets no bid.
    pub exclude: Vec<AudienceName>,
    /// If given, only a member of at least one gets a bid.
    pub include: Vec<AudienceName>,
    /// The answer to a request without a usable id.
    pub no_device: Outcome,
    /// The answer when an audience is missing or too old, or the service is overloaded.
    pub unavailable: Outcome,
}

fn as_duration<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&humantime::format_duration(*duration))
}

fn as_optional_duration<S: Serializer>(
    duration: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match duration {
        Some(duration) => as_duration(duration, serializer),
        None => serializer.serialize_none(),
    }
}

fn as_size<S: Serializer>(bytes: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    // The largest unit that says it exactly: what is printed must read back as the same number.
    let units = [(1_u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| bytes.is_multiple_of(*unit)) {
        Some((unit, name)) => serializer.collect_str(&format_args!("{}{name}", bytes / unit)),
        None => serializer.collect_str(bytes),
    }
}

/// What was set on the command line, by key: `("server.listen", "0.0.0.0:80")`.
pub type Flags = Vec<(&'static str, String)>;

/// A configuration with mistakes: all of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", mistakes.join("\n"))]
#[non_exhaustive]
pub struct ConfigError {
    /// One line each: place, key, what was found, what is accepted.
    pub mistakes: Vec<String>,
}

impl Config {
    /// Reads the configuration. `file` is a path, for messages, and its text; `environment` looks a variable up.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] with every mistake.
    pub fn read(
        file: Option<(&str, &str)>,
        environment: impl Fn(&str) -> Option<String>,
        flags: &Flags,
    ) -> Result<Self, ConfigError> {
        let (path, text) = file.unwrap_or(("", ""));
        let mut document = Document::parse(path, text, flags, &environment);
        let config = read_all(&mut document);
        let mistakes = document.finish();
        if mistakes.is_empty() { Ok(config) } else { Err(ConfigError { mistakes }) }
    }

    /// The configuration as a file that says all of it.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("every field is plain")
    }

    /// What sync is to serve.
    pub fn plan(&self) -> Plan {
        let place = |name: &AudienceName| self.audiences.iter().position(|audience| audience.name == *name);
        let places = |names: &[AudienceName]| names.iter().filter_map(place).collect();
        let audience = |config: &AudienceConfig| {
            Audience::unloaded(config.name.clone(), config.required, config.max_age)
        };
        let strategy = |config: &StrategyConfig| Strategy {
            name: config.name.clone(),
            exclude: places(&config.exclude),
            include: places(&config.include),
            no_device: config.no_device,
            unavailable: config.unavailable,
        };
        Plan {
            audiences: self.audiences.iter().map(audience).collect(),
            strategies: self.strategies.iter().map(strategy).collect(),
            platforms: self.platforms.iter().map(|config| Arc::clone(&config.built)).collect(),
            poll_interval: self.store.poll_interval,
            max_snapshot_bytes: self.store.max_snapshot_size,
            swap: self.store.swap,
        }
    }

    /// Serves these audiences, for a configuration that names none: all required, and one strategy `new-users` that excludes
    /// each of them.
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
