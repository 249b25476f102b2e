//! Another configuration for a running rtad: when it is told to, or when it sees that the files have changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::{Reread, serve_what_there_is};
use crate::config::Config;
use crate::http::{Reload, Reloaded};
use crate::store::Store;
use crate::sync::{Command, chain};
use crate::telemetry::Telemetry;

/// Reads the config as a whole, and has sync serve it as a whole.
pub(super) struct Reloader {
    started_with: Config,
    store: Store,
    reread: Arc<Reread>,
    commands: mpsc::Sender<Command>,
    telemetry: Arc<Telemetry>,
    /// The fingerprint of the config that is served.
    served: AtomicU64,
}

impl Reloader {
    pub(super) fn new(
        started_with: Config,
        store: Store,
        reread: Reread,
        commands: mpsc::Sender<Command>,
        telemetry: Arc<Telemetry>,
    ) -> Self {
        let served = AtomicU64::new(started_with.fingerprint);
        Self { started_with, store, reread: Arc::new(reread), commands, telemetry, served }
    }

    /// Reloads, as the admin port does it.
    pub(super) fn handle(self: &Arc<Self>) -> Reload {
        let reloader = Arc::clone(self);
        Box::new(move || {
            let reloader = Arc::clone(&reloader);
            Box::pin(async move { reloader.reload().await })
        })
    }

    /// Rereads the config and serves it, all of it or nothing.
    pub(super) async fn reload(&self) -> Result<Reloaded, String> {
        tracing::info!("reloading the config");
        let result = self.try_reload().await;
        self.telemetry.reloaded(result.is_ok());
        match &result {
            Ok(reloaded) => tracing::info!(needs_restart = ?reloaded.needs_restart, "config reloaded"),
            Err(reason) => tracing::warn!(reason, "config not reloaded; the old one goes on"),
        }
        result
    }

    async fn try_reload(&self) -> Result<Reloaded, String> {
        let mut config = self.read().await?;
        // Not those that were served before: the platforms name strategies by their places in this very config.
        let served = serve_what_there_is(&mut config, &self.store).await;
        served.map_err(|error| chain(&error))?;
        let needs_restart = config.needs_restart(&self.started_with);
        let (done, answered) = oneshot::channel();
        let gone = || "rtad is stopping".to_owned();
        let command = Command::Reload(Box::new(config.plan()), done);
        self.commands.send(command).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?.map_err(|error| chain(&error))?;
        self.served.store(config.fingerprint, Ordering::Relaxed);
        Ok(Reloaded { reloaded: true, needs_restart })
    }

    /// Reads the files where they may keep a thread waiting.
    async fn read(&self) -> Result<Config, String> {
        let reread = Arc::clone(&self.reread);
        tokio::task::spawn_blocking(move || reread())
            .await
            .map_err(|_| "reading the config panicked".to_owned())?
    }

    /// Reloads whenever the files say something else than what is served, for ever. They are read anew each time and not watched for
    /// events: a ConfigMap changes by its directory's symlink, a secret in another directory, and a mount over a network tells nobody.
    /// The same mistake is told once.
    pub(super) async fn watch(&self, interval: Duration) {
        let mut told: Option<String> = None;
        loop {
            tokio::time::sleep(interval).await;
            let found = self.read().await;
            let is_served = |config: &Config| config.fingerprint == self.served.load(Ordering::Relaxed);
            let is_news = match &found {
                // Back to what is served, after a mistake: that is told as well.
                Ok(config) => told.is_some() || !is_served(config),
                Err(mistakes) => told.as_ref() != Some(mistakes),
            };
            if is_news {
                told = self.reload().await.err();
            }
        }
    }
}
