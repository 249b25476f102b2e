//! Reload of the config: on request, or when its files have changed.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc, oneshot, watch};

use rtad_core::backoff::Backoff;
use rtad_core::clock::now_unix_seconds;
use rtad_core::error_chain::error_chain;
use rtad_core::files::SETTLING;
use rtad_core::snapshot::AudienceName;

use super::assemble::Assembly;
use crate::config::{AssignedSlots, Config};
use crate::http::admin_app::{Reload, Reloaded, ServedConfig};
use crate::log::DecisionLog;
use crate::sync::SyncCommand;
use crate::telemetry::Telemetry;

/// Most intervals between two reloads of a refused config.
const MAX_INTERVALS: u32 = 32;

/// Reads the configuration anew, for a reload. May block.
pub type Reread = Box<dyn Fn() -> Result<Assembly, String> + Send + Sync>;

/// Reads the files twice. Different contents are a mistake: the files are being written. Blocks.
///
/// # Errors
///
/// The mistakes of the config, or that the files changed.
pub fn read_settled(reread: &Reread) -> Result<Assembly, String> {
    let first = FilesRead::of(&reread());
    std::thread::sleep(SETTLING);
    let second = reread();
    if FilesRead::of(&second) != first {
        return Err(format!(
            "the files of the config changed within {SETTLING:?}: found files that are being \
             written, expected whole ones"
        ));
    }
    second
}

/// Logs the warnings about a config.
pub fn warn_of(assembly: &Assembly) {
    for warning in assembly.warnings() {
        tracing::warn!("{warning}");
    }
}

/// Reads the config as a whole, and has sync serve it as a whole.
pub struct Reloader {
    started_with: Config,
    reread: Arc<Reread>,
    commands: mpsc::Sender<SyncCommand>,
    telemetry: Arc<Telemetry>,
    log: Option<Arc<DecisionLog>>,
    state: Mutex<ReloadState>,
    /// The config that is served.
    served_config: watch::Sender<ServedConfig>,
    /// Why the last reload was refused.
    refusal: watch::Sender<Option<String>>,
}

/// Notes that a config is served from now on.
fn loaded_now(config: &Config, telemetry: &Telemetry) -> ServedConfig {
    let served_config = ServedConfig {
        id: config.id.clone(),
        loaded_unix_seconds: now_unix_seconds(),
    };
    telemetry.config_loaded(&served_config.id, served_config.loaded_unix_seconds);
    served_config
}

/// The mistake of a config with caps, if the process started without a store for them: nothing
/// would be granted.
fn caps_without_store(config: &Config, started_with: &Config) -> Option<String> {
    let cap = config.caps.first()?;
    if started_with.store.caps_store().is_some() {
        return None;
    }
    Some(format!(
        "cap.{}: found a cap, but rtad started without a store for caps, expected a restart, which \
         opens store.caps_url",
        cap.name
    ))
}

/// A config that a reload serves.
struct ReloadedConfig {
    config: Config,
    /// Its audiences without a snapshot.
    unloaded: Vec<AudienceName>,
}

/// The content of the files.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FilesRead {
    Config { fingerprint: u64 },
    Mistakes(String),
}

impl FilesRead {
    fn of(assembly: &Result<Assembly, String>) -> Self {
        match assembly {
            Ok(assembly) => Self::Config {
                fingerprint: assembly.config.fingerprint,
            },
            Err(mistakes) => Self::Mistakes(mistakes.clone()),
        }
    }
}

struct ReloadState {
    config: Config,
    /// The slots of all experiments that were served.
    assigned: AssignedSlots,
    served: FilesRead,
    /// The last content, if it was refused.
    refused: Option<FilesRead>,
}

impl Reloader {
    pub fn new(
        started_with: Config,
        reread: Reread,
        commands: mpsc::Sender<SyncCommand>,
        telemetry: Arc<Telemetry>,
        log: Option<Arc<DecisionLog>>,
    ) -> Self {
        let state = Mutex::new(ReloadState {
            config: started_with.clone(),
            assigned: AssignedSlots::of(&started_with.experiments),
            served: FilesRead::Config {
                fingerprint: started_with.fingerprint,
            },
            refused: None,
        });
        let served_config = watch::Sender::new(loaded_now(&started_with, &telemetry));

        Self {
            started_with,
            reread: Arc::new(reread),
            commands,
            telemetry,
            log,
            state,
            served_config,
            refusal: watch::Sender::new(None),
        }
    }

    /// The config that is served.
    pub fn served_config(&self) -> watch::Receiver<ServedConfig> {
        self.served_config.subscribe()
    }

    /// Why the last reload was refused; `None` if it was not.
    pub fn refusal(&self) -> watch::Receiver<Option<String>> {
        self.refusal.subscribe()
    }

    /// The reload function of the admin port.
    pub fn handle(self: &Arc<Self>) -> Reload {
        let reloader = Arc::clone(self);
        Box::new(move || {
            let reloader = Arc::clone(&reloader);
            // A task of its own: a caller that hangs up must not leave a reload half recorded.
            let reloading = tokio::spawn(async move { reloader.reload().await });
            Box::pin(async move {
                reloading
                    .await
                    .unwrap_or_else(|_| Err("the reload panicked".to_owned()))
            })
        })
    }

