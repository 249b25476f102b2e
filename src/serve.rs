//! The process: admin port, first snapshots, decision port, and the drain.
//!
//! | thread | work |
//! |---|---|
//! | the caller's | signals, and the accept loop of the decision port |
//! | `admin` | the admin port, upkeep of histograms, watching the config |
//! | `sync` | polling the store: a mount that hangs must not stop the probes |
//! | `worker-N` | connections of the decision port |
//! | the sync runtime's blocking pool | reading, hashing and freeing snapshots |

mod assemble;
mod audiences;
mod error;
mod reload;
mod running;
mod threads;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rtad_core::device::KeyMaker;
use rtad_http::connections::{Connections, Untimed};
use rtad_http::listener;
use rtad_http::phase::{Phase, always_serving};
use rtad_http::port::{self, PortLimits};
use rtad_http::workers::Workers;
use socket2::Socket;
use tokio::sync::{mpsc, oneshot, watch};

pub use assemble::Assembly;
pub use audiences::find_audiences;
pub use error::StartError;
pub use reload::Reread;
pub use running::Running;

use crate::catalog::Serving;
use crate::config::ServerConfig;
use crate::http::admin_app::AdminApp;
use crate::http::admin_port::admin_router;
use crate::http::decision_app::App;
use crate::http::decision_port::decision_service;
use crate::platform::IdReader;
use crate::sync::{Command, Shared, Sync};
use crate::telemetry::{ConnectionPermit, count_as_worker};
use reload::Reloader;
use threads::{lower_priority, raise_file_limit, spawn};

/// Open connections of the admin port: probes, a scraper and a few people.
const MAX_ADMIN_CONNECTIONS: usize = 256;
/// Most time for a body: it comes with its head or soon after, and a slow one keeps a permit of the
/// requests in flight.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// Commands to the sync thread that wait for it.
const COMMANDS: usize = 4;

/// Starts everything; returns when every audience was polled once, well or badly, and decisions are
/// answered. Called inside a runtime, whose thread accepts connections from then on.
///
/// # Errors
///
/// [`StartError`]. An unavailable store is none: the pod starts, is not ready, and keeps polling.
pub async fn start(mut assembly: Assembly, reread: Reread) -> Result<Running, StartError> {
    let store = find_audiences(&mut assembly.config).await?;
    let (plan, config) = (assembly.plan(), assembly.config);
    let (decision_socket, admin_listener) = bind_ports(&config.server)?;
    raise_file_limit(config.server.max_connections);

    let (commands, received) = mpsc::channel(COMMANDS);
    let shared = Shared::default();
    let cache_dir = config.store.cache_dir.clone();
    let sync = Sync::new(store.clone(), plan, shared.clone()).with_cache(cache_dir);
    let keys = KeyMaker::with_extra_blanks(&config.ids.blank);
    let telemetry = Arc::clone(&shared.telemetry);
    let (server, store_url) = (config.server.clone(), config.store.url.clone());
    let reloader = Reloader::new(config, store, reread, commands.clone(), telemetry);
    let parts = Parts {
        serving: sync.serving(),
        ids: Arc::new(IdReader::new(keys, &shared.telemetry)),
        shared,
        reloader: Arc::new(reloader),
        server,
    };

    let first_poll = start_sync(sync, received)?;
    let admin_address = start_admin_port(&parts, admin_listener)?;
    tracing::info!(
        %admin_address,
        store = store_url,
        "admin port listens; loading the first snapshots"
    );
    // Fails only if the sync thread is gone, and then there is nothing to wait for.
    let _ = first_poll.await;
    let decision = open_decision_port(&parts, decision_socket)?;
    Ok(Running {
        decision_address: decision.address,
        admin_address,
        serving: parts.serving,
        shared: parts.shared,
        drain_timeout: parts.server.drain_timeout,
        phase: decision.phase,
        commands,
        acceptor: decision.acceptor,
        workers: decision.workers,
        reloader: parts.reloader,
    })
}

/// The parts that both ports share.
struct Parts {
    serving: Arc<Serving>,
    ids: Arc<IdReader>,
    shared: Shared,
    reloader: Arc<Reloader>,
    server: ServerConfig,
}

impl Parts {
    fn max_body(&self) -> usize {
        usize::try_from(self.server.max_body).unwrap_or(usize::MAX)
    }

    fn body_timeout(&self) -> Duration {
        self.server.idle_timeout.min(BODY_TIMEOUT)
    }

    fn app(&self) -> App {
        App {
            serving: Arc::clone(&self.serving),
            ids: Arc::clone(&self.ids),
            telemetry: Arc::clone(&self.shared.telemetry),
            readiness: Arc::clone(&self.shared.readiness),
            max_body: self.max_body(),
            body_timeout: self.body_timeout(),
            max_in_flight: self.server.max_in_flight,
            max_wait: self.server.max_wait,
        }
    }

