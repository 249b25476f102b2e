//! Product, version and eviction policy of a server, from `INFO`.

use redis::{Pipeline, Value};
use tokio::time::Instant;

use crate::error::RedisError;
use crate::node::Node;

/// Properties of a server, as far as it reports them.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Capabilities {
    /// `redis`, `valkey`, `kvrocks` or `dragonfly`; `None` if `INFO` is denied.
    pub product: Option<&'static str>,
    /// The product's version, such as `7.0.15`.
    pub version: Option<String>,
    /// Whether keys can vanish before the end of their window.
    pub eviction: Eviction,
    /// Limit of memory in bytes; `None` if unknown or unlimited.
    pub max_memory: Option<u64>,
}

/// Whether a server deletes keys to make room: `maxmemory-policy`.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Eviction {
    /// `noeviction`, or a server that keeps its data on disk: a full server refuses new keys.
    Never,
    /// Any other policy: keys vanish under memory pressure, and their next event is `New` again.
    /// All keys have an expiry, so that the `volatile-` policies evict them too.
    Evicts {
        /// Such as `allkeys-lru`.
        policy: String,
    },
    /// The server reports no policy.
    Unknown,
}

impl Capabilities {
    /// A warning for the log: the server may delete keys.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        match &self.eviction {
            Eviction::Never => None,
            Eviction::Evicts { policy } => Some(format!(
                "maxmemory-policy: expected noeviction, found {policy}: an evicted key is new again"
            )),
            Eviction::Unknown => Some(
                "maxmemory-policy: unknown: expected noeviction, or evicted keys are new again"
                    .to_owned(),
            ),
        }
    }

    /// Asks one server. A refusal of the server leaves fields unknown.
    pub(crate) async fn of(node: &Node, deadline: Instant) -> Result<Self, RedisError> {
        let mut pipeline = Pipeline::new();
        pipeline.cmd("INFO");
        let info = ask(node, pipeline, deadline).await?.and_then(text).unwrap_or_default();
        let mut found = Self::read(&info);
        if found.eviction == Eviction::Unknown {
            // INFO has named the policy since 4.0.
            let mut pipeline = Pipeline::new();
            pipeline.cmd("CONFIG").arg("GET").arg("maxmemory-policy");
            if let Some(Value::Array(pair)) = ask(node, pipeline, deadline).await?
                && let Some(policy) = pair.into_iter().nth(1).and_then(text)
            {
                found.eviction = eviction(&policy);
            }
        }
        Ok(found)
    }

    fn read(info: &str) -> Self {
        let field = |name: &str| {
            let mut fields = info.lines().filter_map(|line| line.trim_end().split_once(':'));
            fields.find(|(found, _)| *found == name).map(|(_, value)| value.to_owned())
        };
        // The others name a version of Redis too, for clients that depend on it.
        let products = ["kvrocks", "dragonfly", "valkey", "redis"];
        let product = products.into_iter().find_map(|product| {
            field(&format!("{product}_version")).map(|version| (product, version))
        });
        let (product, version) = product.unzip();
        let eviction = match field("maxmemory_policy") {
            Some(policy) => eviction(&policy),
            None if product == Some("kvrocks") => Eviction::Never,
            None => match field("cache_mode").as_deref() {
                Some("store") => Eviction::Never,
                Some(mode) => Eviction::Evicts { policy: mode.to_owned() },
                None => Eviction::Unknown,
            },
        };
        let max_memory = field("maxmemory").and_then(|bytes| bytes.parse().ok());
        Self { product, version, eviction, max_memory: max_memory.filter(|bytes| *bytes > 0) }
    }
}

fn eviction(policy: &str) -> Eviction {
    if policy == "noeviction" {
        Eviction::Never
    } else {
        Eviction::Evicts { policy: policy.to_owned() }
    }
}

/// The answer to one command; `None` if the server refuses it.
async fn ask(
    node: &Node,
    pipeline: Pipeline,
    deadline: Instant,
) -> Result<Option<Value>, RedisError> {
    let answers = node.send(pipeline, deadline).await.map_err(|failure| failure.error)?;
    Ok(answers.into_iter().next().filter(|answer| !matches!(answer, Value::ServerError(_))))
}

fn text(value: Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_told_apart_by_their_version_fields() {
        for (info, product, version) in [
            ("# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n", "redis", "7.0.15"),
            (
                "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n",
                "valkey",
                "9.1.2",
            ),
            ("redis_version:7.4.0\r\ndragonfly_version:df-v1.40.1\r\n", "dragonfly", "df-v1.40.1"),
            ("# Server\nkvrocks_version:2.17.0\nredis_version:4.0.0\n", "kvrocks", "2.17.0"),
        ] {
            let found = Capabilities::read(info);
            assert_eq!((found.product, found.version.as_deref()), (Some(product), Some(version)));
        }
        assert_eq!(Capabilities::read("").product, None);
    }

    #[test]
    fn every_policy_but_noeviction_has_a_warning() {
        let warning = |info: &str| Capabilities::read(info).warning();
        assert_eq!(warning("maxmemory:0\r\nmaxmemory_policy:noeviction\r\n"), None);
        assert!(warning("maxmemory_policy:allkeys-lru\r\n").unwrap().contains("allkeys-lru"));
        assert!(warning("maxmemory_policy:volatile-ttl\r\n").is_some());
        assert!(warning("dragonfly_version:df-v1\r\ncache_mode:cache\r\n").is_some());
        assert!(warning("").is_some());
        assert_eq!(warning("kvrocks_version:2.17.0\r\n"), None);
    }

    #[test]
    fn memory_without_a_limit_has_none() {
        assert_eq!(Capabilities::read("maxmemory:0\r\n").max_memory, None);
        assert_eq!(Capabilities::read("maxmemory:1048576\r\n").max_memory, Some(1 << 20));
    }
}
