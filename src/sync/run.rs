//! The sync loop: one task per audience, commands, and reloads of the config.
//!
//! Audiences are polled independently: a slow load of one delays no other. Ages and expiries are
//! checked every second, whatever the store does.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet, LocalSet};
use tokio::time::{Instant, timeout_at};

use super::error::SyncError;
use super::state::{CatalogPlan, Settings, Syncer};
use crate::catalog::{Catalog, CatalogParts};
use rtad_core::snapshot::AudienceName;

/// Time between two checks of ages, expiries and caps.
const STALE_CHECK: Duration = Duration::from_secs(1);
/// Most time that a start or a reload waits for optional audiences, and for polls that it does not
/// depend on.
const OPTIONAL_TIMEOUT: Duration = Duration::from_secs(5);

/// A command to the sync task.
#[derive(Debug)]
pub enum SyncCommand {
    /// Poll the store now; answered after the poll.
    Poll(oneshot::Sender<()>),
    /// Serve this plan, all of it or nothing, and poll the store. Answered after the polls, or
    /// before the end of those that take long, with the audiences that have no snapshot.
    Reload(
        Box<CatalogPlan>,
        oneshot::Sender<Result<Vec<AudienceName>, SyncError>>,
    ),
}

impl Syncer {
    /// Polls the store every poll interval with a jitter of a tenth, less often while it fails, and
    /// executes commands in between. Sends `loaded` when every required audience is served or was
    /// polled once; optional ones are waited for briefly. Ends when all command senders are
    /// dropped, or when a task panics. Runs on a runtime of one thread.
    pub async fn run(
        self: Arc<Self>,
        commands: mpsc::Receiver<SyncCommand>,
        loaded: oneshot::Sender<()>,
    ) {
        LocalSet::new()
            .run_until(self.run_tasks(commands, loaded))
            .await;
    }

    async fn run_tasks(
        self: Arc<Self>,
        mut commands: mpsc::Receiver<SyncCommand>,
        loaded: oneshot::Sender<()>,
    ) {
        let mut tasks = JoinSet::new();
        let first = self.first_polls();
        let sync = Arc::clone(&self);
        tasks.spawn_local(async move {
            first.await;
            // A pod without required audiences has waited for nothing.
            if sync.serving.load().is_complete() {
                sync.shared.readiness.complete();
            }
            let _ = loaded.send(());
        });
        let sync = Arc::clone(&self);
        tasks.spawn_local(async move {
            loop {
                tokio::time::sleep(STALE_CHECK).await;
                sync.follow_time();
            }
        });
        let mut polled = HashMap::new();
        self.start_polling(&mut tasks, &mut polled);
        loop {
            tokio::select! {
                biased;
                Some(ended) = tasks.join_next() => {
                    if ended.is_err_and(|error| error.is_panic()) {
                        tracing::error!("a sync task panicked: the store is polled no more");
                        return;
                    }
                }
                command = commands.recv() => match command {
                    None => return,
                    Some(SyncCommand::Poll(done)) => {
                        let sync = Arc::clone(&self);
                        tasks.spawn_local(async move {
                            sync.repoll_all().await;
                            let _ = done.send(());
                        });
                    }
                    Some(SyncCommand::Reload(plan, done)) => {
                        let deadline = Instant::now() + OPTIONAL_TIMEOUT;
                        // A panic fails this reload, not the task, as in `poll`.
                        let reload = AssertUnwindSafe(self.reload(*plan, deadline));
                        let reloaded = reload.catch_unwind().await;
                        let reloaded = reloaded.unwrap_or(Err(SyncError::Internal));
                        self.start_polling(&mut tasks, &mut polled);
                        let (sync, (ended, polls)) = (Arc::clone(&self), oneshot::channel());
                        let polling = Arc::clone(&self);
                        tasks.spawn_local(async move {
                            polling.repoll_all().await;
                            let _ = ended.send(());
                        });
                        // A poll may load a generation for minutes.
                        tasks.spawn_local(async move {
                            let _ = timeout_at(deadline, polls).await;
                            let _ = done.send(reloaded.map(|()| sync.unloaded()));
                        });
                    }
                },
            }
        }
    }

    /// Registers for the first poll of each audience; call it before the polls start. The future
    /// waits until required audiences are served or were polled once, and briefly for others.
    fn first_polls(&self) -> impl Future<Output = ()> + use<> {
        let mut required = Vec::new();
        let mut optional = Vec::new();
        for audience in self.serving.load().audiences() {
            let (sender, first) = oneshot::channel();
            if let Ok(mut progress) = self.progress_of(&audience.name).try_lock() {
                progress.first = Some(sender);
            }
            if audience.required {
                required.push(first)
            } else {
                optional.push(first)
            }
        }
        async move {
            let optional = tokio::time::timeout(OPTIONAL_TIMEOUT, join_all(optional));
            let _ = tokio::join!(join_all(required), optional);
        }
    }

