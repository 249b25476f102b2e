//! A window that is served: clock, events, erasure, maintenance.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use rtad_core::snapshot::AudienceName;
use rtad_store::write::{StoreWriter, WindowCheckpoints};
use rtad_window::{
    Durability, Durable, Failure, Key, Observed, SavedCheckpoint, Seen, StateDir, Ticket, Token,
};

use super::super::error::ApiError;
use super::super::telemetry::Telemetry;
use super::WindowError;
use super::clock::{Clock, tick_at};
use super::config::{Config, Length, WhenFull, WindowConfig};
use super::counters::{Counters, EventTotals, Results, UploadCounters};
use super::reports::Reports;
use super::stored::{Stored, Uploads, claim};

/// Time between maintenance runs.
const MAINTENANCE: Duration = Duration::from_secs(1);
/// Random keys looked up per maintenance run, to measure the false-positive rate.
const PROBES: usize = 10_000;
/// Time between requests for the owner in the store, and after a failed upload.
const OWNER_CHECK: Duration = Duration::from_secs(5);

pub(in super::super) struct ServedWindow {
    pub(super) config: WindowConfig,
    durable: Durable,
    /// `None` if the window is not kept.
    uploads: Option<Uploads>,
    clock: Clock,
    counters: Counters,
    reports: Vec<Arc<Reports>>,
    probes: AtomicU64,
    false_positives: AtomicU64,
    failures: Mutex<u64>,
}

/// Request with a key that makes it idempotent, and the digest of its body.
pub(in super::super) type Retry = Option<(Token, [u8; 16])>;

impl ServedWindow {
    /// Claims the window, and opens its files: local ones, those in the store, or new ones.
    pub(super) async fn open(
        config: WindowConfig,
        all: &Config,
        reports: Vec<Arc<Reports>>,
        telemetry: &Telemetry,
        store: &StoreWriter,
    ) -> Result<Self, WindowError> {
        let mut uploads = None;
        let mut state_dir = None;
        if config.durability != Durability::None {
            let name = &config.name;
            let dir = StateDir::lock(&all.state_dir.join(name.as_str()));
            let dir = dir.map_err(WindowError::Files)?;
            let checkpoints = WindowCheckpoints::new(store.clone(), name.clone());
            let current = claim(&checkpoints, name, &dir).await.map_err(WindowError::Claim)?;
            let counters = UploadCounters::new(telemetry, name);
            uploads = Some(Uploads::new(name.clone(), checkpoints, current, counters));
            state_dir = Some(dir);
        }
        let now = SystemTime::now();
        let tick = tick_at(&config.length, now);
        let mut spec = config.spec;
        if !reports.is_empty() {
            // One more than is shown: a key is reported when its count passes, not at each event.
            spec.count += 1;
        }
        let durable = match state_dir {
            None => Durable::in_memory(spec, tick).map_err(Into::into),
            Some(dir) => {
                let clock = config.length.clock();
                Durable::open_locked(dir, spec, &clock, tick, config.durability)
            }
        };
        let durable = durable.map_err(WindowError::Files)?;
        let clock = Clock::start(&config.length, durable.window().tick(), now);
        let memory_bytes = durable.stats().window.memory_bytes;
        let counters = Counters::new(telemetry, &config, memory_bytes);
        let (probes, false_positives, failures) = Default::default();
        let window = Self {
            config,
            durable,
            uploads,
            clock,
            counters,
            reports,
            probes,
            false_positives,
            failures,
        };
        window.update_gauges();
        Ok(window)
    }

    pub(in super::super) fn when_full(&self) -> WhenFull {
        self.config.when_full
    }

    /// Whether another process owns the window: nothing is written any more.
    pub(super) fn is_fenced(&self) -> bool {
        self.uploads.as_ref().is_some_and(Uploads::is_fenced)
    }

    fn check_fence(&self, events: usize) -> Result<(), ApiError> {
        if self.is_fenced() { Err(self.failed(Failure::NotWritable, events)) } else { Ok(()) }
    }

