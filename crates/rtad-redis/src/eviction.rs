//! Eviction policy of a server, from `INFO`.

use redis::{Pipeline, Value};
use tokio::time::Instant;

use crate::error::RedisError;
use crate::node::Node;

/// Whether a server deletes keys to make room: `maxmemory-policy`. The greatest is the worst.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Eviction {
    /// `noeviction`, or a server that keeps its data on disk: a full server refuses new keys.
    Never,
    /// The server reports no policy.
    Unknown,
    /// Any other policy: keys vanish under memory pressure, and their next event is `New` again.
    /// All keys have an expiry, so that the `volatile-` policies evict them too.
    Evicts {
        /// Such as `allkeys-lru`.
        policy: String,
    },
}

impl Eviction {
    /// A warning for the log: the server may delete keys.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        match self {
            Self::Never => None,
            Self::Evicts { policy } => Some(format!(
                "maxmemory-policy: expected noeviction, found {policy}: an evicted key is new again"
            )),
            Self::Unknown => Some(
                "maxmemory-policy: unknown: expected noeviction, or evicted keys are new again"
                    .to_owned(),
            ),
        }
    }

    /// Asks one server. It is unknown if the server refuses the commands.
    pub(crate) async fn of(node: &Node, deadline: Instant) -> Result<Self, RedisError> {
        let mut pipeline = Pipeline::new();
        pipeline.cmd("INFO");
        let info = ask(node, pipeline, deadline)
            .await?
            .and_then(text)
            .unwrap_or_default();
        let found = Self::read(&info);
        if found == Self::Unknown {
            // INFO has named the policy since 4.0.
            let mut pipeline = Pipeline::new();
            pipeline.cmd("CONFIG").arg("GET").arg("maxmemory-policy");
            if let Some(Value::Array(pair)) = ask(node, pipeline, deadline).await?
                && let Some(policy) = pair.into_iter().nth(1).and_then(text)
            {
                return Ok(Self::named(&policy));
            }
        }
        Ok(found)
    }

    fn read(info: &str) -> Self {
        let field = |name: &str| {
            let mut fields = info
                .lines()
                .filter_map(|line| line.trim_end().split_once(':'));
            fields
                .find(|(found, _)| *found == name)
                .map(|(_, value)| value)
        };
        if let Some(policy) = field("maxmemory_policy") {
            return Self::named(policy);
        }
        match field("cache_mode") {
            _ if field("kvrocks_version").is_some() => Self::Never,
            // Dragonfly's.
            Some("store") => Self::Never,
            Some(mode) => Self::named(mode),
            None => Self::Unknown,
        }
    }

    fn named(policy: &str) -> Self {
        match policy {
            "noeviction" => Self::Never,
            _ => Self::Evicts {
                policy: policy.to_owned(),
            },
        }
    }
}

/// The answer to one command; `None` if the server refuses it.
async fn ask(
    node: &Node,
    pipeline: Pipeline,
    deadline: Instant,
) -> Result<Option<Value>, RedisError> {
    let answers = node
        .send(pipeline, deadline)
        .await
        .map_err(|failure| failure.error)?;
    Ok(answers
        .into_iter()
        .next()
        .filter(|answer| !matches!(answer, Value::ServerError(_))))
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
    fn every_policy_but_noeviction_has_a_warning() {
        let warning = |info: &str| Eviction::read(info).warning();
        assert_eq!(
            warning("maxmemory:0\r\nmaxmemory_policy:noeviction\r\n"),
            None
        );
        assert!(
            warning("maxmemory_policy:allkeys-lru\r\n")
                .unwrap()
                .contains("allkeys-lru")
        );
        assert!(warning("maxmemory_policy:volatile-ttl\r\n").is_some());
        assert!(warning("dragonfly_version:df-v1\r\ncache_mode:cache\r\n").is_some());
        assert!(warning("").is_some());
        assert_eq!(warning("kvrocks_version:2.17.0\r\n"), None);
    }
}
