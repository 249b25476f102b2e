//! Reload of the config: on request, or when its files have changed.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc, oneshot};

use rtad_http::error_chain::error_chain;
use rtad_store::Store;

use super::assemble::Assembly;
use super::audiences::fill_in_audiences;
use crate::config::Config;
use crate::http::admin_app::{Reload, Reloaded};
use crate::sync::Command;
use crate::telemetry::Telemetry;

/// Reads the configuration anew, for a reload. May block.
pub type Reread = Box<dyn Fn() -> Result<Assembly, String> + Send + Sync>;

/// Reads the config as a whole, and has sync serve it as a whole.
pub(super) struct Reloader {
    started_with: Config,
    store: Store,
    reread: Arc<Reread>,
    commands: mpsc::Sender<Command>,
    telemetry: Arc<Telemetry>,
    state: Mutex<State>,
}

/// What was found in the files: a config, by its fingerprint, or mistakes.
type Found = Result<u64, String>;

struct State {
    served: Found,
    /// What was read last, if that was refused.
    refused: Option<Found>,
}

/// Looks that are left out at most between two reloads of what was refused.
const MAX_PAUSE: u32 = 32;

impl Reloader {
    pub(super) fn new(
        started_with: Config,
        store: Store,
        reread: Reread,
        commands: mpsc::Sender<Command>,
        telemetry: Arc<Telemetry>,
    ) -> Self {
        let state = Mutex::new(State { served: Ok(started_with.fingerprint), refused: None });
        Self { started_with, store, reread: Arc::new(reread), commands, telemetry, state }
    }

    /// Reloads, as the admin port does it.
    pub(super) fn handle(self: &Arc<Self>) -> Reload {
        let reloader = Arc::clone(self);
        Box::new(move || {
            let reloader = Arc::clone(&reloader);
            Box::pin(async move { reloader.reload().await })
        })
    }

    /// Rereads the config and serves it, all of it or nothing. One at a time, whoever asks: what was read last is served last.
    pub(super) async fn reload(&self) -> Result<Reloaded, String> {
        let mut state = self.state.lock().await;
        tracing::info!("reloading the config");
        let assembly = self.read().await;
        let found = fingerprint(&assembly);
        let result = match assembly {
            Ok(assembly) => self.serve(assembly).await,
            Err(mistakes) => Err(mistakes),
        };
        self.telemetry.reloaded(result.is_ok());
        match (&result, found) {
            (Ok(reloaded), found) => {
                tracing::info!(needs_restart = ?reloaded.needs_restart, "config reloaded");
                *state = State { served: found, refused: None };
            }
            (Err(reason), found) => {
                tracing::warn!(reason, "config not reloaded; the old one goes on");
                state.refused = Some(found);
            }
        }
        result
    }

    async fn serve(&self, mut assembly: Assembly) -> Result<Reloaded, String> {
        // Not those that were served before: the platforms name strategies by their indexes in this very config.
        let served = fill_in_audiences(&mut assembly.config, &self.store).await;
        served.map_err(|error| error_chain(&error))?;
        let needs_restart = assembly.config.needs_restart(&self.started_with);
        let (done, answered) = oneshot::channel();
        let gone = || "rtad is stopping".to_owned();
        let command = Command::Reload(Box::new(assembly.plan()), done);
        self.commands.send(command).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?.map_err(|error| error_chain(&error))?;
        Ok(Reloaded { reloaded: true, needs_restart })
    }

    /// Reads the files where they may keep a thread waiting.
    async fn read(&self) -> Result<Assembly, String> {
        let reread = Arc::clone(&self.reread);
        tokio::task::spawn_blocking(move || reread())
            .await
            .map_err(|_| "reading the config panicked".to_owned())?
    }

    /// Reloads whenever the files say something else than what is served, for ever. They are read anew each time and not watched for
    /// events: a ConfigMap changes by its directory's symlink, a secret in another directory, and a mount over a network tells nobody.
    /// The same mistake is told once. What is refused for a store's or a snapshot's sake is tried again after ever more looks.
    pub(super) async fn watch(&self, interval: Duration) {
        let (mut pause, mut rest) = (1, 0);
        loop {
            tokio::time::sleep(interval).await;
            let found = fingerprint(&self.read().await);
            let state = self.state.lock().await;
            let is_refused = state.refused.as_ref() == Some(&found);
            // After a refusal, what is served is news: that it is all right again is told as well.
            let is_served = state.refused.is_none() && state.served == found;
            drop(state);
            if is_served || is_refused && (found.is_err() || rest > 0) {
                rest = u32::saturating_sub(rest, 1);
                continue;
            }
            pause = if is_refused { MAX_PAUSE.min(2 * pause) } else { 1 };
            rest = pause;
            // What comes of it is logged.
            let _ = self.reload().await;
        }
    }
}

fn fingerprint(assembly: &Result<Assembly, String>) -> Found {
    assembly.as_ref().map(|assembly| assembly.config.fingerprint).map_err(Clone::clone)
}
