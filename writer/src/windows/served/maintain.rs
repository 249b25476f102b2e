//! Maintenance of a window: clock, expiry, metrics, checkpoints, and the owner in the store.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;
use tokio::time::sleep_until;

use rtad_window::{Key, SavedCheckpoint};

use rtad_core::random;

use super::super::clock::{now_seconds, since_epoch};
use super::super::config::Length;
use super::super::stored::{Begun, Stored, Uploads};
use super::ServedWindow;

/// Time between maintenance runs.
const MAINTENANCE: Duration = Duration::from_secs(1);
/// Random keys looked up per maintenance run, to measure the false-positive rate.
const PROBES: usize = 10_000;
/// Time from the start to the first upload.
const FIRST_UPLOAD: Duration = Duration::from_secs(5);
/// Time between attempts to upload.
const UPLOAD_RETRY: Duration = Duration::from_secs(5);

impl ServedWindow {
    /// Keeps the clock, the files, the audiences and the metrics up to date, forever.
    pub(in super::super) async fn maintain(self: Arc<Self>) {
        let mut tick = self.durable.window().tick();
        loop {
            tokio::time::sleep(MAINTENANCE).await;
            let window = Arc::clone(&self);
            let maintained = tokio::task::spawn_blocking(move || window.maintain_once(tick)).await;
            tick = maintained.unwrap_or(tick);
        }
    }

    /// The files need it to know at the next start how long the process was gone.
    fn set_time(&self) {
        self.durable.set_time(self.clock.time(), since_epoch(SystemTime::now()));
    }

