//! Config of a Redis: URL, names and limits.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use url::Url;

use crate::error::RedisError;

const DEFAULT_PORT: u16 = 6379;
const MAX_NAME: usize = 64;

/// Config of a [`RedisWindow`](crate::RedisWindow) or of [`RedisLeases`](crate::RedisLeases).
///
/// `Debug` hides the passwords.
#[derive(Clone, Eq, PartialEq)]
pub struct RedisConfig {
    /// `redis://[user:password@]host[:port][/db]`; `rediss://` for TLS. A cluster has
    /// `redis+cluster://` or `rediss+cluster://`, or `?cluster=true`, and may name several nodes to
    /// begin with: `redis+cluster://host1:7000,host2:7000`. User and password are percent-encoded.
    /// The port defaults to 6379, the database to 0; a cluster has no other database.
    pub url: String,
    /// PEM file of CA certificates for `rediss://`: the only trusted ones. Default: those of the
    /// system.
    pub ca_file: Option<PathBuf>,
    /// First part of each key: 1 to 64 of `a-z 0-9 _ -`. Default `rtad`. Deployments that share a
    /// server need different ones.
    pub namespace: String,
    /// Name of the window or of the leases, the second part of each key: 1 to 64 of `a-z 0-9 _ -`.
    pub window: String,
    /// Limit of time for a new connection, with TLS and authentication. Default 250 ms.
    pub connect_timeout: Duration,
    /// Limit of time for the answer to a request. Default 500 ms. A call takes at most
    /// `connect_timeout` plus `response_timeout` from its first command, with its retries.
    pub response_timeout: Duration,
    /// Largest number of keys in flight; other calls wait, for at most ten times
    /// `response_timeout`, and send nothing if that passes. Default 4,000: more do not use a
    /// server better.
    pub max_keys_in_flight: usize,
}

impl RedisConfig {
    /// The defaults for a URL and a window.
    #[must_use]
    pub fn new(url: impl Into<String>, window: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            ca_file: None,
            namespace: "rtad".to_owned(),
            window: window.into(),
            connect_timeout: Duration::from_millis(250),
            response_timeout: Duration::from_millis(500),
            max_keys_in_flight: 4000,
        }
    }

    /// Checks all fields but the CA file, without a connection.
    ///
    /// # Errors
    ///
    /// The first invalid field, without passwords.
    pub fn validate(&self) -> Result<(), RedisError> {
        self.target().map(|_| ())
    }

    /// Validates all fields but the CA file.
    pub(crate) fn target(&self) -> Result<Target, RedisError> {
        for (field, name) in [("namespace", &self.namespace), ("window", &self.window)] {
            let accepted = |byte: u8| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte)
            };
            if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(accepted) {
                return Err(RedisError::Config(format!(
                    "{field}: expected 1 to {MAX_NAME} of a-z, 0-9, _ and -, found {name:?}"
                )));
            }
        }
        if self.connect_timeout.is_zero() || self.response_timeout.is_zero() {
            return Err(RedisError::Config(
                "timeouts: expected more than 0".to_owned(),
            ));
        }
        if self.max_keys_in_flight == 0 {
            return Err(RedisError::Config(
                "max_keys_in_flight: expected at least 1".to_owned(),
            ));
        }
        let target = Target::parse(&self.url)?;
        if self.ca_file.is_some() && !target.tls {
            return Err(RedisError::Config(
                "ca_file: expected a rediss:// URL beside it, found redis://".to_owned(),
            ));
        }
        Ok(target)
    }
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RedisConfig")
            .field("url", &redacted(&self.url))
            .field("ca_file", &self.ca_file)
            .field("namespace", &self.namespace)
            .field("window", &self.window)
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .field("max_keys_in_flight", &self.max_keys_in_flight)
            .finish()
    }
}

/// The URL without user and password, for messages.
#[must_use]
pub fn redacted(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://<redacted>@{rest}"),
        _ => url.to_owned(),
    }
}

/// Host and port of a server.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(formatter, "[{}]:{}", self.host, self.port)
        } else {
            write!(formatter, "{}:{}", self.host, self.port)
        }
    }
}

/// A parsed URL.
#[derive(Clone, Eq, PartialEq)]
pub(crate) struct Target {
    /// One server; of a cluster, the nodes to begin with.
    pub(crate) addresses: Vec<Address>,
    pub(crate) cluster: bool,
    pub(crate) tls: bool,
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: u32,
}

