//! A window that is served: clock, events, erasure.

mod claim;
mod info;
mod maintain;
#[cfg(test)]
pub mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

use rtad_http::request_error::RequestError;
use rtad_window::{ChangeListener, Changed, Failure, Key, Observed, Retry, WindowHandle};

use super::super::error::ApiError;
use super::clock::Clock;
use super::config::WindowConfig;
use super::counters::{Counters, Results};
use super::owner::{Owner, Ownership};
use super::reports::Reports;
pub use claim::ReadWindow;
pub use info::WindowInfo;

pub struct ServedWindow {
    pub(super) config: WindowConfig,
    pub(super) handle: WindowHandle,
    /// `None` if the window is not kept.
    owner: Option<Owner>,
    clock: Arc<Clock>,
    counters: Counters,
    /// A checkpoint was asked for, and has not ended.
    is_checkpointing: AtomicBool,
}

/// Reports changes of a window to the audiences that follow it.
fn listener(reports: &[Arc<Reports>]) -> Option<ChangeListener> {
    if reports.is_empty() {
        return None;
    }
    let mut thresholds: Vec<u16> = reports.iter().map(|reports| reports.min_count).collect();
    thresholds.sort_unstable();
    thresholds.dedup();
    let reports = reports.to_vec();
    let report = move |changed: Changed<'_>| match changed {
        Changed::Reached(count, keys) => {
            reports
                .iter()
                .filter(|r| r.min_count == count)
                .for_each(|r| r.add(keys.iter()));
        }
        Changed::Left(keys) => reports.iter().for_each(|reports| reports.add(keys.iter())),
        Changed::All => reports.iter().for_each(|reports| reports.renew()),
    };
    Some(ChangeListener {
        thresholds,
        report: Box::new(report),
    })
}

impl ServedWindow {
    /// Whether this process has claimed the window in the store: it is kept.
    pub const fn is_claimed(&self) -> bool {
        self.owner.is_some()
    }

    /// Whether another process owns the window: nothing is written any more.
    pub fn is_fenced(&self) -> bool {
        self.owner
            .as_ref()
            .is_some_and(|owner| owner.state() == Ownership::Fenced)
    }

    /// Whether no other process may acknowledge events.
    fn is_held(&self) -> bool {
        self.owner
            .as_ref()
            .is_none_or(|owner| owner.state() == Ownership::Held)
    }

    fn check_held(&self, events: usize) -> Result<(), ApiError> {
        if self.is_held() {
            Ok(())
        } else {
            Err(self.failed(Failure::NotWritable, events))
        }
    }

    /// Counts events; `None` if entries of their time have expired.
    pub async fn observe(
        &self,
        keys: Vec<Key>,
        at: Option<SystemTime>,
        retry: Option<Retry>,
    ) -> Result<Option<Observed>, ApiError> {
        let events = keys.len();
        self.check_held(events)?;
        let at = at.map(|at| self.clock.tick_of(at));
        let observed = match self.handle.observe(keys, at, retry).await {
            Err(Failure::Late) => None,
            observed => Some(observed.map_err(|failure| self.failed(failure, events))?),
        };
        // The lease may have ended meanwhile: the events stay counted, but must not be
        // acknowledged. A retry with the same request key gets the first answer.
        self.check_held(events)?;
        Ok(observed)
    }

    fn failed(&self, failure: Failure, events: usize) -> ApiError {
        let events = events as u64;
        let (results, error) = match failure {
            Failure::RequestKeyReused => (Results::default(), ApiError::RequestKeyReused),
            // `observe` has answered late events; no other request has a time.
            Failure::Late => (Results::default(), RequestError::Internal.into()),
            Failure::NotWritable => (
                Results {
                    failed: events,
                    ..Results::default()
                },
                ApiError::NotDurable,
            ),
            Failure::Overloaded => (
                Results {
                    failed: events,
                    ..Results::default()
                },
                RequestError::Overloaded.into(),
            ),
        };
        self.count(results);
        error
    }

    /// Adds to the metrics.
    pub fn count(&self, results: Results) {
        self.counters.events.add(results);
    }

    /// Counts of keys, without a change. Also without a lease, but not of a window that another
    /// process owns: it lacks the later events.
    pub async fn check(&self, keys: Vec<Key>) -> Result<Vec<u16>, ApiError> {
        if self.is_fenced() {
            return Err(ApiError::NotDurable);
        }
        self.counters.events.checks.increment(keys.len() as u64);
        self.handle
            .counts(keys)
            .await
            .map_err(|failure| self.failed(failure, 0))
    }

    /// Erases keys.
    pub async fn forget(&self, keys: Vec<Key>) -> Result<Vec<bool>, ApiError> {
        self.check_held(0)?;
        let forgotten = self.handle.forget(keys).await;
        let forgotten = forgotten.map_err(|failure| self.failed(failure, 0))?;
        self.check_held(0)?;
        let erased = forgotten.iter().filter(|was| **was).count();
        self.counters.events.forgotten.increment(erased as u64);
        Ok(forgotten)
    }
}
