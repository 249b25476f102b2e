//! Poll of one audience: its newer state in the store, or the cached one if the store is
//! unavailable.
//!
//! 1. `CURRENT` is read. A disable or an expiry applies at once.
//! 2. The small files are read: the manifest, tombstones and deltas. Each read has a deadline. They
//!    apply to the served generation.
//! 3. The chunks of a new generation are loaded, for as long as it takes. Meanwhile steps 1 and 2
//!    are repeated at the poll interval; a `CURRENT` with another manifest ends the load.
//!
//! Each poll is counted once, by its result, and logged if it failed.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;

use super::error::SyncError;
use super::pace::Pace;
use super::progress::Progress;
use super::shared::{LastSync, now_unix_seconds};
use super::state::Sync;
use crate::catalog::Audience;
use rtad_core::snapshot::{AudienceName, Current, Manifest, Overlay, Snapshot, State};
use rtad_http::error_chain::error_chain;
use rtad_store::{Live, Signed};

/// Most time that a start waits for the store before it serves the cache.
pub const START_TIMEOUT: Duration = Duration::from_secs(5);

/// Outcome of a poll that did not fail.
#[derive(Debug, PartialEq, Eq)]
enum PollOutcome {
    Unchanged,
    /// Refused before, with this result, and still backed off.
    Skipped(&'static str),
    Loaded,
    /// While it was loaded, the store changed to another generation.
    Superseded,
}

/// The `CURRENT` being loaded, and its deltas: newer ones may come during the load.
struct Loading {
    current: Current,
    overlay: Overlay,
}

impl Sync {
    /// Polls one audience and serves its new snapshot. A failure is counted, logged and recorded
    /// for the status page; the last good generation stays.
    pub(super) async fn poll_audience(&self, name: &AudienceName) {
        let progress = self.progress_of(name);
        let mut progress = progress.lock().await;
        let Some(audience) = self.serving.load().audience(name.as_str()).cloned() else { return };
        // By value: the retired catalog must hold the old snapshot last, not this task.
        if let Ok(Some(snapshot)) = self.poll(audience, &mut progress).await {
            self.serve(name, &snapshot);
        }
        progress.report_first();
    }