    /// Starts the tasks of new audiences, and ends those of removed ones.
    fn start_polling(
        self: &Arc<Self>,
        tasks: &mut JoinSet<()>,
        polled: &mut HashMap<AudienceName, AbortHandle>,
    ) {
        let names = self.names();
        let removed = polled.extract_if(|name, _| !names.contains(name));
        removed.for_each(|(_, task)| task.abort());
        for name in names {
            let sync = Arc::clone(self);
            let audience = name.clone();
            polled.entry(name).or_insert_with(|| {
                tasks.spawn_local(async move {
                    loop {
                        sync.poll_audience(&audience).await;
                        sync.wait_for_next_poll(&audience).await;
                    }
                })
            });
        }
    }

    /// Waits for the audience's pace, which a command's poll changes.
    async fn wait_for_next_poll(&self, name: &AudienceName) {
        loop {
            let repolled = self.repolled.notified();
            let interval = self.settings().poll_interval;
            let delay = self.progress_of(name).lock().await.pace.delay(interval);
            tokio::select! {
                biased;
                () = tokio::time::sleep(delay) => return,
                () = repolled => {}
            }
        }
    }

    /// The audiences without a snapshot.
    fn unloaded(&self) -> Vec<AudienceName> {
        let catalog = self.serving.load();
        let mut unloaded = Vec::new();
        for audience in catalog.audiences() {
            if audience.snapshot.is_none() {
                unloaded.push(audience.name.clone());
            }
        }
        unloaded
    }

    fn names(&self) -> Vec<AudienceName> {
        self.serving
            .load()
            .audiences()
            .iter()
            .map(|audience| audience.name.clone())
            .collect()
    }

    /// Polls every audience, including those whose refused snapshot is still backed off.
    async fn repoll_all(&self) {
        for progress in self.progress().values() {
            // A poll that runs is not backed off.
            if let Ok(mut progress) = progress.try_lock() {
                progress.clear_refusal();
            }
        }
        self.poll_all().await;
        self.repolled.notify_waiters();
    }

    /// Polls every audience, concurrently.
    pub async fn poll_all(&self) {
        self.poll_matching(|_| true).await;
    }

    /// Polls the audiences that match.
    pub async fn poll_matching(&self, is_wanted: impl Fn(&AudienceName) -> bool) {
        self.follow_time();
        let names: Vec<AudienceName> = self.names().into_iter().filter(is_wanted).collect();
        join_all(names.iter().map(|name| self.poll_audience(name))).await;
        self.follow_time();
        if self.serving.load().is_complete() {
            self.shared.readiness.complete();
        }
    }

    /// Serves another plan, all of it or nothing. New audiences are loaded before the swap,
    /// optional ones until the deadline; if a required one fails, the old catalog stays.
    async fn reload(&self, plan: CatalogPlan, deadline: Instant) -> Result<(), SyncError> {
        let settings = Settings::from(&plan);
        let old_settings = self.settings();
        // New audiences are loaded under the new limit.
        self.set(Settings {
            max_snapshot_bytes: plan.max_snapshot_bytes,
            ..old_settings
        });
        let mut audiences = plan.audiences;
        let served = self.names();
        let new = audiences
            .iter_mut()
            .filter(|audience| !served.contains(&audience.name));
        let loads = new.map(async |audience| {
            let progress = self.progress_of(&audience.name);
            let poll = async {
                self.poll(audience.clone(), &mut *progress.lock().await)
                    .await
            };
            let polled = match audience.required {
                true => poll.await,
                false => timeout_at(deadline, poll).await.unwrap_or(Ok(None)),
            };
            match polled {
                Ok(snapshot) => audience.snapshot = snapshot,
                Err(error) if audience.required => return Err(error),
                Err(_) => {}
            }
            Ok(())
        });
        if let Some(error) = join_all(loads).await.into_iter().find_map(Result::err) {
            self.set(old_settings);
            return Err(error);
        }
        // Allocates tables. A cap that is as before keeps its table.
        let shared = self.shared.clone();
        let caps = tokio::task::spawn_blocking(move || shared.caps.serve(&plan.caps));
        let Ok(caps) = caps.await else {
            self.set(old_settings);
            return Err(SyncError::Internal);
        };
        self.set(settings);
        let is_kept = |name: &AudienceName| audiences.iter().any(|audience| audience.name == *name);
        self.progress().retain(|name, _| is_kept(name));
        // Read last: polls of the served audiences went on.
        let catalog = self.serving.load_full();
        for audience in &mut audiences {
            if let Some(old) = catalog.audience(audience.name.as_str()) {
                audience.snapshot.clone_from(&old.snapshot);
            }
        }
        drop(catalog);

        let parts = CatalogParts {
            audiences,
            strategies: plan.strategies,
            experiments: plan.experiments,
            caps,
            platforms: plan.platforms,
            config_id: plan.config_id,
            api: plan.api,
        };
        self.swap(Catalog::new(parts, &self.shared.telemetry));
        Ok(())
    }
}