    fn move_clock(&self) {
        let tick = self.clock.tick();
        if tick > self.durable.window().tick() {
            self.durable.window().set_tick(tick);
        }
    }

    /// Counts events. They are acknowledged after `committed`.
    pub(in super::super) fn observe(
        &self,
        keys: &[Key],
        retry: Retry,
    ) -> Result<Observed, ApiError> {
        self.check_fence(keys.len())?;
        self.move_clock();
        let observed = self.durable.observe(keys, retry, now_seconds());
        let mut observed = observed.map_err(|failure| self.failed(failure, keys.len()))?;
        let seen = &mut observed.seen;
        for reports in &self.reports {
            let passes = |seen: &Seen| match seen {
                Seen::New => reports.min_count == 1,
                Seen::Duplicate(count) => *count == reports.min_count,
                Seen::Full => false,
            };
            reports
                .add(keys.iter().zip(&*seen).filter(|(_, seen)| passes(seen)).map(|(key, _)| key));
        }
        for seen in seen {
            if let Seen::Duplicate(count) = seen {
                *count = (*count).min(self.config.spec.count);
            }
        }
        Ok(observed)
    }

    /// Waits until events are as durable as configured.
    pub(in super::super) async fn committed(
        &self,
        ticket: Ticket,
        events: usize,
    ) -> Result<(), ApiError> {
        self.durable.committed(ticket).await.map_err(|failure| self.failed(failure, events))?;
        self.check_fence(events)
    }

    fn failed(&self, failure: Failure, events: usize) -> ApiError {
        match failure {
            Failure::TokenReused => ApiError::TokenReused,
            Failure::NotWritable => {
                self.count(Results { failed: events as u64, ..Results::default() });
                // What was undone may have been published.
                self.reports.iter().for_each(|reports| reports.renew());
                ApiError::NotDurable
            }
        }
    }

    /// Adds to the metrics.
    pub(in super::super) fn count(&self, results: Results) {
        self.counters.events.add(results);
    }

    /// Counts of keys, without a change.
    pub(in super::super) fn counts(&self, keys: &[Key]) -> Vec<u16> {
        self.move_clock();
        self.counters.events.checks.increment(keys.len() as u64);
        let mut counts = self.durable.window().counts(keys);
        counts.iter_mut().for_each(|count| *count = (*count).min(self.config.spec.count));
        counts
    }

    /// Counts without the cap of the config, for the audiences.
    pub(super) fn counts_of(&self, keys: &[Key]) -> Vec<u16> {
        self.durable.window().counts(keys)
    }

    /// Erases keys. Acknowledged after `committed`.
    pub(in super::super) fn forget(&self, keys: &[Key]) -> Result<(Vec<bool>, Ticket), ApiError> {
        self.check_fence(0)?;
        self.move_clock();
        let (forgotten, ticket) =
            self.durable.forget(keys).map_err(|failure| self.failed(failure, 0))?;
        self.counters
            .events
            .forgotten
            .increment(forgotten.iter().filter(|was| **was).count() as u64);
        self.reports.iter().for_each(|reports| reports.add(keys.iter()));
        Ok((forgotten, ticket))
    }

    /// Every live key with at least `min_count` events.
    pub(super) fn members(&self, min_count: u16, mut each: impl FnMut(Key)) {
        self.move_clock();
        self.durable.window().for_each_key(|key, count| {
            if count >= min_count {
                each(key);
            }
        });
    }

    /// Keeps the clock, the files, the audiences and the metrics up to date, forever.
    pub(super) async fn maintain(self: Arc<Self>) {
        let mut tick = self.durable.window().tick();
        loop {
            tokio::time::sleep(MAINTENANCE).await;
            let window = Arc::clone(&self);
            let maintained = tokio::task::spawn_blocking(move || window.maintain_once(tick)).await;
            tick = maintained.unwrap_or(tick);
        }
    }

