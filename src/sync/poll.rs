//! Poll of one audience: its newer state in the store, or the cached one if the store is
//! unavailable.
//!
//! Each poll is counted once, by its result, and logged if it failed.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt as _;

use super::error::SyncError;
use super::load::delta_bytes;
use super::shared::{LastSync, now_unix_seconds};
use super::state::Sync;
use crate::catalog::Audience;
use rtad_core::snapshot::{Current, Overlay, Snapshot, State};
use rtad_http::error_chain::error_chain;

/// Outcome of a poll that did not fail.
#[derive(Debug, PartialEq, Eq)]
enum PollOutcome {
    Unchanged,
    /// Refused before, with this result, and still backed off.
    Skipped(&'static str),
    Loaded,
}

impl Sync {
    /// The newer snapshot, if there is one. Counts and logs the poll.
    pub(super) async fn poll(
        &mut self,
        audience: Audience,
    ) -> Result<Option<Arc<Snapshot>>, SyncError> {
        let begun = Instant::now();
        let unloaded = Audience { snapshot: None, ..audience.clone() };
        let is_served = audience.snapshot.is_some();
        // A panic fails this poll, not the sync task.
        let polled = AssertUnwindSafe(self.poll_store(audience)).catch_unwind().await;
        let result = polled.unwrap_or(Err(SyncError::Internal));
        let duration = begun.elapsed();
        let name = unloaded.name.as_str();
        let (word, error) = match &result {
            Ok((PollOutcome::Loaded, _)) => ("ok", None),
            Ok((PollOutcome::Unchanged, _)) => ("unchanged", None),
            Ok((PollOutcome::Skipped(cause), _)) => (*cause, None),
            Err(error) => (error.cause(), Some(error_chain(error))),
        };
        self.shared.telemetry.sync(name, word, duration);
        if let Some(error) = &error {
            let served = match is_served {
                true if self.is_mixed(name) => "parts of two generations",
                true => "the last good generation",
                false => "nothing yet",
            };
            tracing::warn!(audience = name, result = word, error, served, "snapshot not updated");
        }
        let skipped = matches!(result, Ok((PollOutcome::Skipped(_), _)));
        if !skipped {
            let last = LastSync { at_unix_seconds: now_unix_seconds(), result: word, error };
            let loaded = result.as_ref().ok().and_then(|(_, snapshot)| snapshot.as_ref());
            let generation = loaded.map(|snapshot| snapshot.manifest().generation());
            self.shared.history.record(&unloaded.name, last, generation, duration);
        }
        let snapshot = match result {
            Ok((_, snapshot)) => snapshot,
            Err(error) => {
                if error.is_outage() {
                    self.pace.failed(error.retry_after());
                }
                // A store without the audience is available: the cached copy is obsolete.
                let is_absent =
                    matches!(error, SyncError::NotPublished { .. } | SyncError::Deleted { .. });
                if is_served || is_absent {
                    return Err(error);
                }
                Some(self.load_from_cache(&unloaded).await.ok_or(error)?)
            }
        };
        if let Some(snapshot) = &snapshot {
            let manifest = snapshot.manifest();
            let [added, removed, tombstones] = snapshot.overlay().keys();
            tracing::info!(
                audience = name,
                generation = manifest.generation(),
                sequence = snapshot.overlay().sequence(),
                keys = manifest.keys(),
                size_bytes = manifest.size_bytes(),
                added,
                removed,
                tombstones,
                seconds = duration.as_secs_f64(),
                "snapshot loaded"
            );
        }
        Ok(snapshot)
    }

    /// The snapshot that `current` names. An accepted generation keeps its filters and gets new
    /// deltas.
    async fn load_named(
        &self,
        mut audience: Audience,
        current: &Current,
        is_accepted: bool,
    ) -> Result<Snapshot, SyncError> {
        if let Some(held) = audience.snapshot.as_ref().filter(|_| is_accepted) {
            return self.loader().refresh(&audience, held, current).await;
        }
        // A deleted snapshot has nothing in common with a new publication.
        let held =
            audience.snapshot.as_ref().filter(|held| held.overlay().state() != State::Deleted);
        if let Some(held) = held {
            // Erasures and a disabled audience apply to the old generation too, even if loading
            // the new one fails.
            self.loader().check_memory(delta_bytes(&audience, current))?;
            let overlay =
                self.loader().overlay(&audience, current).await?.layered_over(held.overlay());
            audience.snapshot = Some(Arc::new(held.with_overlay(overlay)));
            self.serve_overlay(&audience);
        }
        if self.rolls(&audience) {
            self.roll(audience, current).await
        } else {
            self.loader().load(&audience, current).await
        }
    }

