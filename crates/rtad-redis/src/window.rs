//! Window of events in Redis: first writes of keys, with an expiry.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use futures_util::future::try_join_all;
use redis::Value;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};

use crate::command::KeyCommand;
use crate::config::RedisConfig;
use crate::connection::Connector;
use crate::error::RedisError;
use crate::eviction::Eviction;
use crate::name::Names;
use crate::node::Limits;
use crate::router::Router;

/// Time that keys of a period outlive it: for late events and retries, and for owners whose clocks
/// differ. It costs memory alone, as the next period has other names.
const GRACE: Duration = Duration::from_secs(300);
/// Longest lifetime: a hundred years. The server adds the present to it in 64 bits.
const MAX_LIFETIME: Duration = Duration::from_secs(100 * 366 * 86_400);

/// Keys of one pipeline: larger ones keep the server from other clients for longer.
const PIPELINE_KEYS: usize = 1000;
/// Keys that wait for those in flight: 16 MiB.
const MAX_WAITING_KEYS: usize = 1 << 20;
/// Longest wait, in limits of time of an answer.
const MAX_WAIT: u32 = 10;

/// Lifetime of a key, from its first event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lifetime {
    /// A rolling window: a key is new again this long after its first event. Later events do not
    /// extend it. The accepted range is a millisecond to a hundred years.
    For(Duration),
    /// A calendar window, such as a day: the key is new again in the next period.
    Until {
        /// Number of the period, such as days since 1970 in the window's time zone. It is part of
        /// the name in Redis, so that a period begins at once, for all owners.
        period: u64,
        /// End of the period. The key expires five minutes later, because the clocks of owners may
        /// differ. Repeated events of an ended period are detected for these five minutes.
        end: SystemTime,
    },
}

impl Lifetime {
    fn period(self) -> Option<u64> {
        match self {
            Self::For(_) => None,
            Self::Until { period, .. } => Some(period),
        }
    }

    /// Milliseconds to live, from 1.
    fn millis(self) -> u64 {
        let lifetime = match self {
            Self::For(lifetime) => lifetime,
            Self::Until { end, .. } => end
                .duration_since(SystemTime::now())
                .unwrap_or_default()
                .saturating_add(GRACE),
        };
        u64::try_from(lifetime.min(MAX_LIFETIME).as_millis())
            .unwrap_or(u64::MAX)
            .max(1)
    }
}

/// Answer for one key of a batch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Seen {
    /// The key's first event in the window.
    New,
    /// The window has an earlier event of the key, or the batch has.
    Duplicate,
}

/// A window of events, shared through Redis by all processes with the same URL, namespace and
/// window.
///
/// Its methods take `&self` and may run concurrently. Requests of one process share one connection
/// per server. Dropping a call's future does not undo its commands: repeat it with the same token.
pub struct RedisWindow {
    names: Names,
    router: Router,
    limits: Limits,
    max_in_flight: usize,
    /// One permit per key in flight.
    in_flight: Semaphore,
    /// One permit per key that may wait.
    waiting: Semaphore,
}

impl RedisWindow {
    /// Validates the config and reads the CA file. Connects with the first request, and again after
    /// a lost connection: the server need not run yet.
    ///
    /// # Errors
    ///
    /// [`RedisError::Config`].
    pub fn connect(config: &RedisConfig) -> Result<Self, RedisError> {
        let target = config.target()?;
        let limits = Limits {
            connect: config.connect_timeout,
            response: config.response_timeout,
        };
        let connector = Connector::new(&target, config.ca_file.as_deref())?;
        Ok(Self {
            names: Names::new(&config.namespace, &config.window),
            router: Router::new(&target, connector, limits),
            limits,
            max_in_flight: config.max_keys_in_flight.min(MAX_WAITING_KEYS),
            in_flight: Semaphore::new(config.max_keys_in_flight.min(MAX_WAITING_KEYS)),
            waiting: Semaphore::new(MAX_WAITING_KEYS),
        })
    }

