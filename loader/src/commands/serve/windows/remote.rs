//! A window in Redis or Valkey, which several processes may serve.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use metrics::Gauge;
use serde::Serialize;

use rtad_core::snapshot::AudienceName;
use rtad_window::{Key, Token};
use rtad_window_redis::{Lifetime, RedisError, RedisWindow, Seen};

use super::super::error::ApiError;
use super::super::telemetry::Telemetry;
use super::config::{Length, RemoteConfig};
use super::counters::{EventCounters, EventTotals, Results};

/// Time between probes of the server.
const PROBE: Duration = Duration::from_secs(5);

pub(in super::super) struct RemoteWindow {
    name: AudienceName,
    length: Length,
    redis: RedisWindow,
    counters: EventCounters,
    writable: Gauge,
    is_writable: AtomicBool,
}

impl RemoteWindow {
    /// Prepares the connection, which is made with the first event.
    pub(super) fn new(config: &RemoteConfig, telemetry: &Telemetry) -> Result<Self, RedisError> {
        let length_seconds = config.length.seconds();
        let counters = EventCounters::new(telemetry, &config.name, length_seconds);
        let writable = counters.writable(telemetry, &config.name);
        Ok(Self {
            redis: RedisWindow::connect(&config.redis)?,
            name: config.name.clone(),
            length: config.length.clone(),
            counters,
            writable,
            is_writable: AtomicBool::new(false),
        })
    }

    fn lifetime(&self) -> Lifetime {
        match &self.length {
            Length::Sliding(length) => Lifetime::For(*length),
            Length::Day(calendar) => {
                let today = calendar.at(SystemTime::now());
                Lifetime::Until { period: today.number, end: today.end }
            }
        }
    }

    fn period(&self) -> Option<u64> {
        match self.lifetime() {
            Lifetime::For(_) => None,
            Lifetime::Until { period, .. } => Some(period),
        }
    }

    /// Whether each key is new. A request with a token gets the answers of its first attempt.
    pub(in super::super) async fn observe(
        &self,
        keys: &[Key],
        token: Option<Token>,
    ) -> Result<Vec<bool>, ApiError> {
        let token = match token {
            Some(Token(bytes)) => {
                let (low, _) = bytes.split_at(8);
                low.iter().fold(0, |token, byte| token << 8 | u64::from(*byte))
            }
            None => RandomState::new().build_hasher().finish(),
        };
        match self.redis.observe(keys, self.lifetime(), token).await {
            Ok(seen) => Ok(seen.iter().map(|seen| *seen == Seen::New).collect()),
            Err(error) => {
                self.counters.add(Results { failed: keys.len() as u64, ..Results::default() });
                Err(self.failed(&error))
            }
        }
    }

    /// Whether each key is in the window.
    pub(in super::super) async fn check(&self, keys: &[Key]) -> Result<Vec<bool>, ApiError> {
        self.counters.checks.increment(keys.len() as u64);
        self.redis.check(keys, self.period()).await.map_err(|error| self.failed(&error))
    }

    /// Erases keys; whether each was in the window.
    pub(in super::super) async fn forget(&self, keys: &[Key]) -> Result<Vec<bool>, ApiError> {
        let forgotten = self.redis.forget(keys, self.period()).await;
        let forgotten = forgotten.map_err(|error| self.failed(&error))?;
        self.counters.forgotten.increment(forgotten.iter().filter(|was| **was).count() as u64);
        Ok(forgotten)
    }

    /// Adds to the metrics.
    pub(in super::super) fn count(&self, results: Results) {
        self.counters.add(results);
    }

    fn failed(&self, error: &RedisError) -> ApiError {
        let (window, cause) = (self.name.as_str(), error.cause());
        tracing::warn!(window, cause, error = error.to_string(), "backend of a window failed");
        match error {
            RedisError::OutOfMemory { .. } => ApiError::WindowFull,
            _ => ApiError::Backend,
        }
    }

    /// Probes the server, forever.
    pub(super) async fn maintain(self: Arc<Self>) {
        let mut has_warned = false;
        loop {
            let is_writable = self.redis.probe().await.is_ok();
            self.writable.set(f64::from(u8::from(is_writable)));
            self.is_writable.store(is_writable, Ordering::Relaxed);
            if is_writable
                && !has_warned
                && let Ok(capabilities) = self.redis.capabilities().await
            {
                has_warned = true;
                if let Some(warning) = capabilities.warning() {
                    tracing::warn!(window = self.name.as_str(), warning, "backend of a window");
                }
            }
            tokio::time::sleep(PROBE).await;
        }
    }

    /// Entry of `GET /v1/windows`.
    pub(in super::super) fn info(&self) -> RemoteInfo<'_> {
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
pub(in super::super) struct RemoteInfo<'a> {
    window: &'a AudienceName,
    length: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_zone: Option<&'a str>,
    count: u16,
    backend: &'static str,
    writable: bool,
    events: EventTotals,
}
