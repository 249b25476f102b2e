//! `[cap_leases]`: the Redis or Valkey from which pods lease their parts of caps.

use std::path::PathBuf;

use rtad_config::values::text;
use rtad_config::{Document, Secret};
use rtad_redis::{RedisConfig, RedisLeases, redacted};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Second part of the keys in Redis.
const GROUP: &str = "caps";

/// The Redis or Valkey of the caps' leases.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
#[serde(default, deny_unknown_fields)]
pub struct LeasesConfig {
    /// URL of Redis or Valkey, version 2.6.12 or later: `redis://`, `rediss://` for TLS,
    /// `redis+cluster://` for a cluster; a password is percent-encoded. Either this or
    /// `backend_file` is required.
    #[serde(serialize_with = "as_redacted")]
    backend: Option<Secret>,
    /// File that holds the URL alone. A relative path starts at the directory of the configuration
    /// file.
    backend_file: Option<String>,
    /// PEM file of the only trusted CA certificates for `rediss://`; unset = those of the system. A
    /// relative path starts at the directory of the configuration file.
    backend_ca_file: Option<PathBuf>,
    /// First part of the keys in Redis: 1 to 64 of `a-z 0-9 _ -`. Fleets that share a server need
    /// different ones.
    #[serde(deserialize_with = "namespace")]
    namespace: String,
    /// The config of the client.
    #[serde(skip)]
    pub redis: RedisConfig,
    /// Content of the CA file: a reload with another one connects anew.
    #[serde(skip)]
    pub ca: Vec<u8>,
}

impl LeasesConfig {
    /// The URL without user and password, for messages.
    pub fn server(&self) -> String {
        redacted(&self.redis.url)
    }
}

impl Default for LeasesConfig {
    fn default() -> Self {
        let redis = RedisConfig::new("", GROUP);
        Self {
            backend: None,
            backend_file: None,
            backend_ca_file: None,
            namespace: redis.namespace.clone(),
            redis,
            ca: Vec::new(),
        }
    }
}

impl LeasesConfig {
    pub(super) fn check(&mut self, d: &mut Document<'_>) {
        const TABLE: &str = "cap_leases";
        let url = self.backend.as_ref().map(Secret::expose);
        let keys = ["backend", "backend_file"];
        let Some(url) = d.either(TABLE, keys, url, &self.backend_file) else {
            return;
        };

        // The URL is UTF-8 if it is in the configuration; a file with other bytes is no URL.
        self.redis.url = String::from_utf8_lossy(&url).into_owned();
        self.redis.namespace.clone_from(&self.namespace);
        self.redis.ca_file = self.backend_ca_file.as_ref().map(|file| d.beside(file));

        if let Some(file) = &self.backend_ca_file {
            let Some(ca) = d.read_file("cap_leases.backend_ca_file", file) else {
                return;
            };
            self.ca = ca;
        }

        // Connects only when used, but reads the CA file. Its message shows no password.
        if let Err(error) = RedisLeases::connect(&self.redis) {
            let found = format!("is not accepted: {error}");
            d.mistake(
                TABLE,
                &found,
                "backend, or backend_file with the path of a file",
            );
        }
    }
}

fn namespace<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    text(deserializer, "1 to 64 of a-z, 0-9, _ and -", |text| {
        let redis = RedisConfig {
            namespace: text.to_owned(),
            ..RedisConfig::new("redis://host", GROUP)
        };
        redis.validate().is_ok().then(|| text.to_owned())
    })
}

fn as_redacted<S: Serializer>(url: &Option<Secret>, serializer: S) -> Result<S::Ok, S::Error> {
    let url = url
        .as_ref()
        .map(|url| redacted(&String::from_utf8_lossy(url.expose())));
    url.serialize(serializer)
}
