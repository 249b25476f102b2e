//! Keeps the catalog current: looks at the store, loads what is new beside what is served, verifies it, swaps once.
//!
//! | what happens | what is served | counted as |
//! |---|---|---|
//! | nothing new | the same | `unchanged` |
//! | a new generation, verified to its last byte | it, from one moment to the next, or [chunk by chunk](SwapMode) | `ok` |
//! | anything else | the last good generation; at start, that of the cache | the cause |
//!
//! Chunks that the old generation has too are shared, not read again. Writing the new ones into memory is what warms it.
//! The old catalog is freed here, once no request holds it, on a thread that serves nothing.
//!
//! There is one [`Sync`], and only it writes the catalog, so no two writers ever race.

mod cache;
mod error;
mod headroom;
mod load;
mod pace;
mod poll;
mod roll;
mod seen;
mod shared;

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

pub use cache::cached_audiences;
pub use error::SyncError;
pub use headroom::Headroom;
pub use shared::{LastSync, Readiness, Shared, SyncBoard, SyncRun, now_unix_seconds};

use crate::catalog::{Audience, Catalog, Serving};
pub use crate::config::SwapMode;
use crate::platform::Platform;
use crate::strategy::Strategy;
use cache::Cache;
use pace::Pace;
use rtad_core::snapshot::AudienceName;
use rtad_store::Store;
use seen::Seen;

/// What sync is told to do besides looking at the store now and then.
#[derive(Debug)]
pub enum Command {
    /// Look at the store now; answered when it has been done.
    Poll(oneshot::Sender<()>),
    /// Serve these audiences and rules from now on, or nothing new at all.
    Reload(Box<Plan>, oneshot::Sender<Result<(), SyncError>>),
}

/// What the config says is to be served.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Audiences, none loaded.
    pub audiences: Vec<Audience>,
    /// Rules, which name audiences by their places.
    pub strategies: Vec<Strategy>,
    /// Platforms, which name strategies by their places.
    pub platforms: Vec<Arc<Platform>>,
    /// Time between looks at the store.
    pub poll_interval: Duration,
    /// Larger snapshots are refused.
    pub max_snapshot_bytes: u64,
    /// How a new generation comes to be served.
    pub swap: SwapMode,
}

/// The task that keeps the catalog current.
#[derive(Debug)]
pub struct Sync {
    store: Store,
    serving: Arc<Serving>,
    shared: Shared,
    poll_interval: Duration,
    max_snapshot_bytes: u64,
    swap_mode: SwapMode,
    cache: Option<Cache>,
    headroom: Headroom,
    pace: Pace,
    seen: HashMap<AudienceName, Seen>,
}

impl Sync {
    /// Sync over `store`, with a catalog that holds the plan's audiences, none of them loaded yet.
    pub fn new(store: Store, plan: Plan, shared: Shared) -> Self {
        let catalog =
            Catalog::new(plan.audiences, plan.strategies, plan.platforms, &shared.telemetry);
        Self {
            store,
            serving: Arc::new(Serving::from_pointee(catalog)),
            shared,
            poll_interval: plan.poll_interval,
            max_snapshot_bytes: plan.max_snapshot_bytes,
            swap_mode: plan.swap,
            cache: None,
            headroom: Headroom::default(),
            pace: Pace::default(),
            seen: HashMap::new(),
        }
    }

    /// The same, with a folder where verified chunks are kept for the next start.
    #[must_use]
    pub fn with_cache(self, folder: Option<PathBuf>) -> Self {
        let cache = folder.map(|folder| {
            Cache::new(folder, self.store.trust().clone(), Arc::clone(&self.shared.telemetry))
        });
        Self { cache, ..self }
    }

    /// The same, with another opinion of how much memory is left, for tests.
    #[must_use]
    pub fn with_headroom(self, headroom: Headroom) -> Self {
        Self { headroom, ..self }
    }

    /// The pointer that requests load.
    pub fn serving(&self) -> Arc<Serving> {
        Arc::clone(&self.serving)
    }

