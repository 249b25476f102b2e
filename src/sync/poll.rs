//! Poll of one audience: its newer state in the store, or the cached one if the store is
//! unavailable.
//!
//! 1. The record is read, within a deadline.
//! 2. A plan is made from it and from what is served ([`Plan`]).
//! 3. The plan is applied (`apply.rs`). A record that names another generation while one is
//!    loaded ends the load, and begins the poll again.
//!
//! Each poll is counted once, by its result, and logged if it failed.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::Instant;

use super::apply::Polled;
use super::error::SyncError;
use super::plan::{Plan, Served};
use super::progress::Progress;
use super::shared::LastSync;
use super::state::Syncer;
use crate::catalog::Audience;
use rtad_core::clock::now_unix_seconds;
use rtad_core::error_chain::error_chain;
use rtad_core::snapshot::{AudienceName, Current, Snapshot, State};
use rtad_store::Live;

/// Most time that a start waits for the store before it serves the cache.
pub const START_TIMEOUT: Duration = Duration::from_secs(5);

impl Syncer {
    /// Polls one audience and serves its new snapshot. A failure is counted, logged and recorded
    /// for the status page; the last good generation stays.
    pub(super) async fn poll_audience(&self, name: &AudienceName) {
        let progress = self.progress_of(name);
        let mut progress = progress.lock().await;
        let Some(audience) = self.serving.load().audience(name.as_str()).cloned() else {
            return;
        };
        // The snapshot is passed by value: the retired catalog must hold the old snapshot last, not
        // this task.
        if let Ok(Some(snapshot)) = self.poll(audience, &mut progress).await {
            self.serve(name, &snapshot);
        }
        progress.report_first();
    }

    /// The newer snapshot, if there is one: from the store, or from the cache if the store fails
    /// and nothing is served. Counts and logs the poll.
    pub(super) async fn poll(
        &self,
        mut audience: Audience,
        progress: &mut Progress,
    ) -> Result<Option<Arc<Snapshot>>, SyncError> {
        let begun = Instant::now();
        let unloaded = Audience {
            snapshot: None,
            ..audience.clone()
        };
        let name = &unloaded.name;
        let before = self.served(name).as_deref().map(identity);
        let result = loop {
            // A panic fails this poll, not the audience's task.
            let polled = AssertUnwindSafe(self.poll_store(audience, progress))
                .catch_unwind()
                .await;
            match polled.unwrap_or(Err(SyncError::Internal)) {
                Ok(Some(polled)) => break Ok(polled),
                Err(error) => break Err(error),
                // The store has another generation: the poll begins again.
                Ok(None) => {
                    let served = self.serving.load().audience(name.as_str()).cloned();
                    audience = served.unwrap_or_else(|| unloaded.clone());
                }
            }
        };
        self.record(name, &result, begun.elapsed());
        match &result {
            Err(error) if error.is_outage() => progress.pace.record_failure(),
            _ => progress.pace.record_success(),
        }
        let snapshot = match result {
            Ok(Polled::Loaded(snapshot)) => snapshot,
            Ok(_) => return Ok(None),
            // The cached copy is obsolete. Without a record, the mount may be lost.
            Err(error @ SyncError::Deleted { .. }) => return Err(error),
            Err(error) if self.served(name).is_some() => return Err(error),
            Err(error) => self.load_from_cache(name, progress).await.ok_or(error)?,
        };
        progress
            .pace
            .record_source(snapshot.manifest().from_window().is_some());
        log_loaded(before, &snapshot, begun.elapsed());
        Ok(Some(snapshot))
    }

    /// Reads the record, makes a plan, and applies it. Returns `None` if the store changed to
    /// another generation meanwhile.
    async fn poll_store(
        &self,
        mut audience: Audience,
        progress: &mut Progress,
    ) -> Result<Option<Polled>, SyncError> {
        let may_serve_cache = audience.snapshot.is_none() && self.cache.is_some();
        let current = self
            .read_first(&audience, may_serve_cache, progress)
            .await?;
        if may_serve_cache
            && let Some(snapshot) = self.serve_cached(&audience.name, progress, &current).await
        {
            if progress.is_accepted(&current) {
                return Ok(Some(Polled::Loaded(snapshot)));
            }
            audience.snapshot = Some(snapshot);
        }
        let served = audience.snapshot.as_deref().map(Served::of);
        let plan = Plan::new(&audience.name, &current, served, progress);
        progress.see(&current);
        self.apply(plan?, audience, current, progress).await
    }