    fn admin_app(&self) -> AdminApp {
        AdminApp {
            serving: Arc::clone(&self.serving),
            shared: self.shared.clone(),
            ids: Arc::clone(&self.ids),
            max_body: self.max_body(),
            body_timeout: self.body_timeout(),
            started: Instant::now(),
            reload: self.reloader.handle(),
        }
    }
}

/// Binds both ports. Only the admin port listens: a decision port without snapshots refuses
/// clients.
fn bind_ports(server: &ServerConfig) -> Result<(Socket, TcpListener), StartError> {
    let admin_socket = listener::bind(server.admin_listen).map_err(admin_error(server))?;
    let decision_socket = listener::bind(server.listen).map_err(decision_error(server))?;
    let admin_listener = listener::listen(admin_socket).map_err(admin_error(server))?;
    Ok((decision_socket, admin_listener))
}

fn admin_error(server: &ServerConfig) -> impl FnOnce(std::io::Error) -> StartError {
    let (key, address) = ("server.admin_listen", server.admin_listen);
    move |source| StartError::Listen { key, address, source }
}

fn decision_error(server: &ServerConfig) -> impl FnOnce(std::io::Error) -> StartError {
    let (key, address) = ("server.listen", server.listen);
    move |source| StartError::Listen { key, address, source }
}

/// Starts the sync thread; the receiver gets a value after the first poll of every audience.
fn start_sync(
    mut sync: Sync,
    commands: mpsc::Receiver<Command>,
) -> Result<oneshot::Receiver<()>, StartError> {
    let (loaded, first_poll) = oneshot::channel();
    spawn("sync", lower_priority, async move || {
        sync.poll_all().await;
        let _ = loaded.send(());
        sync.run(commands).await;
    })?;
    Ok(first_poll)
}

/// Starts the admin thread. Its port outlives the drain, as probes must see it: it closes with the
/// process.
fn start_admin_port(parts: &Parts, listener: TcpListener) -> Result<SocketAddr, StartError> {
    let address = listener.local_addr().map_err(admin_error(&parts.server))?;
    let limits = PortLimits {
        max_connections: MAX_ADMIN_CONNECTIONS,
        idle_timeout: parts.server.idle_timeout,
    };
    let router = admin_router(Arc::new(parts.admin_app()));
    let telemetry = Arc::clone(&parts.shared.telemetry);
    telemetry.max_connections(parts.server.max_connections);
    let (reloader, watch_config) = (Arc::clone(&parts.reloader), parts.server.watch_config);
    spawn(
        "admin",
        || {},
        async move || {
            tokio::spawn(async move { telemetry.upkeep().await });
            if let Some(interval) = watch_config {
                tokio::spawn(async move { reloader.watch(interval).await });
            }
            if let Err(error) =
                port::serve(listener, Untimed(router), limits, always_serving()).await
            {
                tracing::error!(%error, "admin port failed");
            }
        },
    )?;
    Ok(address)
}

/// A decision port that answers.
struct DecisionPort {
    address: SocketAddr,
    phase: watch::Sender<Phase>,
    acceptor: tokio::task::JoinHandle<std::io::Result<()>>,
    workers: Arc<Workers<ConnectionPermit>>,
}

/// Starts the workers and the accept loop.
fn open_decision_port(parts: &Parts, socket: Socket) -> Result<DecisionPort, StartError> {
    let (phase, phases) = watch::channel(Phase::Serving);
    let count = match parts.server.workers {
        // The CPUs that the cgroup grants, not those of the machine.
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        count => count,
    };
    let (app, idle_timeout, closing) = (parts.app(), parts.server.idle_timeout, phases.clone());
    let connections = move |index| {
        count_as_worker(index);
        Connections::new(decision_service(app.clone()), idle_timeout, closing.clone())
    };
    let workers = Workers::start(count, connections).map_err(StartError::Threads)?;
    let workers = Arc::new(workers);
    let listener = listener::listen(socket).map_err(decision_error(&parts.server))?;
    let address = listener.local_addr().map_err(decision_error(&parts.server))?;
    parts.shared.readiness.open();
    let (dispatch, telemetry) = (Arc::clone(&workers), Arc::clone(&parts.shared.telemetry));
    let limit = parts.server.max_connections;
    let acceptor = tokio::spawn(async move {
        let admit = || telemetry.connect(limit);
        listener::accept(listener, phases, admit, |stream, permit| dispatch.assign(stream, permit))
            .await
    });
    let ready = parts.shared.readiness.is_ready();
    tracing::info!(decision_address = %address, workers = count, ready, "decision port listens");
    Ok(DecisionPort { address, phase, acceptor, workers })
}