    /// Applies the state and the end of validity of `current` before its deltas are read, which may
    /// fail. Never makes the audience available: that takes the deltas.
    async fn restrict(&self, audience: &mut Audience, current: &Current) {
        let Some(held) = &audience.snapshot else { return };
        let overlay = held.overlay().clone().restricted_by(current);
        let validity = |overlay: &Overlay| (overlay.state(), overlay.expires_unix_seconds());
        if validity(&overlay) == validity(held.overlay()) {
            return;
        }
        audience.snapshot = Some(Arc::new(held.with_overlay(overlay)));
        self.serve_overlay(audience);
        // A start without the store must not lift the restriction.
        if let Some(cache) = &self.cache {
            cache.restrict(&audience.name, current).await;
        }
    }

    /// Serves the snapshot of `audience`: the served filters with another overlay.
    fn serve_overlay(&self, audience: &Audience) {
        let catalog = self.serving.load().with_audiences(|old| {
            let snapshot = audience.snapshot.clone();
            (old.name == audience.name && old.snapshot.is_some())
                .then(|| Audience { snapshot, ..old.clone() })
        });
        drop(self.swap(catalog));
    }

    /// Reads `CURRENT`, and loads the generation that it names unless it is served or refused.
    async fn poll_store(
        &mut self,
        mut audience: Audience,
    ) -> Result<(PollOutcome, Option<Arc<Snapshot>>), SyncError> {
        let name = &audience.name.clone();
        let is_mixed = audience.snapshot.as_ref().is_some_and(|snapshot| snapshot.is_mixed());
        let served =
            audience.snapshot.as_ref().map_or(0, |snapshot| snapshot.manifest().generation());
        if let Some(cache) = self.cache.as_ref().filter(|_| served == 0) {
            cache.remember_current(name).await;
        }
        let progress = self.progress.entry(name.clone()).or_default();
        progress.live = self.store.live_since(name, progress.live.as_ref()).await?;
        let Some(current) = progress.live.as_ref().map(|live| live.current.clone()) else {
            return Err(SyncError::NotPublished { audience: name.clone() });
        };
        let progress = &*progress;
        if served != 0 {
            let is_same = current.sequence == progress.sequence && current.generation == served;
            if is_same && !is_mixed {
                return Ok((PollOutcome::Unchanged, None));
            }
            // An unfinished roll is undone by rolling back to the generation it started from.
            if !is_same && !progress.is_superseded_by(&current, served) {
                return Err(SyncError::Stale { found: current.generation, served });
            }
        }
        self.restrict(&mut audience, &current).await;
        let progress = self.progress.entry(name.clone()).or_default();
        if let Some(result) = progress.skip(&current) {
            return Ok((PollOutcome::Skipped(result), None));
        }
        if current.state == State::Deleted {
            // The held snapshot stays loaded but unavailable: a build after a mistaken deletion
            // can share its chunks.
            let held = audience
                .snapshot
                .as_ref()
                .ok_or_else(|| SyncError::Deleted { audience: name.clone() })?;
            progress.accept(&current);
            let snapshot = held.with_overlay(held.overlay().clone().with_current(&current));
            // A start without the store must not serve it again.
            if let Some(cache) = &self.cache {
                cache.commit(snapshot.manifest(), &current).await;
            }
            return Ok((PollOutcome::Loaded, Some(Arc::new(snapshot))));
        }
        let is_accepted =
            !is_mixed && current.generation == served && progress.has_accepted_manifest(&current);
        let loaded = self.load_named(audience, &current, is_accepted).await;
        let progress = self.progress.entry(name.clone()).or_default();
        match loaded {
            Ok(snapshot) => {
                progress.accept(&current);
                if let Some(cache) = &self.cache {
                    cache.commit(snapshot.manifest(), &current).await;
                }
                Ok((PollOutcome::Loaded, Some(Arc::new(snapshot))))
            }
            Err(error) => {
                // Any other error is the store's: the next poll tries again.
                if error.is_refusal() {
                    progress.refuse(current, error.cause());
                }
                Err(error)
            }
        }
    }

    /// The cached generation, for a pod that serves none while the store is unavailable.
    async fn load_from_cache(&mut self, audience: &Audience) -> Option<Arc<Snapshot>> {
        let loader = self.loader();
        let loaded = AssertUnwindSafe(loader.load_cached(audience)).catch_unwind().await;
        let (current, mut snapshot) = loaded.ok().flatten()?;
        let progress = self.progress.entry(audience.name.clone()).or_default();
        progress.accept(&current);
        // Read from the store, but its files cannot be.
        let later = progress.live.as_ref().map(|live| &live.current);
        if let Some(later) = later.filter(|later| later.sequence > current.sequence) {
            let overlay = snapshot.overlay().clone().restricted_by(later);
            snapshot = snapshot.with_overlay(overlay);
        }
        self.shared.telemetry.cache_start(audience.name.as_str());
        let (audience, generation) = (audience.name.as_str(), current.generation);
        tracing::warn!(audience, generation, "store unavailable: snapshot loaded from the cache");
        Some(Arc::new(snapshot))
    }
}