    /// The newer snapshot, if there is one. Counts and logs the poll.
    pub(super) async fn poll(
        &self,
        mut audience: Audience,
        progress: &mut Progress,
    ) -> Result<Option<Arc<Snapshot>>, SyncError> {
        let begun = Instant::now();
        let unloaded = Audience { snapshot: None, ..audience.clone() };
        let result = loop {
            // A panic fails this poll, not the audience's task.
            let polled = AssertUnwindSafe(self.poll_store(audience, progress)).catch_unwind().await;
            let result = polled.unwrap_or(Err(SyncError::Internal));
            if !matches!(result, Ok((PollOutcome::Superseded, _))) {
                break result;
            }
            let served = self.serving.load().audience(unloaded.name.as_str()).cloned();
            audience = served.unwrap_or_else(|| unloaded.clone());
        };
        let duration = begun.elapsed();
        let name = unloaded.name.as_str();
        let (word, error) = match &result {
            Ok((PollOutcome::Loaded, _)) => ("ok", None),
            Ok((PollOutcome::Unchanged | PollOutcome::Superseded, _)) => ("unchanged", None),
            Ok((PollOutcome::Skipped(cause), _)) => (*cause, None),
            Err(error) => (error.cause(), Some(error_chain(error))),
        };
        self.shared.telemetry.sync(name, word, duration);
        if let Some(error) = &error {
            let is_served = self.served(&unloaded.name).is_some();
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
        let outage = result.as_ref().err().filter(|error| error.is_outage());
        progress.pace.record(outage.map(SyncError::retry_after));
        let snapshot = match result {
            Ok((_, snapshot)) => snapshot,
            Err(error) => {
                // A store without the audience is available: the cached copy is obsolete.
                let is_absent =
                    matches!(error, SyncError::NotPublished { .. } | SyncError::Deleted { .. });
                let catalog = self.serving.load_full();
                let served = catalog.audience(name).and_then(|served| served.snapshot.as_ref());
                if served.is_some() || is_absent {
                    return Err(error);
                }
                Some(self.load_from_cache(&unloaded, progress).await.ok_or(error)?)
            }
        };
        if let Some(snapshot) = &snapshot {
            let manifest = snapshot.manifest();
            progress.pace.record_source(manifest.is_from_window());
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

    /// Reads `CURRENT`, and loads the generation that it names unless it is served or refused.
    async fn poll_store(
        &self,
        mut audience: Audience,
        progress: &mut Progress,
    ) -> Result<(PollOutcome, Option<Arc<Snapshot>>), SyncError> {
        let name = &audience.name.clone();
        let is_mixed = audience.snapshot.as_ref().is_some_and(|snapshot| snapshot.is_mixed());
        let is_start = audience.snapshot.is_none() && self.cache.is_some();
        if let Some(cache) = self.cache.as_ref().filter(|_| is_start) {
            cache.remember_current(name).await;
        }
        let read = self.read_current(name, progress.live.as_ref());
        let limit = if is_start { START_TIMEOUT } else { Duration::MAX };
        let late = SyncError::Late {
            what: format!("{name}/CURRENT"),
            seconds: START_TIMEOUT.as_secs_f64(),
        };
        progress.live = tokio::time::timeout(limit, read).await.unwrap_or(Err(late))?;
        let Some(current) = progress.live.as_ref().map(|live| live.current.clone()) else {
            return Err(SyncError::NotPublished { audience: name.clone() });
        };
        if is_start
            && current.state != State::Deleted
            && let Some(snapshot) = self.serve_cached(&audience, progress, &current).await
        {
            if snapshot.overlay().sequence() == current.sequence {
                return Ok((PollOutcome::Loaded, Some(snapshot)));
            }
            audience.snapshot = Some(snapshot);
        }
        let served =
            audience.snapshot.as_ref().map_or(0, |snapshot| snapshot.manifest().generation());
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
        self.restrict(name, &current).await;
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
        let loaded = match audience.snapshot.filter(|_| is_accepted) {
            Some(held) => self.refresh(name, &held, &current).await.map(Some),
            None => self.load_named(name, &current, progress.live.clone()).await,
        };
        match loaded {
            Ok(None) => Ok((PollOutcome::Superseded, None)),
            Ok(Some((current, snapshot))) => {
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

    async fn read_current(
        &self,
        name: &AudienceName,
        last: Option<&Live>,
    ) -> Result<Option<Live>, SyncError> {
        let read = async { Ok(self.store.live_since(name, last).await?) };
        self.loader().within(0, format!("{name}/CURRENT"), read).await
    }

    /// Applies the state and the end of validity of `current` before its deltas are read, which may
    /// fail. Never makes the audience available: that takes the deltas.
    async fn restrict(&self, name: &AudienceName, current: &Current) {
        let Some(held) = self.served(name) else { return };
        let overlay = held.overlay().clone().restricted_by(current);
        let validity = |overlay: &Overlay| (overlay.state(), overlay.expires_unix_seconds());
        if validity(&overlay) == validity(held.overlay()) {
            return;
        }
        drop(held);
        self.update(name, |held| held.with_overlay(overlay.clone()));
        // A start without the store must not lift the restriction.
        if let Some(cache) = &self.cache {
            cache.restrict(name, current).await;
        }
    }

    /// Applies the tombstones of a `current` whose other files cannot be read, or are refused.
    async fn erase(&self, name: &AudienceName, current: &Current) {
        let Some(held) = self.served(name).map(|held| held.overlay().clone()) else { return };
        let entry = current.tombstones.as_ref();
        let size_bytes = entry.map_or(0, |entry| entry.size_bytes());
        let is_same = held.tombstones().map(|delta| delta.entry()) == entry;
        if is_same || size_bytes > self.settings().max_snapshot_bytes {
            return;
        }
        let loader = self.loader();
        let read = loader.tombstones(name, Some(&held), current);
        if let Ok(tombstones) = loader.within(size_bytes, format!("{name}/deltas"), read).await {
            self.update(name, |held| {
                held.with_overlay(held.overlay().clone().with_tombstones(tombstones.clone()))
            });
        }
    }

    /// The held generation with the deltas of `current`.
    async fn refresh(
        &self,
        name: &AudienceName,
        held: &Snapshot,
        current: &Current,
    ) -> Result<(Current, Snapshot), SyncError> {
        let loader = self.loader();
        let read = async {
            loader.check(held.manifest(), current)?;
            loader.overlay(name, Some(held.overlay()), current).await
        };
        match read.await {
            Ok(overlay) => Ok((current.clone(), held.with_overlay(overlay))),
            Err(error) => {
                self.erase(name, current).await;
                Err(error)
            }
        }
    }

    /// The generation that `current` names, with the `CURRENT` that was read last; `None` if that
    /// one names another generation.
    async fn load_named(
        &self,
        name: &AudienceName,
        current: &Current,
        live: Option<Live>,
    ) -> Result<Option<(Current, Snapshot)>, SyncError> {
        let held = self.served(name);
        let overlay = held.as_ref().map(|held| held.overlay());
        let (manifest, file, overlay) = match self.small_files(name, overlay, current).await {
            Ok(read) => read,
            Err(error) => {
                drop(held);
                self.erase(name, current).await;
                return Err(error);
            }
        };
        // Changes apply to the old generation too, even if loading the new one fails.
        self.layer(name, &overlay);
        let loading = Mutex::new(Loading { current: current.clone(), overlay });
        let load = async {
            match held {
                Some(held) if self.rolls() => self.roll(name, held, manifest, file).await,
                held => self.loader().load(held.as_deref(), manifest, file).await,
            }
        };
        let snapshot = tokio::select! {
            loaded = load => loaded?,
            () = self.follow(name, &loading, live) => return Ok(None),
        };
        let loaded = loading.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Some((loaded.current, snapshot.with_overlay(loaded.overlay))))
    }

    /// The manifest and the deltas of a new generation. Deltas of a refused one are not read.
    async fn small_files(
        &self,
        name: &AudienceName,
        held: Option<&Overlay>,
        current: &Current,
    ) -> Result<(Manifest, Signed, Overlay), SyncError> {
        let loader = self.loader();
        let read = async { Ok(self.store.manifest_named(name, current).await?) };
        let (manifest, file) =
            loader.within(current.manifest_size_bytes, format!("{name}/manifests"), read).await?;
        loader.check(&manifest, current)?;
        let overlay = loader.overlay(name, held, current).await?;
        Ok((manifest, file, overlay))
    }

    /// Serves the deltas of a new generation over those of the served one.
    fn layer(&self, name: &AudienceName, overlay: &Overlay) {
        self.update(name, |held| held.with_overlay(overlay.clone().layered_over(held.overlay())));
    }

    /// Follows `CURRENT` while its generation is loaded. Returns when it names another one.
    async fn follow(&self, name: &AudienceName, loading: &Mutex<Loading>, mut live: Option<Live>) {
        let lock = || loading.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = lock().current.clone();
        loop {
            tokio::time::sleep(Pace::default().delay(self.settings().poll_interval)).await;
            match self.read_current(name, live.as_ref()).await {
                Ok(read) => live = read,
                Err(error) => {
                    let error = error_chain(&error);
                    tracing::warn!(
                        audience = name.as_str(),
                        error,
                        "CURRENT not read during a load"
                    );
                    continue;
                }
            }
            let newer = live.as_ref().map(|live| &live.current);
            let Some(current) = newer.filter(|newer| newer.sequence > known.sequence) else {
                continue;
            };
            self.restrict(name, current).await;
            if current.state == State::Deleted || current.manifest_sha256 != known.manifest_sha256 {
                return;
            }
            let held = {
                let mut loading = lock();
                loading.current = loading.current.clone().restricted_by(current);
                loading.overlay = loading.overlay.clone().restricted_by(current);
                loading.overlay.clone()
            };
            match self.loader().overlay(name, Some(&held), current).await {
                Ok(overlay) => {
                    self.layer(name, &overlay);
                    *lock() = Loading { current: current.clone(), overlay };
                    known = current.clone();
                }
                Err(error) => {
                    let error = error_chain(&error);
                    tracing::warn!(
                        audience = name.as_str(),
                        error,
                        "deltas not read during a load"
                    );
                    self.erase(name, current).await;
                }
            }
        }
    }

    /// Serves the cached generation if `current` is the same or a later one: a start need not wait
    /// for a slow store. Returns what is served.
    async fn serve_cached(
        &self,
        audience: &Audience,
        progress: &mut Progress,
        current: &Current,
    ) -> Option<Arc<Snapshot>> {
        let loader = self.loader();
        let loaded = AssertUnwindSafe(loader.load_cached(audience)).catch_unwind().await;
        let (cached, snapshot) = loaded.ok().flatten()?;
        if cached.state == State::Deleted {
            return None;
        }
        let mut accepted = Progress::default();
        accepted.accept(&cached);
        let is_same = cached == *current;
        if !is_same && !accepted.is_superseded_by(current, cached.generation) {
            return None;
        }
        progress.accept(&cached);
        let overlay = snapshot.overlay().clone().restricted_by(current);
        let snapshot = Arc::new(snapshot.with_overlay(overlay));
        self.serve(&audience.name, &snapshot);
        progress.report_first();
        Some(snapshot)
    }

    /// The cached generation, for a pod that serves none while the store is unavailable.
    async fn load_from_cache(
        &self,
        audience: &Audience,
        progress: &mut Progress,
    ) -> Option<Arc<Snapshot>> {
        let loader = self.loader();
        let loaded = AssertUnwindSafe(loader.load_cached(audience)).catch_unwind().await;
        let (current, mut snapshot) = loaded.ok().flatten()?;
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
