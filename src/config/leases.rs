//! `[cap_leases]`: the Redis or Valkey from which pods lease their parts of caps.

use std::path::PathBuf;

use rtad_redis::{RedisConfig, RedisLeases, redacted};
use serde::Serialize;

use super::reader::Document;
use super::secret;

/// Second part of the keys in Redis.
const GROUP: &str = "caps";

/// The Redis or Valkey of the caps' leases.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct LeasesConfig {
    /// URL of Redis or Valkey, version 2.6.12 or later: `redis://`, `rediss://` for TLS,
    /// `redis+cluster://` for a cluster; a password is percent-encoded. Either this or
    /// `backend_file` is required.
    #[serde(skip_serializing_if = "Option::is_none")]
    backend: Option<String>,
    /// File that holds the URL alone. A relative path starts at the directory of the configuration
    /// file.
    #[serde(skip_serializing_if = "Option::is_none")]
    backend_file: Option<String>,
    /// PEM file of the only trusted CA certificates for `rediss://`; unset = those of the system. A
    /// relative path starts at the directory of the configuration file.
    #[serde(skip_serializing_if = "Option::is_none")]
    backend_ca_file: Option<PathBuf>,
    /// First part of the keys in Redis: 1 to 64 of `a-z 0-9 _ -`. Fleets that share a server need
    /// different ones.
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

/// Reads the table; `None` without one.
pub(super) fn read(d: &mut Document<'_>) -> Option<LeasesConfig> {
    const ACCEPTED: &str = "backend, or backend_file with the path of a file";
    let mut section = d.section("cap_leases");
    let is_there = section.line().is_some();
    let (line, path) = (section.line(), section.path().to_owned());
    let had_mistakes = d.mistakes();
    let url = match is_there {
        true => secret::read_either(d, &mut section, ["backend", "backend_file"], ACCEPTED),
        false => None,
    };
    let namespace = section.read(d, "namespace", "1 to 64 of a-z, 0-9, _ and -", |text| {
        let redis =
            RedisConfig { namespace: text.to_owned(), ..RedisConfig::new("redis://host", GROUP) };
        redis.validate().is_ok().then(|| text.to_owned())
    });
    let ca_file = section.read(d, "backend_ca_file", "a PEM file", |text| Some(text.to_owned()));
    section.finish(d);
    let (url, file) = url?;
    let Ok(url) = String::from_utf8(url) else {
        d.mistake(line, &path, "has a URL that is not UTF-8", ACCEPTED);
        return None;
    };
    if url.contains("://<redacted>@") {
        d.mistake(line, &path, "is redacted, as check-config prints it", "the URL itself");
        return None;
    }
    let mut redis = RedisConfig::new(url, GROUP);
    redis.ca_file = ca_file.as_ref().map(|file| d.beside(file));
    if let Some(namespace) = namespace {
        redis.namespace = namespace;
    }
    let ca = redis.ca_file.as_ref().and_then(|file| std::fs::read(file).ok()).unwrap_or_default();
    d.saw(&ca);
    // Connects only when used, but reads the CA file. Its message shows no password.
    if let Err(error) = RedisLeases::connect(&redis) {
        d.mistake(line, &path, &format!("is not accepted: {error}"), ACCEPTED);
    }
    (d.mistakes() == had_mistakes).then(|| LeasesConfig {
        backend: file.is_none().then(|| redacted(&redis.url)),
        backend_file: file,
        backend_ca_file: ca_file.map(PathBuf::from),
        namespace: redis.namespace.clone(),
        redis,
        ca,
    })
}