    fn maintain_once(&self, before: u64) -> u64 {
        self.move_clock();
        let tick = self.durable.window().tick();
        if tick > before && !self.reports.is_empty() {
            match self.config.length {
                // A new day is a new generation.
                Length::Day(_) => self.reports.iter().for_each(|reports| reports.renew()),
                Length::Sliding(_) => self.report_expired(),
            }
        }
        if self.durable.is_checkpoint_due() {
            self.checkpoint();
        }
        self.probe();
        self.update_gauges();
        tick
    }

    fn report_expired(&self) {
        let mut expired = Vec::new();
        let least = self.reports.iter().map(|reports| reports.min_count).min().unwrap_or(1);
        self.durable.window().expire(|key, count| {
            if count >= least {
                expired.push(key);
            }
        });
        self.reports.iter().for_each(|reports| reports.add(expired.iter()));
    }

    fn checkpoint(&self) {
        let window = self.config.name.as_str();
        match self.durable.checkpoint(now_seconds()) {
            Ok(Some(saved)) => {
                tracing::info!(window, "checkpoint of the window written");
                self.add_upload(&saved);
            }
            Ok(None) => tracing::warn!(window, "no checkpoint: the window's log failed meanwhile"),
            Err(error) => {
                let error = error.to_string();
                tracing::warn!(window, error, "checkpoint of the window not written");
            }
        }
    }

    fn add_upload(&self, saved: &SavedCheckpoint) {
        let Some(uploads) = &self.uploads else { return };
        if let Err(error) = uploads.add(saved) {
            let (window, error) = (self.config.name.as_str(), error.to_string());
            tracing::warn!(window, error, "checkpoint of the window not read");
        }
    }

    /// Keeps a checkpoint in the store that is at most one interval old, until `stop` or another
    /// owner. Begins with an upload: local files may be newer than those in the store.
    pub(super) async fn keep_stored(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let Some(uploads) = &self.uploads else { return };
        // Not beside the first events, nor at each restart of a process that ends soon.
        let mut due = Instant::now() + OWNER_CHECK;
        let mut wake_at = due;
        let mut is_first = true;
        loop {
            tokio::select! {
                _ = stop.changed() => {}
                () = uploads.wake.notified() => {}
                () = sleep_until(wake_at) => {}
            }
            if *stop.borrow() || self.is_fenced() {
                return;
            }
            let is_due = Instant::now() >= due;
            let has_changed = is_first || self.durable.stats().log_bytes > 0;
            if is_due && has_changed && !uploads.has_pending() {
                let window = Arc::clone(&self);
                let _ = tokio::task::spawn_blocking(move || window.checkpoint()).await;
            }
            if uploads.has_pending() {
                if uploads.upload().await == Stored::Done {
                    due = Instant::now() + self.config.checkpoint_interval;
                    is_first = false;
                }
            } else if uploads.check_owner().await == Stored::Done && is_due && !has_changed {
                uploads.is_up_to_date();
                due = Instant::now() + self.config.checkpoint_interval;
            }
            // After a failure too.
            wake_at = Instant::now() + OWNER_CHECK;
        }
    }

    /// Uploads the last checkpoint after `close`.
    pub(super) async fn upload_last(&self) {
        if let Some(uploads) = self.uploads.as_ref().filter(|uploads| !uploads.is_fenced()) {
            uploads.upload().await;
        }
    }

    /// Looks up keys that no client sends: those found are false positives.
    fn probe(&self) {
        let mut keys = vec![[0; 16]; PROBES];
        for key in &mut keys {
            let random = || {
                use std::hash::{BuildHasher as _, Hasher as _, RandomState};
                RandomState::new().build_hasher().finish()
            };
            key[..8].copy_from_slice(&random().to_le_bytes());
            key[8..].copy_from_slice(&random().to_le_bytes());
        }
        let counts = self.durable.window().counts(&keys);
        let found = counts.iter().filter(|count| **count > 0).count();
        self.probes.fetch_add(PROBES as u64, Ordering::Relaxed);
        self.false_positives.fetch_add(found as u64, Ordering::Relaxed);
    }

