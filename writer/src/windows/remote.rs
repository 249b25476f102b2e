//! A window in Redis or Valkey, which several processes may serve.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use metrics::Gauge;
use parking_lot::Mutex;
use serde::Serialize;

use rtad_core::random;
use rtad_core::snapshot::AudienceName;
use rtad_http::request_error::RequestError;
use rtad_redis::{Lifetime, RedisError, RedisWindow};
use rtad_window::{Key, Observed, RequestKey, Retry, Seen};

use super::super::error::ApiError;
use super::super::telemetry::Telemetry;
use super::config::{Length, RemoteConfig};
use super::counters::{EventCounters, Results};

/// Time between probes of the server.
const PROBE: Duration = Duration::from_secs(5);
/// Requests whose repetitions are recognized: some 5 MB.
const MAX_RECENT: usize = 1 << 16;

pub struct RemoteWindow {
    name: AudienceName,
    length: Length,
    redis: RedisWindow,
    counters: EventCounters,
    recent: Mutex<RecentRequests>,
    writable: Gauge,
    is_writable: AtomicBool,
    health: Health,
}

/// Whether the server fails, for the log: the beginning and the end of a failure, not each request.
#[derive(Default)]
struct Health {
    is_failing: AtomicBool,
    /// A request failed since the last probe.
    has_failed: AtomicBool,
}

impl Health {
    /// A request or a probe failed; whether that begins a failure.
    fn fail(&self) -> bool {
        self.has_failed.store(true, Ordering::Relaxed);
        !self.is_failing.swap(true, Ordering::Relaxed)
    }

    /// A probe succeeded. Returns whether that ends a failure. A cluster may fail in some nodes
    /// only.
    fn pass(&self) -> bool {
        !self.has_failed.swap(false, Ordering::Relaxed)
            && self.is_failing.swap(false, Ordering::Relaxed)
    }
}

/// The last requests with an idempotency key. The server gives a repetition the first answer and
/// does not mark it as one.
#[derive(Default)]
struct RecentRequests {
    requests: HashSet<Retry>,
    /// Oldest first.
    order: VecDeque<Retry>,
}

impl RecentRequests {
    /// Adds a request; whether it is none of the last.
    fn insert(&mut self, request: Retry) -> bool {
        if !self.requests.insert(request) {
            return false;
        }
        self.order.push_back(request);
        if self.order.len() > MAX_RECENT
            && let Some(oldest) = self.order.pop_front()
        {
            self.requests.remove(&oldest);
        }
        true
    }
}

impl RemoteWindow {
    /// Prepares the connection, which is made with the first event.
    pub fn new(config: &RemoteConfig, telemetry: &Telemetry) -> Result<Self, RedisError> {
        let counters = EventCounters::new(telemetry, &config.name);
        let writable = counters.writable(telemetry, &config.name);
        Ok(Self {
            redis: RedisWindow::connect(&config.redis)?,
            name: config.name.clone(),
            length: config.length.clone(),
            counters,
            recent: Mutex::default(),
            writable,
            is_writable: AtomicBool::new(false),
            health: Health::default(),
        })
    }

    /// Life of entries of events at a time; `None` if it has ended.
    fn lifetime(&self, at: Option<SystemTime>) -> Option<Lifetime> {
        let now = SystemTime::now();
        let at = at.map_or(now, |at| at.min(now));
        match &self.length {
            Length::Sliding(length) => (at + *length > now).then_some(Lifetime::For(*length)),
            Length::Day(calendar) => {
                let day = calendar.at(at);
                let lifetime = Lifetime::Until {
                    period: day.number,
                    end: day.end,
                };
                (day.end > now).then_some(lifetime)
            }
        }
    }

    fn period(&self) -> Option<u64> {
        match &self.length {
            Length::Sliding(_) => None,
            Length::Day(calendar) => Some(calendar.at(SystemTime::now()).number),
        }
    }

    /// Counts events; `None` if entries of their time have expired. A request with a token gets the
    /// answers of its first attempt; the highest count is 1.
    pub async fn observe(
        &self,
        keys: &[Key],
        at: Option<SystemTime>,
        retry: Option<Retry>,
    ) -> Result<Option<Observed>, ApiError> {
        let Some(lifetime) = self.lifetime(at) else {
            return Ok(None);
        };
        let token = match retry {
            Some((RequestKey(bytes), _)) => {
                let (low, _) = bytes.split_at(8);
                low.iter()
                    .fold(0, |token, byte| token << 8 | u64::from(*byte))
            }
            None => random::number(),
        };
        match self.redis.observe(keys, lifetime, token).await {
            Ok(seen) => {
                let is_repeated = retry.is_some_and(|request| !self.recent.lock().insert(request));
                let seen = seen.iter().map(|seen| match seen {
                    rtad_redis::Seen::New => Seen::New,
                    rtad_redis::Seen::Duplicate => Seen::Duplicate(1),
                });
                Ok(Some(Observed {
                    seen: seen.collect(),
                    is_repeated,
                }))
            }
            Err(error) => {
                self.counters.add(Results {
                    failed: keys.len() as u64,
                    ..Results::default()
                });
                Err(self.failed(&error))
            }
        }
    }

