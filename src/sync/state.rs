//! State of the sync task, and the swap: the only write to the served catalog.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::cache::Cache;
use super::load::Loader;
use super::memory::Memory;
use super::pace;
use super::progress::Progress;
use super::shared::{Shared, SyncAlive};
use super::stores::Stores;
use crate::catalog::{ApiAccess, Audience, Catalog, CatalogParts, Serving};
use crate::config::{CapConfig, SwapMode};
use crate::platform::Platform;
use crate::strategy::{Experiment, Strategy};
use rtad_core::clock::{self, now_unix_seconds};
use rtad_core::headroom::Headroom;
use rtad_core::snapshot::{AudienceName, Snapshot, StagePlace};

/// The configured content of a catalog, and the limits for loading it.
#[derive(Debug, Clone)]
pub struct CatalogPlan {
    /// Audiences, none loaded.
    pub audiences: Vec<Audience>,
    /// Strategies, which name audiences by index.
    pub strategies: Vec<Strategy>,
    /// Experiments, which strategies name by index.
    pub experiments: Vec<Experiment>,
    /// Caps, which strategies name by index.
    pub caps: Vec<CapConfig>,
    /// Platforms, which name strategies by index.
    pub platforms: Vec<Arc<Platform>>,
    /// Id of the configuration in logs.
    pub config_id: String,
    /// Access to rtad's own routes.
    pub api: ApiAccess,
    /// Time between polls of the store.
    pub poll_interval: Duration,
    /// Larger snapshots are refused.
    pub max_snapshot_bytes: u64,
    /// Way of replacing a served generation.
    pub swap: SwapMode,
}

/// Settings of a plan that a reload changes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    pub(super) poll_interval: Duration,
    pub(super) max_snapshot_bytes: u64,
    pub(super) swap: SwapMode,
}

impl From<&CatalogPlan> for Settings {
    fn from(plan: &CatalogPlan) -> Self {
        let &CatalogPlan {
            poll_interval,
            max_snapshot_bytes,
            swap,
            ..
        } = plan;
        Self {
            poll_interval,
            max_snapshot_bytes,
            swap,
        }
    }
}

/// Progress of an audience, locked for the duration of a poll.
pub type SharedProgress = Arc<tokio::sync::Mutex<Progress>>;

/// The state of sync. Its audiences are polled concurrently, on one thread: a read and a swap of
/// the catalog without an `await` in between are atomic.
#[derive(Debug)]
pub struct Syncer {
    pub(super) stores: Stores,
    /// Name of the pod, which decides whether it takes a staged generation; `None` never takes one.
    pod: Option<String>,
    pub(super) serving: Arc<Serving>,
    pub(super) shared: Shared,
    pub(super) cache: Option<Cache>,
    pub(super) memory: Memory,
    settings: Mutex<Settings>,
    progress: Mutex<HashMap<AudienceName, SharedProgress>>,
    /// A command polled all audiences: their next polls are due by their new pace.
    pub(super) repolled: Notify,
}

impl Syncer {
    /// A syncer over stores, with a catalog of the plan's audiences, none of them loaded.
    pub fn new(stores: impl Into<Stores>, plan: CatalogPlan, shared: Shared) -> Self {
        let settings = Settings::from(&plan);
        let caps = shared.caps.serve(&plan.caps);
        let parts = CatalogParts {
            audiences: plan.audiences,
            strategies: plan.strategies,
            experiments: plan.experiments,
            caps,
            platforms: plan.platforms,
            config_id: plan.config_id,
            api: plan.api,
        };
        let catalog = Catalog::new(parts, &shared.telemetry);

        Self {
            stores: stores.into(),
            pod: None,
            serving: Arc::new(Serving::from_pointee(catalog)),
            shared,
            cache: None,
            memory: Memory::default(),
            settings: Mutex::new(settings),
            progress: Mutex::default(),
            repolled: Notify::new(),
        }
    }

    /// Sets the name of the pod, by which it takes staged generations. Call it before
    /// [`Self::with_cache`].
    #[must_use]
    pub fn with_pod(self, pod: String) -> Self {
        Self {
            pod: Some(pod),
            ..self
        }
    }

    /// The place of the pod in the order of an audience's stages.
    pub(super) fn stage_place(&self, audience: &AudienceName) -> StagePlace {
        match &self.pod {
            Some(pod) => StagePlace::of(pod, audience),
            None => StagePlace::LAST,
        }
    }

    /// Sets the cache folder, which keeps verified chunks for the next start.
    #[must_use]
    pub fn with_cache(self, folder: Option<PathBuf>) -> Self {
        let cache = folder.map(|folder| {
            Cache::new(
                folder,
                self.stores.trust().clone(),
                self.pod.clone(),
                Arc::clone(&self.shared.telemetry),
            )
        });
        Self { cache, ..self }
    }

    /// Sets the source of the memory limit, for tests.
    #[must_use]
    pub fn with_headroom(self, headroom: Headroom) -> Self {
        Self {
            memory: Memory::new(headroom),
            ..self
        }
    }

    /// The pointer that requests load.
    pub fn serving(&self) -> Arc<Serving> {
        Arc::clone(&self.serving)
    }