    /// Records an event for each key, and tells which keys are new, in the order of `keys`.
    ///
    /// One of all calls for a key and window, by all owners, gets `New`. Identical keys of a batch
    /// have one event: the first may be new, the others are duplicates.
    ///
    /// `token` names the request: random, or derived from the client's idempotency key with a
    /// 64-bit hash, and never used for another request. A repetition with the same token gets the
    /// answers of the first attempt, whichever owner executes it, until the key expires.
    ///
    /// One round trip per server and 1,000 keys, and about 200 bytes per key. Batches of 1,000 keys
    /// use the server best; each must be answered within the response timeout.
    ///
    /// # Errors
    ///
    /// The first error of a key. Some keys may have been recorded, or will be: repeat the call with
    /// the same token. If it is not repeated, the next event of such a key is a duplicate.
    pub async fn observe(
        &self,
        keys: &[[u8; 16]],
        lifetime: Lifetime,
        token: u64,
    ) -> Result<Vec<Seen>, RedisError> {
        let (unique, indexes) = deduplicated(keys);
        // Redis stores a number of 64 bits with a sign inside its object.
        let token = token.cast_signed().to_string();
        let own = token.clone().into_bytes();
        let command = KeyCommand::Observe {
            token,
            millis: lifetime.millis(),
        };
        let answers = self.run(&command, &unique, lifetime.period()).await?;
        let mut seen = Vec::with_capacity(answers.len());
        for answers in &answers {
            seen.push(match &answers[..] {
                [Value::Okay, _] => Seen::New,
                [Value::Nil, Value::BulkString(found)] if *found == own => Seen::New,
                // The key has expired since the first command.
                [Value::Nil, Value::BulkString(_) | Value::Nil] => Seen::Duplicate,
                _ => return Err(self.unexpected("SET")),
            });
        }
        let mut first = vec![true; seen.len()];
        Ok(indexes
            .into_iter()
            .map(|index| match std::mem::take(&mut first[index]) {
                true => seen[index],
                false => Seen::Duplicate,
            })
            .collect())
    }

    /// Whether each key has an event in the window, without recording one. `period` is that of
    /// [`Lifetime::Until`], `None` for [`Lifetime::For`].
    ///
    /// # Errors
    ///
    /// The first error of a key.
    pub async fn check(
        &self,
        keys: &[[u8; 16]],
        period: Option<u64>,
    ) -> Result<Vec<bool>, RedisError> {
        self.run_counted(&KeyCommand::Exists, keys, period).await
    }

    /// Removes the keys from the window; returns whether each was there. A key's next event is new.
    ///
    /// A lost connection repeats the removal, and keys that the first attempt removed are then
    /// `false`.
    ///
    /// # Errors
    ///
    /// The first error of a key. Other keys may have been removed.
    pub async fn forget(
        &self,
        keys: &[[u8; 16]],
        period: Option<u64>,
    ) -> Result<Vec<bool>, RedisError> {
        self.run_counted(&KeyCommand::Delete, keys, period).await
    }

    /// Writes a key that expires in a second to each server: fails whenever `observe` would, also
    /// on a replica or without memory.
    ///
    /// # Errors
    ///
    /// The first error of a server; a cluster with slots without an owner is unreachable.
    pub async fn probe(&self) -> Result<(), RedisError> {
        let deadline = self.deadline();
        let names = self
            .router
            .name_for_each(|number| self.names.probe(number), deadline)
            .await?;
        for answers in self
            .router
            .run(&KeyCommand::Probe, &names, deadline)
            .await?
        {
            if !matches!(answers[..], [Value::Okay]) {
                return Err(self.unexpected("SET"));
            }
        }
        Ok(())
    }

    /// Eviction policy of the server: of a cluster, the worst of all primaries.
    ///
    /// # Errors
    ///
    /// No answer. A server that denies `INFO` is no error: its policy is unknown.
    pub async fn eviction(&self) -> Result<Eviction, RedisError> {
        let deadline = self.deadline();
        let nodes = self.router.primaries(deadline).await?;
        let asked = nodes.iter().map(|node| Eviction::of(node, deadline));
        let worst = try_join_all(asked).await?.into_iter().max();
        worst.ok_or_else(|| self.unexpected("INFO"))
    }

