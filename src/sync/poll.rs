//! One look at one audience: what the store has that is newer, or what the cache holds if the store cannot say.
//!
//! Each look is counted once, by its result, and logged if it failed. What is served is not changed here.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt as _;

use super::load::{Loader, delta_bytes};
use rtad_http::error_chain::error_chain;

use super::{LastSync, Sync, SyncError, now_unix_seconds, pace};
use crate::catalog::Audience;
use rtad_core::snapshot::{Current, Snapshot, State};

#[derive(Debug, PartialEq, Eq)]
enum Polled {
    Unchanged,
    /// Refused before, and not yet worth another try.
    Skipped(&'static str),
    Loaded,
}

impl Sync {
    /// What the store has that is newer than `audience`, with the attempt counted and logged.
    pub(super) async fn poll(
        &mut self,
        audience: Audience,
    ) -> Result<Option<Arc<Snapshot>>, SyncError> {
        let begun = Instant::now();
        let unloaded = Audience { snapshot: None, ..audience.clone() };
        let is_served = audience.snapshot.is_some();
        // A panic is a fault of this one look: it must not take the last good generation's keeper with it.
        let looked = AssertUnwindSafe(self.newer(audience)).catch_unwind().await;
        let result = looked.unwrap_or(Err(SyncError::Internal));
        let duration = begun.elapsed();
        let name = unloaded.name.as_str();
        let (word, error) = match &result {
            Ok((Polled::Loaded, _)) => ("ok", None),
            Ok((Polled::Unchanged, _)) => ("unchanged", None),
            Ok((Polled::Skipped(cause), _)) => (*cause, None),
            Err(error) => (error.cause(), Some(error_chain(error))),
        };
        self.shared.telemetry.sync(name, word, duration);
        if let Some(error) = &error {
            let served =
                if self.is_mixed(name) { "parts of two generations" } else { "the last good one" };
            tracing::warn!(audience = name, result = word, error, served, "snapshot not updated");
        }
        let skipped = matches!(result, Ok((Polled::Skipped(_), _)));
        if !skipped {
            let last = LastSync { at_unix_seconds: now_unix_seconds(), result: word, error };
            let loaded = result.as_ref().ok().and_then(|(_, snapshot)| snapshot.as_ref());
            let generation = loaded.map(|snapshot| snapshot.manifest().generation());
            self.shared.board.note(&unloaded.name, last, generation, duration);
        }
        let snapshot = match result {
            Ok((_, snapshot)) => snapshot,
            Err(error) => {
                if error.is_outage() {
                    self.pace.failed(error.retry_after());
                }
                let did_answer =
                    matches!(error, SyncError::NotPublished { .. } | SyncError::Deleted { .. });
                let is_answered = is_served || did_answer;
                let cached = if is_answered { None } else { self.cached(&unloaded).await };
                Some(cached.ok_or(error)?)
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

    /// The snapshot that `current` names; of a generation that is served already the filters are not asked for.
    async fn loaded(
        &self,
        mut audience: Audience,
        current: &Current,
        is_accepted: bool,
    ) -> Result<Snapshot, SyncError> {
        if let Some(held) = audience.snapshot.as_ref().filter(|_| is_accepted) {
            return self.loader().refresh(&audience, held, current).await;
        }
        // Not over one that was deleted: it has nothing in common with what was published anew.
        let held =
            audience.snapshot.as_ref().filter(|held| held.overlay().state() != State::Deleted);
        if let Some(held) = held {
            // What is said over the new generation holds for the old one too, also if the new one never comes: a device that was
            // erased, an audience that was disabled.
            self.loader().check_room(delta_bytes(&audience, current))?;
            let overlay = self.loader().overlay(&audience, current).await?.layered_over(held.overlay());
            audience.snapshot = Some(Arc::new(held.with_overlay(overlay)));
            self.lay_over(&audience);
        }
        if self.rolls(&audience) {
            self.roll(audience, current).await
        } else {
            self.loader().load(&audience, current).await
        }
    }

    /// Serves the snapshot of `audience`, whose filters are those that are served.
    fn lay_over(&self, audience: &Audience) {
        let catalog = self.serving.load().with_audiences(|old| {
            let snapshot = audience.snapshot.clone();
            (old.name == audience.name && old.snapshot.is_some())
                .then(|| Audience { snapshot, ..old.clone() })
        });
        drop(self.swap(catalog));
    }

    async fn newer(
        &mut self,
        audience: Audience,
    ) -> Result<(Polled, Option<Arc<Snapshot>>), SyncError> {
        let name = &audience.name.clone();
        let is_mixed = audience.snapshot.as_ref().is_some_and(|snapshot| snapshot.is_mixed());
        let served =
            audience.snapshot.as_ref().map_or(0, |snapshot| snapshot.manifest().generation());
        if let Some(cache) = self.cache.as_ref().filter(|_| served == 0) {
            cache.note(name).await;
        }
        let seen = self.seen.entry(name.clone()).or_default();
        seen.live = self.store.live_since(name, seen.live.as_ref()).await?;
        let Some(current) = seen.live.as_ref().map(|live| live.current.clone()) else {
            return Err(SyncError::NotPublished { audience: name.clone() });
        };
        if served != 0 {
            let is_same = current.sequence == seen.sequence && current.generation == served;
            if is_same && !is_mixed {
                return Ok((Polled::Unchanged, None));
            }
            // What a roll has begun to replace is made whole again by rolling back to it.
            if !is_same && !seen.is_superseded_by(&current, served) {
                return Err(SyncError::Stale { found: current.generation, served });
            }
        }
        if let Some(result) = seen.skips(&current) {
            return Ok((Polled::Skipped(result), None));
        }
        if current.state == State::Deleted {
            // What is held is kept, as whoever deleted it by mistake builds it anew; it only answers nothing.
            let held = audience
                .snapshot
                .as_ref()
                .ok_or_else(|| SyncError::Deleted { audience: name.clone() })?;
            seen.accept(&current);
            let snapshot = held.with_overlay(held.overlay().clone().with_current(&current));
            // A start without the store must not bring it back.
            if let Some(cache) = &self.cache {
                cache.commit(snapshot.manifest(), &current).await;
            }
            return Ok((Polled::Loaded, Some(Arc::new(snapshot))));
        }
        let is_accepted =
            !is_mixed && current.generation == served && seen.is_of_accepted(&current);
        let loaded = self.loaded(audience, &current, is_accepted).await;
        let seen = self.seen.entry(name.clone()).or_default();
        match loaded {
            Ok(snapshot) => {
                seen.accept(&current);
                if let Some(cache) = &self.cache {
                    cache.commit(snapshot.manifest(), &current).await;
                }
                Ok((Polled::Loaded, Some(Arc::new(snapshot))))
            }
            Err(error) => {
                // Otherwise the store failed, not the snapshot: what it holds may be sound, and is asked for at the next poll.
                if error.is_refusal() {
                    seen.refuse(current, error.cause());
                }
                Err(error)
            }
        }
    }

    /// What was verified before the pod was started: for one that serves nothing yet, if the store cannot give what it has. A
    /// store that has nothing of the audience, or no longer, did answer.
    async fn cached(&mut self, audience: &Audience) -> Option<Arc<Snapshot>> {
        let loader = self.loader();
        let loaded = AssertUnwindSafe(loader.load_cached(audience)).catch_unwind().await;
        let (current, snapshot) = loaded.ok().flatten()?;
        self.seen.entry(audience.name.clone()).or_default().accept(&current);
        self.shared.telemetry.cache_start(audience.name.as_str());
        let (audience, generation) = (audience.name.as_str(), current.generation);
        tracing::warn!(
            audience,
            generation,
            "the store cannot answer: what the cache holds is served"
        );
        Some(Arc::new(snapshot))
    }

    pub(super) fn loader(&self) -> Loader<'_> {
        Loader {
            store: &self.store,
            cache: self.cache.as_ref(),
            headroom: &self.headroom,
            telemetry: &self.shared.telemetry,
            max_snapshot_bytes: self.max_snapshot_bytes,
            spread: pace::spread(self.poll_interval),
        }
    }
}
