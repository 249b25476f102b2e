//! The sync loop: periodic polls, commands, and reloads of the config.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use tokio::sync::{mpsc, oneshot};

use super::error::SyncError;
use super::progress::Progress;
use super::state::{CatalogPlan, Sync};
use crate::catalog::{Audience, Catalog};
use rtad_core::snapshot::AudienceName;

/// A command to the sync task.
#[derive(Debug)]
pub enum Command {
    /// Poll the store now; answered after the poll.
    Poll(oneshot::Sender<()>),
    /// Serve this plan, all of it or nothing.
    Reload(Box<CatalogPlan>, oneshot::Sender<Result<(), SyncError>>),
}

impl Sync {
    /// Polls the store every poll interval with a jitter of a tenth, less often while it fails, and
    /// executes commands in between. Ends when all command senders are dropped.
    pub async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.pace.delay(self.poll_interval)) => {
                    self.poll_all().await;
                }
                command = commands.recv() => match command {
                    None => return,
                    Some(Command::Poll(done)) => {
                        self.repoll_all().await;
                        let _ = done.send(());
                    }
                    Some(Command::Reload(plan, done)) => {
                        // As in `poll`: a panic fails this reload, not the task.
                        let reloaded = AssertUnwindSafe(self.reload(*plan)).catch_unwind().await;
                        let reloaded = reloaded.unwrap_or(Err(SyncError::Internal));
                        self.repoll_all().await;
                        let _ = done.send(reloaded);
                    }
                },
            }
        }
    }

    /// Polls every audience, including those whose refused snapshot is still backed off.
    async fn repoll_all(&mut self) {
        self.progress.values_mut().for_each(Progress::clear_refusal);
        self.poll_all().await;
    }

    /// Polls every audience, one after the other: at most one is loaded beside the served ones.
    pub async fn poll_all(&mut self) {
        self.poll_matching(|_| true).await;
    }

    /// Polls the audiences that match.
    pub async fn poll_matching(&mut self, is_wanted: impl Fn(&AudienceName) -> bool) {
        let names: Vec<AudienceName> =
            self.serving.load().audiences().iter().map(|audience| audience.name.clone()).collect();
        self.pace.begin();
        for name in names.into_iter().filter(is_wanted) {
            // Before each poll, because one may take minutes.
            self.mark_stale();
            self.poll_audience(&name).await;
        }
        self.pace.end();
        self.mark_stale();
        if self.serving.load().is_complete() {
            self.shared.readiness.complete();
        }
    }

    /// Polls one audience and serves its new snapshot. A failure is counted, logged and recorded
    /// for the status page; the last good generation stays.
    async fn poll_audience(&mut self, name: &AudienceName) {
        let Some(audience) = self.serving.load().audience(name.as_str()).cloned() else { return };
        // By value: the retired catalog must hold the old snapshot last, not this task.
        let polled = self.poll(audience).await;
        if let Ok(Some(snapshot)) = polled {
            self.swap(self.serving.load().with_audiences(|old| {
                (old.name == *name)
                    .then(|| Audience { snapshot: Some(Arc::clone(&snapshot)), ..old.clone() })
            }));
        }
    }

    /// Serves another plan, all of it or nothing. New required audiences are loaded before the
    /// swap; if one fails, the old catalog stays.
    async fn reload(&mut self, plan: CatalogPlan) -> Result<(), SyncError> {
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
        self.progress.retain(|name, _| audiences.iter().any(|audience| audience.name == *name));
        drop(served);
        let telemetry = &self.shared.telemetry;
        let catalog = Catalog::new(audiences, plan.strategies, plan.platforms, telemetry);
        self.swap(catalog.with_api(plan.api));
        Ok(())
    }
}
