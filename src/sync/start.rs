//! Cache at the start of a pod: served before a newer generation is loaded, and while the store is
//! unavailable.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;

use super::cache::CachedState;
use super::load::CachedGeneration;
use super::progress::Progress;
use super::state::Syncer;
use rtad_core::snapshot::{AudienceName, Current, Newer, Overlay, Snapshot, State};

impl Syncer {
    /// Serves the cached generation: a start need not wait for a slow store. Returns what is
    /// served. `current` is in the cache, too, unless it could not be written.
    pub(super) async fn serve_cached(
        &self,
        name: &AudienceName,
        progress: &mut Progress,
        current: &Current,
    ) -> Option<Arc<Snapshot>> {
        self.see_cached(name, progress).await;
        let is_stale = progress.is_stale(current);
        if current.state == State::Deleted && !is_stale {
            return None;
        }
        let is_wanted = |state: &CachedState| state.newest().state != State::Deleted;
        let CachedGeneration { state, snapshot } = self.read_cached(name, is_wanted).await?;
        accept_cached(progress, &state);
        progress
            .pace
            .record_source(snapshot.manifest().from_window().is_some());

        let overlay = if is_stale {
            snapshot.overlay().clone()
        } else {
            Overlay::over(snapshot.overlay(), Newer::Current(current))
        };
        let snapshot = Arc::new(snapshot.with_overlay(overlay));
        self.serve(name, &snapshot);
        progress.report_first();
        Some(snapshot)
    }

    /// Records the newest cached record, also if there is no whole generation: an old copy of the
    /// store may lack its erasures, or the deletion.
    async fn see_cached(&self, name: &AudienceName, progress: &mut Progress) {
        let Some(cache) = &self.cache else { return };
        if progress.newest().is_none()
            && let Some(newest) = cache.newest_record(name).await
        {
            progress.see(&newest);
        }
    }

    /// The cached generation, for a pod that serves none while the store is unavailable.
    pub(super) async fn load_from_cache(
        &self,
        name: &AudienceName,
        progress: &mut Progress,
    ) -> Option<Arc<Snapshot>> {
        let cached = self.read_cached(name, |_| true).await;
        progress.is_cache_unusable = cached.is_none();
        let CachedGeneration { state, snapshot } = cached?;
        accept_cached(progress, &state);
        self.shared.telemetry.cache_start(name.as_str());
        tracing::warn!(
            audience = name.as_str(),
            generation = state.base.generation,
            "store unavailable: snapshot loaded from the cache"
        );
        Some(Arc::new(snapshot))
    }

    /// The generation of the cache; `None` also after a panic, which must not end the poll.
    async fn read_cached(
        &self,
        name: &AudienceName,
        is_wanted: impl FnOnce(&CachedState) -> bool,
    ) -> Option<CachedGeneration> {
        let loader = self.loader();
        let read = AssertUnwindSafe(loader.load_cached(name, is_wanted));
        read.catch_unwind().await.ok().flatten()
    }
}

/// Records that a cached state is served: no record before its newest one may be served from now
/// on.
fn accept_cached(progress: &mut Progress, state: &CachedState) {
    for record in std::iter::once(&state.base).chain(&state.later) {
        progress.see(record);
    }
    progress.accept(&state.base);
}