    /// The guard of the thread that polls.
    pub fn alive(&self) -> SyncAlive {
        SyncAlive::new(&self.shared)
    }

    pub(super) fn settings(&self) -> Settings {
        *self.settings.lock()
    }

    pub(super) fn set(&self, settings: Settings) {
        *self.settings.lock() = settings;
    }

    /// Progress by audience.
    pub(super) fn progress(&self) -> MutexGuard<'_, HashMap<AudienceName, SharedProgress>> {
        self.progress.lock()
    }

    pub(super) fn progress_of(&self, audience: &AudienceName) -> SharedProgress {
        Arc::clone(self.progress().entry(audience.clone()).or_default())
    }

    pub(super) fn loader(&self) -> Loader<'_> {
        let Settings {
            poll_interval,
            max_snapshot_bytes,
            ..
        } = self.settings();
        Loader {
            stores: &self.stores,
            cache: self.cache.as_ref(),
            memory: &self.memory,
            telemetry: &self.shared.telemetry,
            max_snapshot_bytes,
            spread: pace::spread(poll_interval),
        }
    }

    /// Serves a snapshot of the audience, if the catalog has the audience.
    pub(super) fn serve(&self, name: &AudienceName, snapshot: &Arc<Snapshot>) {
        if self.serving.load().audience(name.as_str()).is_none() {
            return;
        }
        self.swap(self.serving.load().with_audiences(|old| {
            (old.name == *name).then(|| Audience {
                snapshot: Some(Arc::clone(snapshot)),
                ..old.clone()
            })
        }));
    }

    /// Changes the served snapshot of the audience, if there is one. The returned task ends when
    /// the old one is freed.
    pub(super) fn update(
        &self,
        name: &AudienceName,
        change: impl Fn(&Snapshot) -> Snapshot,
    ) -> Option<JoinHandle<()>> {
        self.served(name)?;
        Some(self.swap(self.serving.load().with_audiences(|old| {
            let snapshot = old.snapshot.as_ref().filter(|_| old.name == *name)?;
            Some(Audience {
                snapshot: Some(Arc::new(change(snapshot))),
                ..old.clone()
            })
        })))
    }

    /// The snapshot that the catalog has of the audience.
    pub(super) fn served(&self, name: &AudienceName) -> Option<Arc<Snapshot>> {
        self.serving
            .load()
            .audience(name.as_str())?
            .snapshot
            .clone()
    }

    /// Follows the clock: schedules of strategies, audiences that exceed their `max_age` or have
    /// expired, and the caps' new tables. Call every second: a cap's next table exists for half a
    /// minute before it is needed.
    pub(super) fn follow_time(&self) {
        let catalog = self.serving.load();
        for strategy in catalog.strategies() {
            strategy.follow_schedule(clock::now(), Instant::now());
        }
        let now = now_unix_seconds();
        let is_outdated =
            |audience: &Audience| audience.is_stale != stale_reason(audience, now).is_some();
        if catalog.audiences().iter().any(is_outdated) || !catalog.caps().are_current() {
            // The swap marks the audiences.
            self.swap(catalog.with_audiences(|_| None));
        }
    }

    /// Serves another catalog. The returned task ends when the old one is freed.
    pub(super) fn swap(&self, catalog: Catalog) -> JoinHandle<()> {
        let now = now_unix_seconds();
        let catalog = catalog.with_audiences(|audience| {
            let reason = stale_reason(audience, now);
            let is_stale = reason.is_some();
            let name = audience.name.as_str();
            match reason {
                Some(reason) if !audience.is_stale => {
                    tracing::warn!(
                        audience = name,
                        reason,
                        "the audience counts as unavailable"
                    );
                }
                None if audience.is_stale => {
                    tracing::info!(audience = name, "the audience is available again");
                }
                _ => {}
            }
            (is_stale != audience.is_stale).then(|| Audience {
                is_stale,
                ..audience.clone()
            })
        });
        let catalog = Arc::new(catalog);
        let old = self.serving.swap(Arc::clone(&catalog));
        if catalog.is_complete() {
            self.shared.readiness.complete();
        }
        for dropped in old.audiences() {
            if catalog.audience(dropped.name.as_str()).is_none() {
                self.shared.telemetry.no_sync(dropped.name.as_str());
            }
        }
        tokio::spawn(retire(old))
    }
}

/// The reason that a loaded audience is unavailable at `now`; `None` if it is available.
fn stale_reason(audience: &Audience, now_unix_seconds: u64) -> Option<&'static str> {
    let age = audience
        .age_seconds(now_unix_seconds)
        .map(Duration::from_secs);
    if matches!((age, audience.max_age), (Some(age), Some(limit)) if age > limit) {
        return Some("older than max_age");
    }
    if audience.is_expired(now_unix_seconds) {
        return Some("expired");
    }
    audience
        .snapshot
        .as_ref()?
        .overlay()
        .not_served(now_unix_seconds)
}

/// Frees a replaced catalog once the last request that loaded it is done.
async fn retire(old: Arc<Catalog>) {
    while Arc::strong_count(&old) > 1 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    // Returns gigabytes to the kernel: not on a thread that answers requests.
    let _ = tokio::task::spawn_blocking(move || drop(old)).await;
}
