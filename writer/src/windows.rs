//! Event windows of the writer, and the audiences that follow them.
//!
//! | module | job |
//! |---|---|
//! | `config` | the file of `--config` |
//! | `clock` | ticks of a window |
//! | `counters` | metrics |
//! | `reports` | keys whose membership may have changed |
//! | `stored` | the window's claim and checkpoints in the store |
//! | `served` | a window with clock, files and metrics |
//! | `remote` | a window in Redis or Valkey |
//! | `followed` | the writer of an audience that follows a window |

mod clock;
pub(crate) mod config;
pub(super) mod counters;
mod followed;
mod lease;
mod remote;
mod reports;
mod served;
mod stored;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;
use tokio::task::JoinSet;

use rtad_core::device::DeviceKey;
use rtad_core::snapshot::AudienceName;
use rtad_redis::RedisError;
use rtad_store::write::StoreWriter;
use rtad_window::OpenError;

use super::telemetry::Telemetry;
use config::Config;
use counters::AudienceCounters;
use followed::Follower;
pub(super) use remote::{RemoteInfo, RemoteWindow};
use reports::Reports;
use served::ReadWindow;
pub(super) use served::{ServedWindow, WindowInfo};
use stored::ClaimError;

/// A window, by the place of its state.
#[derive(Clone)]
pub(super) enum AnyWindow {
    /// A window in this process.
    Local(Arc<ServedWindow>),
    /// A window in Redis or Valkey.
    Remote(Arc<RemoteWindow>),
}

/// A window that cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WindowError {
    #[error(transparent)]
    Files(OpenError),
    #[error(transparent)]
    Claim(ClaimError),
    #[error(transparent)]
    Backend(RedisError),
}

/// An audience that follows a window.
#[derive(Debug, Serialize)]
pub(super) struct FollowedInfo<'a> {
    audience: &'a AudienceName,
    window: &'a AudienceName,
    min_count: u16,
    lag_seconds: f64,
}

/// All windows of the process.
#[derive(Default)]
pub(super) struct Windows {
    windows: BTreeMap<AudienceName, AnyWindow>,
    /// Audiences that follow a window: its name, and the reports that wait.
    owned: BTreeMap<AudienceName, (AudienceName, Arc<Reports>)>,
    followers: Mutex<Vec<Follower>>,
    tasks: Mutex<JoinSet<()>>,
    stop: watch::Sender<bool>,
}

impl Windows {
    /// Reads every window, and claims them all afterwards: a window that cannot be opened leaves
    /// every other one to its owner. Blocks meanwhile.
    pub(super) async fn open(
        config: &Config,
        store: &StoreWriter,
        every: Duration,
        telemetry: &Telemetry,
    ) -> Result<Self, WindowError> {
        let mut windows = Self::default();
        let mut read = Vec::new();
        for window in &config.windows {
            let window = window.clone();
            read.push(ReadWindow::read(window, &config.state_dir, config.lease, store).await?);
        }
        for config in &config.remote {
            // Its URL was checked with the config; a CA file may be unreadable.
            let remote = RemoteWindow::new(config, telemetry).map_err(WindowError::Backend)?;
            windows.windows.insert(config.name.clone(), AnyWindow::Remote(Arc::new(remote)));
        }
        let mut followers = Vec::new();
        for (window, read) in config.windows.iter().zip(read) {
            let audiences: Vec<_> = config
                .audiences_of(&window.name)
                .map(|audience| (audience.clone(), Arc::new(Reports::new(audience.min_count))))
                .collect();
            let reports = audiences.iter().map(|(_, reports)| Arc::clone(reports)).collect();
            let served = Arc::new(read.claim(reports, telemetry).await?);
            for (audience, reports) in audiences {
                let owned = (window.name.clone(), Arc::clone(&reports));
                windows.owned.insert(audience.name.clone(), owned);
                followers.push(Follower {
                    counters: AudienceCounters::new(telemetry, &audience.name),
                    config: audience,
                    window: Arc::clone(&served),
                    reports,
                    store: store.clone(),
                    every,
                });
            }
            windows.windows.insert(window.name.clone(), AnyWindow::Local(served));
        }
        windows.followers = Mutex::new(followers);
        Ok(windows)
    }

    /// Starts the tasks of windows and audiences.
    pub(super) fn start(&self) {
        let mut tasks = self.tasks.lock();
        for window in self.windows.values() {
            match window.clone() {
                AnyWindow::Local(window) => {
                    tasks.spawn(Arc::clone(&window).keep_stored(self.stop.subscribe()));
                    tasks.spawn(Arc::clone(&window).watch_owner(self.stop.subscribe()));
                    tokio::spawn(window.maintain())
                }
                AnyWindow::Remote(window) => tokio::spawn(window.maintain()),
            };
        }
        let mut followers = self.followers.lock();
        for follower in followers.drain(..) {
            tasks.spawn(follower.run(self.stop.subscribe()));
        }
    }

    pub(super) fn get(&self, name: &AudienceName) -> Option<&AnyWindow> {
        self.windows.get(name)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &AnyWindow> {
        self.windows.values()
    }

    /// The audiences that follow a window.
    pub(super) fn followed(&self) -> impl Iterator<Item = FollowedInfo<'_>> {
        self.owned.iter().map(|(audience, (window, reports))| FollowedInfo {
            audience,
            window,
            min_count: reports.min_count,
            lag_seconds: reports.lag().as_secs_f64(),
        })
    }

    /// Whether an audience follows a window, so that only tombstones of it may be written.
    pub(super) fn owns(&self, audience: &AudienceName) -> bool {
        self.owned.contains_key(audience)
    }

    /// Reports keys whose membership another writer may have changed.
    pub(super) fn report(&self, audience: &AudienceName, keys: &[DeviceKey]) {
        if let Some((_, reports)) = self.owned.get(audience) {
            reports.add(keys.iter().map(DeviceKey::as_bytes));
        }
    }

    /// Writes the audiences a last time, and checkpoints, also to the store.
    pub(super) async fn finish(&self) {
        self.stop.send_replace(true);
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        while let Some(ended) = tasks.join_next().await {
            // The panic is logged already. The other tasks finish, and the files are complete.
            if let Err(error) = ended {
                tracing::error!(error = error.to_string(), "task of a window failed");
            }
        }
        for window in self.windows.values() {
            let AnyWindow::Local(window) = window else { continue };
            let closing = Arc::clone(window);
            let _ = tokio::task::spawn_blocking(move || closing.close()).await;
            window.release().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::served::tests::Owner;
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn panic_of_one_task_leaves_the_last_checkpoint_to_the_windows() {
        let owner = Owner::start("length = \"1h\"").await;
        let windows = Windows::default();
        let window = Arc::clone(&owner.window);
        let finished = Arc::clone(&window);
        let windows = Windows {
            windows: BTreeMap::from([(window.config.name.clone(), AnyWindow::Local(window))]),
            ..windows
        };
        let mut stop = windows.stop.subscribe();
        windows.tasks.lock().spawn(async move {
            let _ = stop.changed().await;
            panic!("a task that fails");
        });
        owner.observe(&[[1; 16]]);
        windows.finish().await;
        assert!(finished.has_stored_all());
    }
}
