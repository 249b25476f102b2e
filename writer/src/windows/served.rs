//! A window that this process owns: clock, events, erasure.

use std::sync::Arc;
use std::time::SystemTime;

use rtad_http::request_error::RequestError;
use rtad_window::{Failure, Key, Observed, Retry, WindowHandle};

use super::super::error::ApiError;
use super::clock::Clock;
use super::config::WindowConfig;
use super::counters::{Counters, Results};

pub struct ServedWindow {
    pub(super) config: WindowConfig,
    pub(super) handle: WindowHandle,
    pub(super) clock: Arc<Clock>,
    pub(super) counters: Arc<Counters>,
}

impl ServedWindow {
    /// Counts events; `None` if entries of their time have expired.
    pub async fn observe(
        &self,
        keys: Vec<Key>,
        at: Option<SystemTime>,
        retry: Option<Retry>,
    ) -> Result<Option<Observed>, ApiError> {
        let events = keys.len();
        let at = at.map(|at| self.clock.tick_of(at));
        match self.handle.observe(keys, at, retry).await {
            Err(Failure::Late) => Ok(None),
            observed => observed
                .map(Some)
                .map_err(|failure| self.failed(failure, events)),
        }
    }

    fn failed(&self, failure: Failure, events: usize) -> ApiError {
        let failed = Results {
            failed: events as u64,
            ..Results::default()
        };
        match failure {
            Failure::RequestKeyReused => ApiError::RequestKeyReused,
            // `observe` has answered late events; no other request has a time.
            Failure::Late => RequestError::Internal.into(),
            Failure::NotDurable => {
                self.counters.events.add(failed);
                ApiError::NotDurable
            }
            Failure::Overloaded => {
                self.counters.events.add(failed);
                RequestError::Overloaded.into()
            }
        }
    }

    /// Counts of keys, without a change.
    pub async fn check(&self, keys: Vec<Key>) -> Result<Vec<u16>, ApiError> {
        self.counters.events.checks.increment(keys.len() as u64);
        self.handle
            .counts(keys)
            .await
            .map_err(|failure| self.failed(failure, 0))
    }

    /// Erases keys.
    pub async fn forget(&self, keys: Vec<Key>) -> Result<Vec<bool>, ApiError> {
        let forgotten = self.handle.forget(keys).await;
        let forgotten = forgotten.map_err(|failure| self.failed(failure, 0))?;
        let erased = forgotten.iter().filter(|was| **was).count();
        self.counters.events.forgotten.increment(erased as u64);
        Ok(forgotten)
    }

    pub fn update_gauges(&self, is_answering: bool) {
        let state = self.handle.state();
        let counters = &self.counters;
        let is_accepting = is_answering && state.is_writable;
        counters.owner.set(f64::from(u8::from(is_accepting)));
        counters.behind.set(state.unshipped_age.as_secs_f64());
        counters.entries.set(state.window.entries as f64);
        counters
            .fill_ratio
            .set(state.window.entries as f64 / self.config.spec.capacity as f64);
        counters.log_bytes.set(state.log_bytes as f64);
        counters.answers_evicted.absolute(state.answers_evicted);
        counters.events.full.absolute(state.window.full);
    }

    /// Gives the window back: the store has every event, and a standby takes over at once.
    pub async fn finish(&self) {
        let window = self.config.name.as_str();
        if self.handle.close().await {
            tracing::info!(window, "window given back");
        } else {
            tracing::error!(
                window,
                "window not given back: its log has failed, or it was lost"
            );
        }
    }
}