    fn update_gauges(&self) {
        let stats = self.durable.stats();
        let counters = &self.counters;
        counters.entries.set(stats.window.entries as f64);
        counters.fill_ratio.set(stats.window.entries as f64 / self.config.spec.capacity as f64);
        counters.expected_fpr.set(stats.window.expected_fpr);
        counters.oldest_seconds.set(self.oldest(stats.window.oldest_ticks).unwrap_or(0.0));
        counters.log_bytes.set(stats.log_bytes as f64);
        counters.checkpoint.set(stats.checkpoint_unix_seconds as f64);
        counters.writable.set(f64::from(u8::from(stats.is_writable && !self.is_fenced())));
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        counters.log_failures.increment(stats.failures - *failures);
        *failures = stats.failures;
    }

    /// Age of the oldest entry in seconds.
    fn oldest(&self, ticks: Option<u64>) -> Option<f64> {
        match &self.clock {
            Clock::Day { today, .. } => {
                let start = today.lock().unwrap_or_else(PoisonError::into_inner).start;
                let since = SystemTime::now().duration_since(start).unwrap_or_default();
                ticks.map(|_| since.as_secs_f64())
            }
            Clock::Sliding { .. } => self.clock.age(ticks?).map(|age| age.as_secs_f64()),
        }
    }

    /// Writes what is queued, and a last checkpoint.
    pub(super) fn close(&self) {
        match self.durable.close(now_seconds()) {
            Ok(Some(saved)) => self.add_upload(&saved),
            Ok(None) => {}
            Err(error) => {
                let (window, error) = (self.config.name.as_str(), error.to_string());
                tracing::warn!(window, error, "last checkpoint of the window not written");
            }
        }
    }

    /// Entry of `GET /v1/windows`.
    pub(in super::super) fn info(&self) -> WindowInfo<'_> {
        self.move_clock();
        let stats = self.durable.stats();
        let probes = self.probes.load(Ordering::Relaxed);
        WindowInfo {
            window: &self.config.name,
            length: self.config.length.to_string(),
            time_zone: self.config.length.time_zone(),
            capacity: self.config.spec.capacity,
            count: self.config.spec.count,
            entries: stats.window.entries,
            fill_ratio: stats.window.entries as f64 / self.config.spec.capacity as f64,
            target_fpr: self.config.spec.fpr,
            expected_fpr: stats.window.expected_fpr,
            measured_fpr: (probes > 0)
                .then(|| self.false_positives.load(Ordering::Relaxed) as f64 / probes as f64),
            measured_keys: probes,
            oldest_seconds: self.oldest(stats.window.oldest_ticks),
            memory_bytes: stats.window.memory_bytes,
            when_full: self.config.when_full,
            durability: match self.config.durability {
                Durability::None => "none",
                Durability::Interval(_) => "interval",
                Durability::Fsync => "fsync",
            },
            writable: stats.is_writable && !self.is_fenced(),
            log_bytes: stats.log_bytes,
            checkpoint_unix_seconds: stats.checkpoint_unix_seconds,
            events: self.counters.events.totals(),
        }
    }
}

fn now_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[derive(Debug, Serialize)]
pub(in super::super) struct WindowInfo<'a> {
    window: &'a AudienceName,
    length: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_zone: Option<&'a str>,
    capacity: u64,
    count: u16,
    entries: u64,
    fill_ratio: f64,
    target_fpr: f64,
    expected_fpr: f64,
    measured_fpr: Option<f64>,
    measured_keys: u64,
    oldest_seconds: Option<f64>,
    memory_bytes: u64,
    when_full: WhenFull,
    durability: &'static str,
    writable: bool,
    log_bytes: u64,
    checkpoint_unix_seconds: u64,
    events: EventTotals,
}