impl Target {
    fn parse(url: &str) -> Result<Self, RedisError> {
        // No message quotes the URL, which may contain a password.
        let invalid = |what: &str| RedisError::Config(format!("url: {what}"));
        let (scheme, rest) = url.split_once("://").ok_or_else(|| {
            invalid("expected redis://, rediss://, redis+cluster:// or rediss+cluster://")
        })?;
        let (tls, mut cluster) = match scheme {
            "redis" => (false, false),
            "rediss" => (true, false),
            "redis+cluster" => (false, true),
            "rediss+cluster" => (true, true),
            _ => {
                return Err(invalid(
                    "scheme: expected redis, rediss, redis+cluster or rediss+cluster",
                ));
            }
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(end);
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (format!("{user}@"), hosts),
            None => (String::new(), authority),
        };
        let mut addresses = Vec::new();
        let mut first = None;
        for host in hosts.split(',') {
            let parsed = Url::parse(&format!("redis://{user}{host}{tail}"))
                .map_err(|error| invalid(&error.to_string()))?;
            let name = parsed.host_str().filter(|name| !name.is_empty());
            let name = name.ok_or_else(|| invalid("expected a host"))?;
            addresses.push(Address {
                host: name.trim_matches(['[', ']']).to_owned(),
                port: parsed.port().unwrap_or(DEFAULT_PORT),
            });
            first.get_or_insert(parsed);
        }
        let url = first.ok_or_else(|| invalid("expected a host"))?;
        for (name, value) in url.query_pairs() {
            match (&*name, &*value) {
                ("cluster", "true") => cluster = true,
                ("cluster", "false") if !cluster => {}
                ("cluster", _) => return Err(invalid("cluster: expected true or false")),
                _ => return Err(invalid("query: expected nothing but cluster=true")),
            }
        }
        if url.fragment().is_some() {
            return Err(invalid("expected no fragment"));
        }
        let database = match url.path().trim_matches('/') {
            "" => 0,
            number => number
                .parse()
                .map_err(|_| invalid("database: expected a number after the host"))?,
        };
        if cluster && database != 0 {
            return Err(invalid("database: a cluster has only database 0"));
        }
        if !cluster && addresses.len() > 1 {
            return Err(invalid("expected one host, or cluster=true"));
        }
        let decoded = |text: &str| {
            let text = percent_decode_str(text).decode_utf8();
            text.map(String::from)
                .map_err(|_| invalid("user or password: expected UTF-8"))
        };
        let username = Some(decoded(url.username())?).filter(|name| !name.is_empty());
        let password = url.password().map(decoded).transpose()?;
        Ok(Self {
            addresses,
            cluster,
            tls,
            username,
            password,
            database,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Target {
        Target::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    fn hosts(url: &str) -> Vec<String> {
        parse(url)
            .addresses
            .iter()
            .map(Address::to_string)
            .collect()
    }

    #[test]
    fn urls_name_host_database_and_credentials() {
        let target = parse("redis://me:p%40ss@cache.example:6380/3");
        assert_eq!(target.addresses[0].to_string(), "cache.example:6380");
        assert_eq!(
            (target.tls, target.cluster, target.database),
            (false, false, 3)
        );
        assert_eq!(target.username.as_deref(), Some("me"));
        assert_eq!(target.password.as_deref(), Some("p@ss"));
        assert_eq!(parse("redis://:secret@h").username, None);
        assert_eq!(hosts("rediss://[::1]"), ["[::1]:6379"]);
        assert!(parse("rediss://h").tls);
    }

    #[test]
    fn clusters_are_named_by_scheme_or_query() {
        for url in [
            "redis+cluster://h",
            "redis://h?cluster=true",
            "rediss://h/?cluster=true",
        ] {
            assert!(parse(url).cluster, "{url}");
        }
        assert!(parse("rediss+cluster://h").tls);
        assert_eq!(
            hosts("redis+cluster://u:p@a:1,b:2,c"),
            ["a:1", "b:2", "c:6379"]
        );
    }

    #[test]
    fn invalid_urls_are_rejected_without_quoting_them() {
        for url in [
            "h:6379",
            "http://:secret@h",
            "redis://",
            "redis://:secret@",
            "redis://:secret@h/one",
            "redis://:secret@a,b",
            "redis+cluster://:secret@h/1",
            "redis://:secret@h?clusters=true",
            "redis://:secret@h#insecure",
        ] {
            let error = Target::parse(url)
                .err()
                .unwrap_or_else(|| panic!("accepted: {url}"));
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn names_are_restricted() {
        for (namespace, window) in [
            ("rtad", "Day"),
            ("rtad", ""),
            ("a:b", "day"),
            ("{a}", "day"),
        ] {
            let mut config = RedisConfig::new("redis://h", window);
            config.namespace = namespace.to_owned();
            assert!(config.target().is_err(), "{namespace} {window}");
        }
        assert!(
            RedisConfig::new("redis://h", "seen_7-days")
                .target()
                .is_ok()
        );
    }

    #[test]
    fn debug_hides_passwords() {
        let config = RedisConfig::new("redis://me:hidden@h:1/2", "day");
        let text = format!("{config:?}");
        assert!(!text.contains("hidden") && text.contains("h:1/2"), "{text}");
    }
}