    /// Rereads the config and serves it, all of it or nothing. Reloads are serialized.
    pub async fn reload(&self) -> Result<Reloaded, String> {
        let mut state = self.state.lock().await;
        tracing::info!("reloading the config");

        let assembly = self.read(read_settled).await;
        let found = FilesRead::of(&assembly);
        let result = match assembly {
            Ok(assembly) => {
                let mut mistakes = state.assigned.moves(&assembly.config.experiments);
                mistakes.extend(caps_without_store(&assembly.config, &self.started_with));
                if mistakes.is_empty() {
                    self.serve(assembly).await
                } else {
                    Err(mistakes.join("\n"))
                }
            }
            Err(mistakes) => Err(mistakes),
        };

        self.telemetry.reloaded(result.is_ok());
        self.refusal.send_replace(result.as_ref().err().cloned());
        let served = result.map_err(|reason| {
            tracing::warn!(reason, "config not reloaded; the old one stays");
            state.refused = Some(found.clone());
            reason
        })?;

        let config = served.config;
        let mut without_snapshot = Vec::new();
        for name in served.unloaded {
            if !state.config.audiences.iter().any(|it| it.name == name) {
                tracing::warn!(
                    audience = name.as_str(),
                    "the reloaded config has an audience that the store does not have: decisions \
                     that depend on it are unavailable"
                );
                without_snapshot.push(name.to_string());
            }
        }
        for removed in config.removals(&state.config) {
            tracing::warn!(removed, "the reloaded config lacks what was served");
        }

        let changed = config.changed_keys(&state.config);
        let needs_restart = config.needs_restart(&self.started_with);
        tracing::info!(
            changed = changed.join(", "),
            needs_restart = needs_restart.join(", "),
            "config reloaded"
        );

        let served_config = loaded_now(&config, &self.telemetry);
        self.served_config.send_replace(served_config);
        state.assigned.add(&config.experiments);
        state.config = config;
        state.served = found;
        state.refused = None;

        Ok(Reloaded {
            reloaded: true,
            changed,
            needs_restart,
            without_snapshot,
        })
    }

    /// Serves an assembly.
    async fn serve(&self, assembly: Assembly) -> Result<ReloadedConfig, String> {
        const STOPPING: &str = "rtad is stopping";

        warn_of(&assembly);
        let (done, answered) = oneshot::channel();
        let command = SyncCommand::Reload(Box::new(assembly.plan()), done);
        let config = assembly.config;
        if let Some(log) = &self.log {
            log.add_config(&config);
        }
        self.commands
            .send(command)
            .await
            .map_err(|_| STOPPING.to_owned())?;
        let unloaded = answered
            .await
            .map_err(|_| STOPPING.to_owned())?
            .map_err(|error| error_chain(&error))?;
        Ok(ReloadedConfig { config, unloaded })
    }

    /// Reads the files on the blocking pool, in this way.
    async fn read(
        &self,
        read: impl FnOnce(&Reread) -> Result<Assembly, String> + Send + 'static,
    ) -> Result<Assembly, String> {
        let reread = Arc::clone(&self.reread);
        tokio::task::spawn_blocking(move || read(&reread))
            .await
            .map_err(|_| "reading the config panicked".to_owned())?
    }

    /// Reloads the config when its files differ from the served state, without end.
    ///
    /// The files are read at each interval, not watched for events: a ConfigMap changes by its
    /// directory's symlink, and network mounts send no events. Mistakes are reported once. A config
    /// that is refused because of the store or a snapshot is retried with exponential backoff.
    pub async fn watch(&self, interval: Duration) {
        let mut backoff = Backoff::new(MAX_INTERVALS);
        let mut intervals_left = 0_u32;
        loop {
            tokio::time::sleep(interval).await;
            let found = FilesRead::of(&self.read(|reread| reread()).await);
            let state = self.state.lock().await;
            let is_refused = state.refused.as_ref() == Some(&found);
            // The served config is reloaded once after a refusal too, so that its recovery is
            // reported.
            let is_served = state.refused.is_none() && state.served == found;
            drop(state);
            let has_mistakes = matches!(found, FilesRead::Mistakes(_));
            if is_served || is_refused && (has_mistakes || intervals_left > 0) {
                intervals_left = intervals_left.saturating_sub(1);
                continue;
            }

            if !is_refused {
                backoff.reset();
            }
            intervals_left = backoff.fail();
            // The result is logged.
            let _ = self.reload().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cap_takes_a_restart_without_a_store_for_caps() {
        let config = |text: &str| toml::from_str::<Config>(text).unwrap();
        let cap = "[[cap]]\nname = \"c\"\nlimit = 10\nperiod = \"day\"\n";
        let http = "[store]\nurl = \"https://h\"\n";
        let both = format!("{http}caps_url = \"/caps\"\n");
        let with_cap = config(&format!("{both}{cap}"));

        let mistake = caps_without_store(&with_cap, &config(http)).unwrap();
        assert!(mistake.starts_with("cap.c: found a cap"), "{mistake}");
        assert_eq!(caps_without_store(&with_cap, &config(&both)), None);
        assert_eq!(caps_without_store(&config(&both), &config(http)), None);
    }
}