    /// The record of a poll. A start that may serve the cache instead waits for it no longer
    /// than [`START_TIMEOUT`].
    ///
    /// | flag | meaning |
    /// |---|---|
    /// | `may_serve_cache` | nothing is served yet, and the pod has a cache |
    /// | `is_cached` | it may be served, and has records: the store gets [`START_TIMEOUT`] |
    /// | `Progress::is_cache_unusable` | a poll has tried it without success: the store gets its time |
    async fn read_first(
        &self,
        audience: &Audience,
        may_serve_cache: bool,
        progress: &mut Progress,
    ) -> Result<Current, SyncError> {
        let name = &audience.name;
        let is_cached = match self.cache.as_ref().filter(|_| may_serve_cache) {
            Some(cache) => cache.has_records(name).await && !progress.is_cache_unusable,
            None => false,
        };
        let known = progress.newest().map(Current::position);
        let read = self.read_current(name, progress.live.as_ref(), known);
        let limit = if is_cached {
            START_TIMEOUT
        } else {
            Duration::MAX
        };
        let late = SyncError::Late {
            what: format!("{name}/records"),
            seconds: START_TIMEOUT.as_secs_f64(),
        };
        let live = tokio::time::timeout(limit, read)
            .await
            .unwrap_or(Err(late))?;
        let Some(live) = live else {
            progress.live = None;
            let audience_name = name.clone();
            let Some(served) = &audience.snapshot else {
                return Err(SyncError::NotPublished {
                    audience: audience_name,
                });
            };
            return Err(SyncError::Gone {
                audience: audience_name,
                served: served.manifest().generation(),
            });
        };
        let current = live.current.clone();
        // An older copy is no reason to forget what to ask for next.
        if Some(current.position()) >= known {
            progress.live = Some(live);
        }
        Ok(current)
    }

    /// The newest record. It is cached before what it names: a start without the store must not
    /// forget what it restricts or erases.
    pub(super) async fn read_current(
        &self,
        name: &AudienceName,
        last: Option<&Live>,
        known: Option<(u64, u64)>,
    ) -> Result<Option<Live>, SyncError> {
        let read = async { Ok(self.stores.live_since(name, last, known).await?) };
        let mut live = self
            .loader()
            .within(0, format!("{name}/records"), read)
            .await?;
        if let Some(live) = &mut live {
            live.current = live.current.clone().seen_from(self.stage_place(name));
        }
        if let (Some(cache), Some(live)) = (&self.cache, &live)
            && last.is_none_or(|last| last.object() != live.object())
        {
            cache.put_record(name, live).await;
        }
        Ok(live)
    }

    /// Records a poll for the status page, counts it, and logs its failure. In this order: whoever
    /// reads a new count finds its poll on the status page.
    fn record(&self, name: &AudienceName, result: &Result<Polled, SyncError>, took: Duration) {
        let (word, error) = match result {
            Ok(Polled::Loaded(_)) => ("ok", None),
            Ok(Polled::Unchanged) => ("unchanged", None),
            Ok(Polled::Skipped(cause)) => (*cause, None),
            Err(error) => (error.cause(), Some(error_chain(error))),
        };
        if !matches!(result, Ok(Polled::Skipped(_))) {
            let error = error.clone();
            let last = LastSync {
                at_unix_seconds: now_unix_seconds(),
                result: word,
                error,
            };
            let generation = match result {
                Ok(Polled::Loaded(snapshot)) => Some(snapshot.manifest().generation()),
                _ => None,
            };
            self.shared.polls.record(name, last, generation, took);
        }
        self.shared.telemetry.sync(name.as_str(), word, took);
        if let Some(error) = &error {
            let served = match self.served(name) {
                Some(snapshot) if snapshot.is_mixed() => "parts of two generations",
                Some(_) => "the last good generation",
                None => "nothing yet",
            };
            let audience = name.as_str();
            tracing::warn!(
                audience,
                result = word,
                error,
                served,
                "snapshot not updated"
            );
        }
    }
}

/// The generation of a snapshot, and whether it is in use.
fn identity(snapshot: &Snapshot) -> (u64, State) {
    (snapshot.manifest().generation(), snapshot.overlay().state())
}

/// Logs what is served from now on. Deltas alone are for `debug`: an audience that follows a window
/// has new ones at every poll.
fn log_loaded(before: Option<(u64, State)>, snapshot: &Snapshot, took: Duration) {
    let manifest = snapshot.manifest();
    let audience = manifest.audience().as_str();
    let [added, removed, tombstones] = snapshot.overlay().keys();
    if before == Some(identity(snapshot)) {
        let sequence = snapshot.overlay().sequence();
        tracing::debug!(
            audience,
            sequence,
            added,
            removed,
            tombstones,
            "deltas loaded"
        );
        return;
    }
    tracing::info!(
        audience,
        generation = manifest.generation(),
        sequence = snapshot.overlay().sequence(),
        keys = manifest.keys(),
        size_bytes = manifest.size_bytes(),
        added,
        removed,
        tombstones,
        seconds = took.as_secs_f64(),
        "snapshot loaded"
    );
}
