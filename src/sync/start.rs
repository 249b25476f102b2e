//! Cache at the start of a pod: served before a newer generation is loaded, and while the store is
//! unavailable.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;

use super::cache::CachedState;
use super::load::CachedGeneration;
use super::progress::{Progress, may_replace};
use super::state::Syncer;
use rtad_core::snapshot::{AudienceName, Current, Newer, Overlay, Snapshot, State};

impl Syncer {
    /// Serves the cached generation if `current` is the same or a later one: a start need not wait
    /// for a slow store. Returns what is served.
    pub(super) async fn serve_cached(
        &self,
        name: &AudienceName,
        progress: &mut Progress,
        current: &Current,
    ) -> Option<Arc<Snapshot>> {
        if current.state == State::Deleted {
            return None;
        }
        let is_wanted = |state: &CachedState| {
            let cached = &state.current;
            let is_same = cached == current && state.later.is_none();
            let (sequence, highest) = (cached.sequence, cached.highest_generation());
            state.newest().state != State::Deleted
                && (is_same || may_replace(current, cached.generation, sequence, highest))
        };
        let CachedGeneration { state, snapshot } = self.read_cached(name, is_wanted).await?;
        progress.accept(&state.current);
        progress
            .pace
            .record_source(snapshot.manifest().from_window().is_some());
        let overlay = Overlay::over(snapshot.overlay(), Newer::Current(current));
        let snapshot = Arc::new(snapshot.with_overlay(overlay));
        self.serve(name, &snapshot);
        progress.report_first();
        Some(snapshot)
    }

    /// The cached generation, for a pod that serves none while the store is unavailable.
    pub(super) async fn load_from_cache(
        &self,
        name: &AudienceName,
        progress: &mut Progress,
    ) -> Option<Arc<Snapshot>> {
        let cached = self.read_cached(name, |_| true).await;
        progress.is_cache_unusable = cached.is_none();
        let CachedGeneration {
            state,
            mut snapshot,
        } = cached?;
        let current = state.current;
        progress.accept(&current);
        // A later `CURRENT` was read, though its files cannot be: it restricts the cached
        // generation.
        let later = progress.live.as_ref().map(|live| &live.current);
        if let Some(later) = later.filter(|later| later.sequence > current.sequence) {
            let overlay = Overlay::over(snapshot.overlay(), Newer::Current(later));
            snapshot = snapshot.with_overlay(overlay);
        }
        self.shared.telemetry.cache_start(name.as_str());
        tracing::warn!(
            audience = name.as_str(),
            generation = current.generation,
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
