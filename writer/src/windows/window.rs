//! A window of this process, for the handlers: of an owner or of a standby.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::Instant;

use rtad_core::snapshot::AudienceName;
use rtad_window::{Key, Observed, Retry};

use super::super::error::ApiError;
use super::super::telemetry::Telemetry;
use super::config::{Survival, WindowConfig};
use super::counters::{Counters, Results};
use super::served::ServedWindow;

/// Time between maintenance runs.
const MAINTENANCE: Duration = Duration::from_secs(1);
/// Time after which an owner that gives no answer accepts no events: its disk or store hangs.
const HANGS: Duration = Duration::from_secs(10);

pub struct Window {
    pub(super) config: WindowConfig,
    pub(super) counters: Arc<Counters>,
    /// Set by the take-over.
    owned: OnceLock<Arc<ServedWindow>>,
    /// Progress as a standby.
    followed: Mutex<FollowedLog>,
}

/// Segments that a standby has.
#[derive(Debug, Clone, Copy)]
struct FollowedLog {
    newest: u64,
    /// When it had all of them.
    complete_at: Instant,
}

impl Window {
    pub fn new(config: WindowConfig, telemetry: &Telemetry) -> Self {
        let counters = Arc::new(Counters::new(telemetry, &config));
        let followed = FollowedLog {
            newest: 0,
            complete_at: Instant::now(),
        };
        Self {
            config,
            counters,
            owned: OnceLock::new(),
            followed: Mutex::new(followed),
        }
    }

    /// The window if this process owns it.
    pub fn owned(&self) -> Option<&Arc<ServedWindow>> {
        self.owned.get()
    }

    /// Whether this process owns the window, and may acknowledge events.
    pub fn is_writable(&self) -> bool {
        self.owned()
            .is_some_and(|served| served.handle.state().is_writable)
    }

    /// This process owns the window from now on.
    pub fn set_owned(&self, served: Arc<ServedWindow>) {
        let _ = self.owned.set(served);
    }

    /// Notes the newest segment that a standby has, and whether it is the last one.
    pub fn set_followed(&self, newest: u64, is_complete: bool) {
        let mut followed = self.followed.lock();
        followed.newest = newest;
        if is_complete {
            followed.complete_at = Instant::now();
        }
    }

    fn served(&self) -> Result<&ServedWindow, ApiError> {
        match self.owned() {
            Some(served) => Ok(served),
            None => Err(ApiError::NotOwner),
        }
    }

    /// Counts events; `None` if entries of their time have expired. A request with a token gets the
    /// answers of its first attempt.
    pub async fn observe(
        &self,
        keys: Vec<Key>,
        at: Option<SystemTime>,
        retry: Option<Retry>,
    ) -> Result<Option<Observed>, ApiError> {
        self.served()?.observe(keys, at, retry).await
    }

    /// Counts of keys, without a change: 0 for keys that are not in the window.
    pub async fn check(&self, keys: Vec<Key>) -> Result<Vec<u16>, ApiError> {
        self.served()?.check(keys).await
    }

    /// Erases keys; whether each was in the window.
    pub async fn forget(&self, keys: Vec<Key>) -> Result<Vec<bool>, ApiError> {
        self.served()?.forget(keys).await
    }

    /// Adds to the metrics.
    pub fn count(&self, results: Results) {
        self.counters.events.add(results);
    }

    /// Keeps metrics up to date, until the engine of the window has ended.
    pub async fn maintain(&self) {
        while !self.has_ended() {
            self.maintain_once(HANGS).await;
            tokio::time::sleep(MAINTENANCE).await;
        }
        self.counters.owner.set(0.0);
    }

    /// Whether this process owned the window, and does not any more.
    fn has_ended(&self) -> bool {
        self.owned().is_some_and(|served| served.handle.has_ended())
    }

    pub async fn maintain_once(&self, hangs: Duration) {
        match self.owned() {
            None => {
                self.counters.owner.set(0.0);
                self.counters.behind.set(self.behind().as_secs_f64());
            }
            Some(served) => {
                let asked = tokio::time::timeout(hangs, served.handle.counts(Vec::new())).await;
                served.update_gauges(asked.is_ok());
            }
        }
    }

    /// Age of the oldest events that the other side lacks: the store those of an owner, a standby
    /// those of the store.
    fn behind(&self) -> Duration {
        match self.owned() {
            Some(served) => served.handle.state().unshipped_age,
            None => self.followed.lock().complete_at.elapsed(),
        }
    }

    /// Entry of `GET /v1/windows`.
    pub fn info(&self) -> WindowInfo<'_> {
        let owned = self.owned();
        let segment = match owned {
            Some(served) => served.handle.state().created,
            None => self.followed.lock().newest,
        };
        WindowInfo {
            window: &self.config.name,
            length: self.config.length.to_string(),
            time_zone: self.config.length.time_zone(),
            capacity: self.config.spec.capacity,
            count: self.config.spec.count,
            durability: self.config.durability,
            role: if owned.is_some() { "owner" } else { "standby" },
            segment,
            behind_seconds: self.behind().as_secs_f64(),
            owned: owned.map(|served| OwnedInfo::of(self, served)),
            events: Results {
                full: owned.map_or(0, |served| served.handle.state().window.full),
                ..self.counters.events.totals()
            },
        }
    }
}

#[derive(Debug, Serialize)]
pub struct WindowInfo<'a> {
    window: &'a AudienceName,
    length: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_zone: Option<&'a str>,
    capacity: u64,
    count: u16,
    durability: Survival,
    role: &'static str,
    /// Number of the newest segment that this process has created or applied.
    segment: u64,
    behind_seconds: f64,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    owned: Option<OwnedInfo>,
    events: Results,
}

/// Facts that only an owner knows.
#[derive(Debug, Serialize)]
struct OwnedInfo {
    writable: bool,
    entries: u64,
    fill_ratio: f64,
    expected_fpr: f64,
    memory_bytes: u64,
    log_bytes: u64,
    answers_bytes: u64,
    answers_evicted: u64,
}

impl OwnedInfo {
    fn of(window: &Window, served: &ServedWindow) -> Self {
        let state = served.handle.state();
        Self {
            writable: state.is_writable,
            entries: state.window.entries,
            fill_ratio: state.window.entries as f64 / window.config.spec.capacity as f64,
            expected_fpr: state.window.expected_fpr,
            memory_bytes: state.window.memory_bytes,
            log_bytes: state.log_bytes,
            answers_bytes: state.answers_bytes,
            answers_evicted: state.answers_evicted,
        }
    }
}