    pub(super) fn maintain_once(&self, before: u64) -> u64 {
        self.set_time();
        self.move_clock();
        let tick = self.durable.window().tick();
        self.report_late_clock(tick);
        if self.has_undone.swap(false, Ordering::AcqRel) {
            // Once per run, however many requests failed.
            self.reports.iter().for_each(|reports| reports.renew());
        }
        if tick > before && !self.reports.is_empty() {
            match self.config.length {
                // A new day is a new generation.
                Length::Day(_) => {
                    let _ = self.expire(|_, _| {});
                    self.reports.iter().for_each(|reports| reports.renew());
                }
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

    /// Logs once that the day of the window is far ahead: the wall clock was wrong, and no midnight
    /// resets the window until the clock has reached that day.
    fn report_late_clock(&self, tick: u64) {
        let is_late = matches!(self.config.length, Length::Day(_)) && self.clock.tick() + 1 < tick;
        if is_late && !self.is_late.swap(true, Ordering::Relaxed) {
            let days = tick - self.clock.tick();
            tracing::error!(
                window = self.config.name.as_str(),
                days,
                "the clock was set back by days: the window is not reset until it has caught up"
            );
        }
        if !is_late {
            self.is_late.store(false, Ordering::Relaxed);
        }
    }

    /// Clears expired entries, which the next checkpoint must not contain: `forget` does not find
    /// them any more. Returns whether all expired keys were given to `each`.
    #[must_use]
    pub(super) fn expire(&self, mut each: impl FnMut(Key, u16)) -> bool {
        let mut has_expired = false;
        let is_complete = self.durable.window().expire(|key, count| {
            has_expired = true;
            each(key, count);
        });
        if has_expired {
            self.add_change();
        }
        is_complete
    }

    fn report_expired(&self) {
        let mut expired = Vec::new();
        let least = self.reports.iter().map(|reports| reports.min_count).min().unwrap_or(1);
        let is_complete = self.expire(|key, count| {
            if count >= least {
                expired.push(key);
            }
        });
        if is_complete {
            self.reports.iter().for_each(|reports| reports.add(expired.iter()));
        } else {
            self.reports.iter().for_each(|reports| reports.renew());
        }
    }

    pub(super) fn checkpoint(&self) {
        let window = self.config.name.as_str();
        let begun = self.begun();
        match self.durable.checkpoint(begun.unix_seconds) {
            Ok(Some(saved)) => {
                tracing::info!(window, "checkpoint of the window written");
                self.add_upload(&saved, begun);
            }
            Ok(None) => tracing::warn!(window, "no checkpoint: the window's log failed meanwhile"),
            Err(error) => {
                let error = error.to_string();
                tracing::warn!(window, error, "checkpoint of the window not written");
            }
        }
    }

    fn add_upload(&self, saved: &SavedCheckpoint, begun: Begun) {
        let Some(uploads) = &self.uploads else { return };
        if let Err(error) = uploads.add(saved, begun) {
            let (window, error) = (self.config.name.as_str(), error.to_string());
            tracing::warn!(window, error, "checkpoint of the window not read");
        }
    }

    /// Looks for a later owner at least every five seconds, also during checkpoints and uploads,
    /// until `stop` or another owner. Each answer renews the lease.
    pub(in super::super) async fn watch_owner(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let Some(uploads) = &self.uploads else { return };
        while !*stop.borrow() && !self.is_fenced() {
            let check = async {
                tokio::time::sleep(uploads.check_interval()).await;
                uploads.check_owner().await
            };
            tokio::select! {
                _ = stop.changed() => {}
                _ = check => {}
            }
        }
    }

    /// Keeps a checkpoint in the store that is at most one interval old, until `stop` or another
    /// owner. Begins with an upload: local files may be newer than those in the store.
    pub(in super::super) async fn keep_stored(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let Some(uploads) = &self.uploads else { return };
        // Not beside the first events, nor at each restart of a process that ends soon.
        let first_due = Instant::now() + FIRST_UPLOAD;
        let mut wake_at = first_due;
        loop {
            tokio::select! {
                _ = stop.changed() => {}
                () = uploads.wake.notified() => {}
                () = sleep_until(wake_at.into()) => {}
            }
            if *stop.borrow() || self.is_fenced() {
                return;
            }
            self.store_once(uploads, first_due).await;
            uploads.end_wait().await;
            // A failure waits as long.
            wake_at = Instant::now() + UPLOAD_RETRY;
        }
    }

    /// Makes a checkpoint if one is due, and uploads the last one.
    pub(super) async fn store_once(self: &Arc<Self>, uploads: &Uploads, first_due: Instant) {
        let begun = self.begun();
        let stored = uploads.stored();
        let due = stored.map_or(first_due, |stored| stored.at + self.config.checkpoint_interval);
        let is_due = begun.at >= due;
        let has_changed = stored.is_none_or(|stored| stored.changes != begun.changes);
        if is_due && has_changed && !uploads.has_pending() && self.durable.may_checkpoint() {
            let window = Arc::clone(self);
            let _ = tokio::task::spawn_blocking(move || window.checkpoint()).await;
        }
        if uploads.has_pending() {
            uploads.upload().await;
        } else if is_due && !has_changed && uploads.check_owner().await == Stored::Done {
            uploads.set_stored(begun);
        }
    }

    pub(super) fn begun(&self) -> Begun {
        let changes = self.changes.load(Ordering::Acquire);
        Begun { at: Instant::now(), unix_seconds: now_seconds(), changes }
    }

    /// Uploads the last checkpoint after `close`, and gives the window to the next owner.
    pub(in super::super) async fn release(&self) {
        if let Some(uploads) = self.uploads.as_ref().filter(|uploads| !uploads.is_fenced()) {
            uploads.release().await;
        }
    }

    /// Looks up keys that no client sends: those found are false positives.
    fn probe(&self) {
        let mut keys = vec![[0; 16]; PROBES];
        for key in &mut keys {
            key[..8].copy_from_slice(&random::number().to_le_bytes());
            key[8..].copy_from_slice(&random::number().to_le_bytes());
        }
        let counts = self.durable.window().counts(&keys);
        let found = counts.iter().filter(|count| **count > 0).count();
        self.probes.fetch_add(PROBES as u64, Ordering::Relaxed);
        self.false_positives.fetch_add(found as u64, Ordering::Relaxed);
    }

    pub(super) fn update_gauges(&self) {
        let stats = self.durable.stats();
        let counters = &self.counters;
        counters.entries.set(stats.window.entries as f64);
        counters.fill_ratio.set(stats.window.entries as f64 / self.config.spec.capacity as f64);
        counters.expected_fpr.set(stats.window.expected_fpr);
        counters.oldest_seconds.set(self.oldest(stats.window.oldest_ticks).unwrap_or(0.0));
        counters.log_bytes.set(stats.log_bytes as f64);
        counters.checkpoint.set(stats.checkpoint_unix_seconds as f64);
        counters.writable.set(f64::from(u8::from(stats.is_writable && self.is_held())));
        let mut failures = self.failures.lock();
        counters.log_failures.increment(stats.failures - *failures);
        *failures = stats.failures;
    }

    /// Writes what is queued, and a last checkpoint.
    pub(in super::super) fn close(&self) {
        self.set_time();
        let begun = self.begun();
        match self.durable.close(begun.unix_seconds) {
            Ok(Some(saved)) => self.add_upload(&saved, begun),
            Ok(None) => {}
            Err(error) => {
                let (window, error) = (self.config.name.as_str(), error.to_string());
                tracing::warn!(window, error, "last checkpoint of the window not written");
            }
        }
    }
}
