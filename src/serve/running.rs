//! A running rtad: reload and drain.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rtad_http::phase::Phase;
use rtad_http::workers::Workers;
use tokio::sync::{mpsc, oneshot, watch};

use super::reload::Reloader;
use super::threads::Threads;
use crate::catalog::Serving;
use crate::http::admin_app::Reloaded;
use crate::log::DecisionLog;
use crate::sync::{Shared, SyncCommand};
use crate::telemetry::ConnectionPermit;

/// Most time after SIGTERM in which new connections are still answered, while load balancers
/// notice.
const LAME_DUCK: Duration = Duration::from_secs(5);
/// Balancers that open a connection per request, as after `Connection: close`, return within this
/// time.
const UNUSED: Duration = Duration::from_secs(1);

/// Most time for the end of the decision log: its last file is written and uploaded. It is less
/// than the 10 s that pods have after the drain time-out.
const LOG_TIME: Duration = Duration::from_secs(5);

/// A port that answers decisions: its accept loop and its workers.
pub struct OpenPort {
    pub address: SocketAddr,
    pub acceptor: tokio::task::JoinHandle<()>,
    pub workers: Arc<Workers<ConnectionPermit>>,
}

/// rtad, serving. Its threads end when it is dropped; the decision port and its workers end with
/// a drain, or with the runtime that [`super::start`] was called in.
pub struct Running {
    /// Address of the decision port.
    pub decision_address: SocketAddr,
    /// Address of the admin port.
    pub admin_address: SocketAddr,
    pub(super) serving: Arc<Serving>,
    pub(super) shared: Shared,
    pub(super) drain_timeout: Duration,
    pub(super) phase: watch::Sender<Phase>,
    pub(super) commands: mpsc::Sender<SyncCommand>,
    pub(super) port: OpenPort,
    pub(super) reloader: Arc<Reloader>,
    pub(super) log: Option<Arc<DecisionLog>>,
    pub(super) _threads: Threads,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running")
            .field("decision_address", &self.decision_address)
            .field("admin_address", &self.admin_address)
            .finish_non_exhaustive()
    }
}

impl Running {
    /// The catalog.
    pub const fn serving(&self) -> &Arc<Serving> {
        &self.serving
    }

    /// Metrics, readiness, last syncs.
    pub const fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Polls the store now; returns after the poll.
    pub async fn poll(&self) {
        let (done, answered) = oneshot::channel();
        if self.commands.send(SyncCommand::Poll(done)).await.is_ok() {
            let _ = answered.await;
        }
    }

    /// Rereads the config and serves it, all of it or nothing.
    ///
    /// # Errors
    ///
    /// The reason that nothing was changed.
    pub async fn reload(&self) -> Result<Reloaded, String> {
        self.reloader.reload().await
    }

    /// Drains in order: readiness falls; for a while requests are answered with `Connection:
    /// close`; then no more connections are accepted, idle ones are closed, and requests in flight
    /// finish. Returns when all have, or at the drain time-out.
    pub async fn drain(self) {
        let started = Instant::now();
        self.shared.readiness.drain();
        let telemetry = Arc::clone(&self.shared.telemetry);
        tracing::info!(connections = telemetry.connections(), "draining");
        self.wait_for_balancers(started).await;
        let _ = self.phase.send(Phase::Closing);

        let _ = self.port.acceptor.await;
        let workers = Arc::into_inner(self.port.workers);
        let ended = tokio::task::spawn_blocking(move || workers.map(Workers::join));
        let rest = self.drain_timeout.saturating_sub(started.elapsed());
        let in_time = tokio::time::timeout(rest, ended).await.is_ok();

        self.shared.caps.close(in_time).await;
        if let Some(log) = self.log.clone() {
            let _ = tokio::task::spawn_blocking(move || log.stop(LOG_TIME)).await;
        }
        tracing::info!(
            in_time,
            open_connections = telemetry.connections(),
            "drained"
        );
    }

    /// Waits until no client has been connected for [`UNUSED`]: balancers that still send requests
    /// have not noticed the drain. Returns at once if the port was never used.
    async fn wait_for_balancers(&self, started: Instant) {
        let telemetry = &self.shared.telemetry;
        let lame_duck = LAME_DUCK.min(self.drain_timeout / 2);
        let was_used = telemetry.unused_for() < Duration::MAX;

        while was_used && started.elapsed() < lame_duck {
            let unused_for = telemetry.unused_for().min(started.elapsed());
            if unused_for >= UNUSED {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