    async fn run_counted(
        &self,
        command: &KeyCommand,
        keys: &[[u8; 16]],
        period: Option<u64>,
    ) -> Result<Vec<bool>, RedisError> {
        let (unique, indexes) = deduplicated(keys);
        let answers = self.run(command, &unique, period).await?;
        let mut found = Vec::with_capacity(answers.len());
        for answers in &answers {
            found.push(match answers[..] {
                [Value::Int(count)] => count > 0,
                _ => return Err(self.unexpected("EXISTS or DEL")),
            });
        }
        Ok(indexes.into_iter().map(|index| found[index]).collect())
    }

    async fn run(
        &self,
        command: &KeyCommand,
        keys: &[[u8; 16]],
        period: Option<u64>,
    ) -> Result<Vec<Vec<Value>>, RedisError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let overloaded = || RedisError::Overloaded {
            server: self.router.server().to_owned(),
        };
        let weight = keys.len().min(MAX_WAITING_KEYS) as u32;
        let _waiting = self
            .waiting
            .try_acquire_many(weight)
            .map_err(|_| overloaded())?;
        let names: Vec<Vec<u8>> = keys.iter().map(|key| self.names.key(period, key)).collect();
        let is_sent = AtomicBool::new(false);
        let pipelines = names.chunks(PIPELINE_KEYS).map(async |names| {
            let _admitted = self.admit(names.len()).await.ok_or_else(|| {
                match is_sent.load(Ordering::Relaxed) {
                    false => overloaded(),
                    true => RedisError::timeout(self.router.server(), "behind other requests"),
                }
            })?;
            is_sent.store(true, Ordering::Relaxed);
            self.router.run(command, names, self.deadline()).await
        });
        Ok(try_join_all(pipelines).await?.concat())
    }

    /// Waits until so many keys may be in flight; `None` if that takes too long. A pipeline beyond
    /// the limit has the server alone.
    async fn admit(&self, keys: usize) -> Option<SemaphorePermit<'_>> {
        let keys = self
            .in_flight
            .acquire_many(keys.min(self.max_in_flight) as u32);
        timeout(self.limits.response * MAX_WAIT, keys)
            .await
            .ok()?
            .ok()
    }

    /// Deadline of a call that begins now.
    fn deadline(&self) -> Instant {
        Instant::now() + self.limits.connect + self.limits.response
    }

    fn unexpected(&self, command: &str) -> RedisError {
        RedisError::other(
            self.router.server(),
            format!("unexpected answer to {command}"),
        )
    }
}

impl fmt::Debug for RedisWindow {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut window = formatter.debug_struct("RedisWindow");
        window
            .field("server", &self.router.server())
            .field("names", &self.names);
        window.finish_non_exhaustive()
    }
}

/// Distinct keys in the order of their first occurrence, and for each key its index among them.
fn deduplicated(keys: &[[u8; 16]]) -> (Vec<[u8; 16]>, Vec<usize>) {
    let mut unique = Vec::with_capacity(keys.len());
    let mut known = HashMap::with_capacity(keys.len());
    let indexes = keys.iter().map(|key| match known.entry(*key) {
        Entry::Occupied(found) => *found.get(),
        Entry::Vacant(free) => {
            unique.push(*key);
            *free.insert(unique.len() - 1)
        }
    });
    let indexes = indexes.collect();
    (unique, indexes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_are_positive_and_bounded() {
        assert_eq!(Lifetime::For(Duration::ZERO).millis(), 1);
        assert_eq!(Lifetime::For(Duration::from_millis(1500)).millis(), 1500);
        assert!(Lifetime::For(Duration::MAX).millis() < 1 << 42);
    }

    #[test]
    fn keys_of_a_period_outlive_its_end() {
        let now = SystemTime::now();
        let millis = |end| Lifetime::Until { period: 1, end }.millis();
        let minute = Duration::from_secs(60);
        let ahead = millis(now + minute);
        assert!((330_000..=360_000).contains(&ahead), "{ahead}");
        assert_eq!(millis(now - minute), 300_000);
    }

    #[test]
    fn identical_keys_share_an_index() {
        let keys = [[1; 16], [2; 16], [1; 16], [3; 16], [2; 16]];
        let (unique, indexes) = deduplicated(&keys);
        assert_eq!(unique, [[1; 16], [2; 16], [3; 16]]);
        assert_eq!(indexes, [0, 1, 0, 2, 1]);
    }
}