    /// Looks at the store every poll interval, give or take a tenth, less often while it fails, and does as it is told in
    /// between. Ends when
    /// nobody is left to tell it anything.
    pub async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.pace.delay(self.poll_interval)) => self.poll_all().await,
                command = commands.recv() => match command {
                    None => return,
                    Some(Command::Poll(done)) => {
                        self.repoll_all().await;
                        let _ = done.send(());
                    }
                    Some(Command::Reload(plan, done)) => {
                        // As in `poll`: a fault costs this reload, not the task.
                        let reloaded = AssertUnwindSafe(self.reload(*plan)).catch_unwind().await;
                        let reloaded = reloaded.unwrap_or(Err(SyncError::Internal));
                        // Whoever reloads wants what there is, not what there was: also what was refused before.
                        self.repoll_all().await;
                        let _ = done.send(reloaded);
                    }
                },
            }
        }
    }

    /// Looks at every audience, also at what was refused and would not yet be tried again.
    async fn repoll_all(&mut self) {
        self.seen.values_mut().for_each(Seen::forgive);
        self.poll_all().await;
    }

    /// Looks at every audience once, one after the other, so that no more than one is loaded beside what is served.
    pub async fn poll_all(&mut self) {
        self.poll_matching(|_| true).await;
    }

    /// The same for some of them.
    pub async fn poll_matching(&mut self, is_wanted: impl Fn(&AudienceName) -> bool) {
        let names: Vec<AudienceName> =
            self.serving.load().audiences().iter().map(|audience| audience.name.clone()).collect();
        self.pace.begin();
        for name in names.into_iter().filter(is_wanted) {
            // Before each, as a look may take minutes.
            self.mark_stale();
            self.poll_audience(&name).await;
        }
        self.pace.end();
        self.mark_stale();
        if self.serving.load().is_complete() {
            self.shared.readiness.complete();
        }
    }

    /// Looks at one audience and serves what it finds. A failure is counted, logged and kept for the status page; the last
    /// good generation goes on.
    async fn poll_audience(&mut self, name: &AudienceName) {
        let Some(audience) = self.serving.load().audience(name.as_str()).cloned() else { return };
        // By value: the old snapshot's last holder must be the retired catalog, not this task.
        let polled = self.poll(audience).await;
        if let Ok(Some(snapshot)) = polled {
            self.swap(self.serving.load().with_audiences(|old| {
                (old.name == *name)
                    .then(|| Audience { snapshot: Some(Arc::clone(&snapshot)), ..old.clone() })
            }));
        }
    }

    /// Serves another plan, all of it or nothing: a required audience that is new in it is loaded before the swap, and if that
    /// fails the old catalog stays.
    async fn reload(&mut self, plan: Plan) -> Result<(), SyncError> {
        let served = self.serving.load_full();
        let old_limit = std::mem::replace(&mut self.max_snapshot_bytes, plan.max_snapshot_bytes);
        let mut audiences = plan.audiences;
        for audience in &mut audiences {
            match served.audience(audience.name.as_str()) {
                Some(old) => audience.snapshot.clone_from(&old.snapshot),
                None => match self.poll(audience.clone()).await {
                    Ok(snapshot) => audience.snapshot = snapshot,
                    Err(error) if audience.required => {
                        self.max_snapshot_bytes = old_limit;
                        return Err(error);
                    }
                    Err(_) => {}
                },
            }
        }
        self.poll_interval = plan.poll_interval;
        self.swap_mode = plan.swap;
        self.seen.retain(|name, _| audiences.iter().any(|audience| audience.name == *name));
        drop(served);
        let telemetry = &self.shared.telemetry;
        self.swap(Catalog::new(audiences, plan.strategies, plan.platforms, telemetry));
        Ok(())
    }

    /// Takes audiences that have grown older than their `max_age`, or have expired, out of service.
    fn mark_stale(&self) {
        let catalog = self.serving.load();
        let now = now_unix_seconds();
        if catalog
            .audiences()
            .iter()
            .any(|audience| audience.is_stale != not_served(audience, now).is_some())
        {
            self.swap(catalog.with_audiences(|_| None));
        }
    }

    /// The one place where what is served changes. What is returned ends when the old catalog is freed.
    fn swap(&self, catalog: Catalog) -> JoinHandle<()> {
        let now = now_unix_seconds();
        let catalog = catalog.with_audiences(|audience| {
            let reason = not_served(audience, now);
            let is_stale = reason.is_some();
            if let Some(reason) = reason.filter(|_| !audience.is_stale) {
                tracing::warn!(
                    audience = audience.name.as_str(),
                    reason,
                    "the audience counts as unavailable"
                );
            }
            (is_stale != audience.is_stale).then(|| Audience { is_stale, ..audience.clone() })
        });
        let complete = catalog.is_complete();
        // Not when it is read: a reload may still throw it away.
        for audience in catalog.audiences() {
            if let Some(snapshot) = &audience.snapshot {
                self.shared.telemetry.snapshot(snapshot, audience.max_age);
            }
        }
        let kept: Vec<AudienceName> =
            catalog.audiences().iter().map(|audience| audience.name.clone()).collect();
        let old = self.serving.swap(Arc::new(catalog));
        for dropped in old.audiences().iter().filter(|audience| !kept.contains(&audience.name)) {
            self.shared.telemetry.no_snapshot(dropped.name.as_str());
        }
        if complete {
            self.shared.readiness.complete();
        }
        tokio::spawn(retire(old))
    }
}

/// Why an audience that has a snapshot may not be answered from at `now`; `None` if it may.
fn not_served(audience: &Audience, now_unix_seconds: u64) -> Option<&'static str> {
    let age = audience.age_seconds(now_unix_seconds).map(Duration::from_secs);
    if matches!((age, audience.max_age), (Some(age), Some(limit)) if age > limit) {
        return Some("older than max_age");
    }
    if audience.is_expired(now_unix_seconds) {
        return Some("expired");
    }
    audience.snapshot.as_ref()?.overlay().not_served(now_unix_seconds)
}

/// Frees a catalog that is no longer served, once the last request that loaded it is done. A new one cannot begin with it.
async fn retire(old: Arc<Catalog>) {
    while Arc::strong_count(&old) > 1 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    // Gigabytes go back to the kernel here: not on a thread that answers anybody.
    let _ = tokio::task::spawn_blocking(move || drop(old)).await;
}