    /// Counts of keys: 1 for those in the window.
    pub async fn check(&self, keys: &[Key]) -> Result<Vec<u16>, ApiError> {
        self.counters.checks.increment(keys.len() as u64);
        let seen = self.redis.check(keys, self.period()).await;
        Ok(seen
            .map_err(|error| self.failed(&error))?
            .into_iter()
            .map(u16::from)
            .collect())
    }

    /// Erases keys; whether each was in the window.
    pub async fn forget(&self, keys: &[Key]) -> Result<Vec<bool>, ApiError> {
        let forgotten = self.redis.forget(keys, self.period()).await;
        let forgotten = forgotten.map_err(|error| self.failed(&error))?;
        self.counters
            .forgotten
            .increment(forgotten.iter().filter(|was| **was).count() as u64);
        Ok(forgotten)
    }

    /// Adds to the metrics.
    pub fn count(&self, results: Results) {
        self.counters.add(results);
    }

    fn failed(&self, error: &RedisError) -> ApiError {
        if matches!(error, RedisError::Overloaded { .. }) {
            return RequestError::Overloaded.into();
        }
        self.log_failure(error);
        match error {
            RedisError::OutOfMemory { .. } => ApiError::BackendFull,
            _ => ApiError::Backend,
        }
    }

    fn log_failure(&self, error: &RedisError) {
        if self.health.fail() {
            let (window, cause) = (self.name.as_str(), error.cause());
            tracing::warn!(
                window,
                cause,
                error = error.to_string(),
                "backend of a window failed"
            );
        }
    }

    /// Probes the server, forever.
    pub async fn maintain(self: Arc<Self>) {
        let mut has_warned = false;
        loop {
            let probed = self.redis.probe().await;
            let is_writable = probed.is_ok();
            match probed {
                Ok(()) if self.health.pass() => {
                    tracing::info!(
                        window = self.name.as_str(),
                        "backend of a window works again"
                    );
                }
                Ok(()) => {}
                Err(error) => self.log_failure(&error),
            }
            self.writable.set(f64::from(u8::from(is_writable)));
            self.is_writable.store(is_writable, Ordering::Relaxed);
            if is_writable
                && !has_warned
                && let Ok(eviction) = self.redis.eviction().await
            {
                has_warned = true;
                if let Some(warning) = eviction.warning() {
                    tracing::warn!(window = self.name.as_str(), warning, "backend of a window");
                }
            }
            tokio::time::sleep(PROBE).await;
        }
    }

    /// Entry of `GET /v1/windows`.
    pub fn info(&self) -> RemoteInfo<'_> {
        RemoteInfo {
            window: &self.name,
            length: self.length.to_string(),
            time_zone: self.length.time_zone(),
            count: 1,
            backend: "redis",
            writable: self.is_writable.load(Ordering::Relaxed),
            events: self.counters.totals(),
        }
    }
}

#[derive(Debug, Serialize)]
pub struct RemoteInfo<'a> {
    window: &'a AudienceName,
    length: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_zone: Option<&'a str>,
    count: u16,
    backend: &'static str,
    writable: bool,
    events: Results,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_of_the_server_begins_and_ends_once() {
        let health = Health::default();
        assert!(!health.pass());
        assert_eq!([(); 3].map(|()| health.fail()), [true, false, false]);
        // Requests failed since the last probe.
        assert!(!health.pass());
        assert!(health.pass() && !health.pass());
        assert!(health.fail());
    }

    #[test]
    fn recent_requests_are_bounded_and_the_oldest_go_first() {
        let request = |n: u64| (RequestKey([1; 16]), u128::from(n).to_le_bytes());
        let mut recent = RecentRequests::default();
        let last = MAX_RECENT as u64;
        assert!((0..=last).all(|n| recent.insert(request(n))));
        assert_eq!(
            (recent.requests.len(), recent.order.len()),
            (MAX_RECENT, MAX_RECENT)
        );
        assert!(!recent.insert(request(1)) && !recent.insert(request(last)));
        assert!(recent.insert(request(0)));
        assert!(recent.insert(request(1)));
    }
}
