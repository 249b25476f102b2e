//! A window that is served: clock, events, erasure.

mod claim;
mod info;
mod maintain;
#[cfg(test)]
pub(super) mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use rtad_window::{Durability, Durable, Failure, Key, Observed, Seen, Ticket, Token};

use super::super::error::ApiError;
use super::clock::Clock;
use super::config::{WhenFull, WindowConfig};
use super::counters::{Counters, Results};
use super::reports::Reports;
use super::stored::Uploads;
pub(super) use claim::ReadWindow;
pub(in super::super) use info::WindowInfo;

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
    /// Number of changes, to tell whether a checkpoint has them all. Counted after the change.
    changes: AtomicU64,
    /// Events or erasures were undone that may have been published.
    has_undone: AtomicBool,
    /// The wall clock is more than a day before the window's day.
    is_late: AtomicBool,
}

/// Request with a key that makes it idempotent, and the digest of its body.
pub(in super::super) type Retry = Option<(Token, [u8; 16])>;

impl ServedWindow {
    pub(in super::super) fn when_full(&self) -> WhenFull {
        self.config.when_full
    }

    /// Whether another process owns the window: nothing is written any more.
    pub(super) fn is_fenced(&self) -> bool {
        self.uploads.as_ref().is_some_and(Uploads::is_fenced)
    }

    /// Whether no other process may acknowledge events.
    fn is_held(&self) -> bool {
        self.uploads.as_ref().is_none_or(Uploads::is_held)
    }

    fn check_held(&self, events: usize) -> Result<(), ApiError> {
        if self.is_held() { Ok(()) } else { Err(self.failed(Failure::NotWritable, events)) }
    }

    fn move_clock(&self) {
        let tick = self.clock.tick();
        if tick > self.durable.window().tick() {
            self.durable.window().set_tick(tick);
        }
    }

    /// Counts events. They are acknowledged after `committed`.
    pub(in super::super) fn observe(
        self: &Arc<Self>,
        keys: &[Key],
        retry: Retry,
    ) -> Result<Observed, ApiError> {
        self.check_held(keys.len())?;
        self.move_clock();
        let observed = self.durable.observe(keys, retry, self.clock.time().as_secs());
        let mut observed = observed.map_err(|failure| self.failed(failure, keys.len()))?;
        self.watch(observed.ticket);
        let counts = self.durable.window().spec().count > 1;
        let is_change = |seen: &Seen| match seen {
            Seen::New => true,
            Seen::Duplicate(_) => counts,
            Seen::Full => false,
        };
        if observed.seen.iter().any(is_change) {
            self.add_change();
        }
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

    fn add_change(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Records whether events or erasures are undone, as their client may have disconnected.
    fn watch(self: &Arc<Self>, ticket: Ticket) {
        if self.reports.is_empty() || self.config.durability != Durability::Fsync {
            return;
        }
        let window = Arc::clone(self);
        tokio::spawn(async move {
            if window.durable.committed(ticket).await.is_err() {
                window.has_undone.store(true, Ordering::Release);
            }
        });
    }

    /// Waits until events are as durable as configured.
    pub(in super::super) async fn committed(
        &self,
        ticket: Ticket,
        events: usize,
    ) -> Result<(), ApiError> {
        self.durable.committed(ticket).await.map_err(|failure| self.failed(failure, events))?;
        self.check_held(events)
    }

    fn failed(&self, failure: Failure, events: usize) -> ApiError {
        match failure {
            Failure::TokenReused => ApiError::TokenReused,
            Failure::NotWritable => {
                self.count(Results { failed: events as u64, ..Results::default() });
                ApiError::NotDurable
            }
        }
    }

    /// Adds to the metrics.
    pub(in super::super) fn count(&self, results: Results) {
        self.counters.events.add(results);
    }

    /// Counts of keys, without a change. Also without a lease, but not of a window that another
    /// process owns: it lacks the later events.
    pub(in super::super) fn counts(&self, keys: &[Key]) -> Result<Vec<u16>, ApiError> {
        if self.is_fenced() {
            return Err(ApiError::NotDurable);
        }
        self.move_clock();
        self.counters.events.checks.increment(keys.len() as u64);
        let mut counts = self.durable.window().counts(keys);
        counts.iter_mut().for_each(|count| *count = (*count).min(self.config.spec.count));
        Ok(counts)
    }

    /// Counts without the cap of the config, for the audiences.
    pub(super) fn counts_of(&self, keys: &[Key]) -> Vec<u16> {
        self.durable.window().counts(keys)
    }

    /// Erases keys. Acknowledged after `committed`.
    pub(in super::super) fn forget(
        self: &Arc<Self>,
        keys: &[Key],
    ) -> Result<(Vec<bool>, Ticket), ApiError> {
        self.check_held(0)?;
        self.move_clock();
        let (forgotten, ticket) =
            self.durable.forget(keys).map_err(|failure| self.failed(failure, 0))?;
        self.watch(ticket);
        self.add_change();
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
}
