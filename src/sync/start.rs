//! Cache at the start of a pod: served before a newer generation is loaded, and while the store is
//! unavailable.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;

use super::progress::Progress;
use super::state::Sync;
use crate::catalog::Audience;
use rtad_core::snapshot::{Current, Newer, Overlay, Snapshot, State};

impl Sync {
    /// Serves the cached generation if `current` is the same or a later one: a start need not wait
    /// for a slow store. Returns what is served.
    pub(super) async fn serve_cached(
        &self,
        audience: &Audience,
        progress: &mut Progress,
        current: &Current,
    ) -> Option<Arc<Snapshot>> {
        if current.state == State::Deleted {
            return None;
        }
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
        let overlay = Overlay::over(snapshot.overlay(), Newer::Current(current));
        let snapshot = Arc::new(snapshot.with_overlay(overlay));
        self.serve(&audience.name, &snapshot);
        progress.report_first();
        Some(snapshot)
    }

    /// The cached generation, for a pod that serves none while the store is unavailable.
    pub(super) async fn load_from_cache(
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
            let overlay = Overlay::over(snapshot.overlay(), Newer::Current(later));
            snapshot = snapshot.with_overlay(overlay);
        }
        self.shared.telemetry.cache_start(audience.name.as_str());
        let (audience, generation) = (audience.name.as_str(), current.generation);
        tracing::warn!(audience, generation, "store unavailable: snapshot loaded from the cache");
        Some(Arc::new(snapshot))
    }
}
