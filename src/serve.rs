//! The process: admin port, first snapshots, decision port, and the drain.
//!
//! | thread | work |
//! |---|---|
//! | the caller's | signals, and the accept loop of the decision port |
//! | `admin` | the admin port, upkeep of histograms, watching the config |
//! | `sync` | polling the store, and schedules: a mount that hangs must not stop the probes |
//! | `caps` | ends of caps' periods, and grants |
//! | `worker-N` | connections of the decision port |
//! | `log`, `log-files` | files of the decision log; their upload and end |
//! | the sync runtime's blocking pool | reading, hashing and freeing snapshots |

mod assemble;
mod error;
mod reload;
mod running;
mod threads;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use rtad_core::device::KeyMaker;
use rtad_http::connections::{Connections, RouterService};
use rtad_http::listener::{Acceptor, BoundAddress, ListenError, refuse};
use rtad_http::open_files::permit_connections;
use rtad_http::origin::OwnHosts;
use rtad_http::phase::{Phase, always_serving};
use rtad_http::port::{self, PortLimits};
use rtad_http::room::BodyRoom;
use rtad_http::workers::Workers;
use rtad_store::write::StoreWriter;
use rtad_store::{Store, StoreError};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

pub use assemble::Assembly;
pub use error::StartError;
pub use reload::{Reread, read_settled};
pub use running::Running;

use crate::cap::Caps;
use crate::catalog::{Catalog, Serving};
use crate::config::{Config, ServerConfig};
use crate::http::admin_app::AdminApp;
use crate::http::admin_port::{admin_router, metrics_router};
use crate::http::decision_port::{App, DecisionService};
use crate::http::gauges::Gauges;
use crate::log::DecisionLog;
use crate::platform::IdReader;
use crate::sync::{Shared, Stores, SyncCommand, Syncer};
use crate::telemetry::{Telemetry, count_as_worker};
use reload::{Reloader, warn_of};
use running::OpenPort;
use threads::{Priority, Threads};

/// Open connections of the admin port: probes, a scraper and a few people.
const MAX_ADMIN_CONNECTIONS: usize = 256;
/// Bytes of its incomplete bodies: a captured body as hex is the largest.
const ADMIN_MAX_BUFFERED: usize = 16 << 20;
/// Most time for a body: it comes with its head or soon after, and a slow one keeps its part of
/// `max_buffered`.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// Commands to the sync thread that wait for it.
const COMMANDS: usize = 4;

/// Starts everything; returns when every required audience is served, from the cache if need be, or
/// was polled once, and decisions are answered. Called inside a runtime, whose thread accepts
/// connections from then on.
///
/// # Errors
///
/// [`StartError`]. An unavailable store is none: the pod starts, is not ready, and keeps polling.
pub async fn start(assembly: Assembly, reread: Reread) -> Result<Running, StartError> {
    let stores = open_stores(&assembly.config)?;
    warn_of(&assembly);
    let plan = assembly.plan();
    let config = assembly.config;
    let Sockets {
        decision,
        admin,
        metrics,
    } = Sockets::bind(&config.server)?;
    let max_connections = permit_connections(config.server.max_connections);

    let (commands, received) = mpsc::channel(COMMANDS);
    let cache_dir = config.store.cache_dir.clone();
    let caps = open_caps(&config)?;
    let shared = Shared {
        caps: Arc::new(caps),
        ..Shared::default()
    };
    let sync = Syncer::new(stores, plan, shared.clone())
        .with_pod(pod_name())
        .with_cache(cache_dir);
    let keys = KeyMaker::with_extra_blanks(&config.ids.blank);
    let telemetry = Arc::clone(&shared.telemetry);
    let server = config.server.clone();
    let store_url = config.store.stores().join(", ");
    let log = start_log(&config, &shared.telemetry)?;
    let reloader = Reloader::new(config, reread, commands.clone(), telemetry, log.clone());
    let parts = SharedParts {
        log,
        serving: sync.serving(),
        ids: Arc::new(IdReader::new(keys, &shared.telemetry)),
        shared,
        reloader: Arc::new(reloader),
        server,
    };

    let priority = Arc::new(Priority::default());
    let threads = Threads::default();
    let first_poll = start_sync(&threads, sync, received, &priority)?;

    let caps = Arc::clone(&parts.shared.caps);
    threads.spawn("caps", None, async move || caps.run().await)?;
    let admin_address = start_admin_port(&threads, &parts, admin, metrics, max_connections)?;
    tracing::info!(
        %admin_address,
        store = store_url,
        "admin port listens; loading the first snapshots"
    );

    // Fails only if the sync thread is gone, and then there is nothing to wait for.
    let _ = first_poll.await;
    // The first requests may come now, so loading must not delay them.
    priority.lower();
    log_api_access(&parts.server, &parts.serving.load());

    let (phase, phases) = watch::channel(Phase::Serving);
    let port = open_decision_port(&parts, max_connections, decision, phases)?;

    Ok(Running {
        decision_address: port.address,
        admin_address,
        serving: parts.serving,
        shared: parts.shared,
        drain_timeout: parts.server.drain_timeout,
        phase,
        commands,
        port,
        reloader: parts.reloader,
        log: parts.log,
        _threads: threads,
    })
}

/// Opens the store of a configuration.
///
/// # Errors
///
/// [`StoreError`] if it cannot be used at all. Nothing is read yet.
pub fn open_stores(config: &Config) -> Result<Stores, StoreError> {
    let mut stores = Vec::new();
    for url in config.store.stores() {
        let store = Store::open(url)?.with_stall_timeout(config.store.stall_timeout);
        stores.push(store.with_public_keys(config.store.public_keys.clone()));
    }
    Ok(Stores::new(stores))
}

/// The caps, with the store in which pods share them, if there is one. It has connections of its
/// own: the thread of the caps uses them.
fn open_caps(config: &Config) -> Result<Caps, StoreError> {
    let store = match config.store.caps_store() {
        Some(url) => Some(StoreWriter::open(url)?),
        None => None,
    };
    Ok(Caps::granted_by(store, pod_name()))
}

/// Starts the decision log, if the configuration has one.
fn start_log(
    config: &Config,
    telemetry: &Telemetry,
) -> Result<Option<Arc<DecisionLog>>, StartError> {
    let Some(settings) = &config.log else {
        return Ok(None);
    };
    let log =
        DecisionLog::start(settings.clone(), pod_name(), telemetry).map_err(StartError::Log)?;
    log.add_config(config);
    Ok(Some(Arc::new(log)))
}

/// Name of the pod: in the names of files, and for its place in stages. Containers have it in the
/// environment, too.
fn pod_name() -> String {
    let name = std::env::var("HOSTNAME").unwrap_or_default();
    if !name.is_empty() {
        return name;
    }
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// Logs access to the `/v1` routes, where it surprises: every client of the decision port may ask
/// who is a member, or the routes are closed because of a platform.
fn log_api_access(server: &ServerConfig, catalog: &Catalog) {
    if !catalog.has_api() {
        tracing::info!(
            "/v1/check and /v1/decide answer 404 beside platforms; [server.api] opens them"
        );
    }
    if server.api.public && !catalog.platforms().is_empty() {
        tracing::warn!(
            "server.api.public: /v1/check and /v1/decide are open to every client of the decision \
             port"
        );
    }
}

/// The parts that all ports share.
struct SharedParts {
    log: Option<Arc<DecisionLog>>,
    serving: Arc<Serving>,
    ids: Arc<IdReader>,
    shared: Shared,
    reloader: Arc<Reloader>,
    server: ServerConfig,
}

impl SharedParts {
    fn max_body(&self) -> usize {
        usize::try_from(self.server.max_body).unwrap_or(usize::MAX)
    }

    fn body_timeout(&self) -> Duration {
        self.server.idle_timeout.min(BODY_TIMEOUT)
    }

    fn max_buffered(&self) -> usize {
        usize::try_from(self.server.max_buffered).unwrap_or(usize::MAX)
    }

    /// Threads per port.
    fn workers(&self) -> usize {
        match self.server.workers {
            // The CPUs that the cgroup grants, not those of the machine.
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            count => count,
        }
    }

    fn app(&self) -> App {
        App {
            serving: Arc::clone(&self.serving),
            ids: Arc::clone(&self.ids),
            telemetry: Arc::clone(&self.shared.telemetry),
            readiness: Arc::clone(&self.shared.readiness),
            max_body: self.max_body(),
            body_timeout: self.body_timeout(),
            batch_turn: Arc::default(),
            room: Arc::new(BodyRoom::new(self.max_buffered())),
            log: None,
        }
    }

    fn admin_app(&self) -> AdminApp {
        AdminApp {
            serving: Arc::clone(&self.serving),
            shared: self.shared.clone(),
            gauges: Gauges::default(),
            ids: Arc::clone(&self.ids),
            log: self.log.clone(),
            max_body: self.max_body(),
            body_timeout: self.body_timeout(),
            room: BodyRoom::new(ADMIN_MAX_BUFFERED),
            started: Instant::now(),
            reload: self.reloader.handle(),
            config: self.reloader.served_config(),
            refusal: self.reloader.refusal(),
        }
    }
}

/// The bound ports. Only those of the admin thread listen: a decision port without snapshots
/// refuses clients.
struct Sockets {
    decision: BoundAddress,
    admin: ListeningPort,
    metrics: Option<ListeningPort>,
}

struct ListeningPort {
    address: SocketAddr,
    listener: TcpListener,
}

impl ListeningPort {
    fn open(setting: &'static str, address: SocketAddr) -> Result<Self, ListenError> {
        let bound = BoundAddress::bind(setting, address)?;
        Ok(Self {
            address: bound.address(),
            listener: bound.listen()?,
        })
    }
}

impl Sockets {
    fn bind(server: &ServerConfig) -> Result<Self, ListenError> {
        let admin = ListeningPort::open("server.admin_listen", server.admin_listen)?;
        let metrics = match server.metrics_listen {
            Some(address) => Some(ListeningPort::open("server.metrics_listen", address)?),
            None => None,
        };

        Ok(Self {
            decision: BoundAddress::bind("server.listen", server.listen)?,
            admin,
            metrics,
        })
    }
}

/// Starts the sync thread; the receiver gets a value when the first snapshots are served.
fn start_sync(
    threads: &Threads,
    sync: Syncer,
    commands: mpsc::Receiver<SyncCommand>,
    priority: &Arc<Priority>,
) -> Result<oneshot::Receiver<()>, StartError> {
    let (loaded, first_poll) = oneshot::channel();
    let alive = sync.alive();
    threads.spawn("sync", Some(Arc::clone(priority)), async move || {
        let _alive = alive;
        Arc::new(sync).run(commands, loaded).await;
    })?;
    Ok(first_poll)
}

/// Starts the admin thread. Its ports close after the drain, as probes must see it: with
/// [`Running`].
fn start_admin_port(
    threads: &Threads,
    parts: &SharedParts,
    admin: ListeningPort,
    metrics: Option<ListeningPort>,
    max_connections: usize,
) -> Result<SocketAddr, StartError> {
    let ListeningPort { address, listener } = admin;
    if let Some(metrics) = &metrics {
        tracing::info!(metrics_address = %metrics.address, "metrics port listens");
    }

    let limits = PortLimits {
        max_connections: MAX_ADMIN_CONNECTIONS,
        frees_idle: true,
        idle_timeout: parts.server.idle_timeout,
    };
    let app = Arc::new(parts.admin_app());
    let hosts = Arc::new(OwnHosts::new(
        "server.admin_hosts",
        parts.server.admin_hosts.clone(),
    ));
    let telemetry = Arc::clone(&parts.shared.telemetry);
    telemetry.max_connections(max_connections);
    let reloader = Arc::clone(&parts.reloader);
    let watch_config = parts.server.watch_config;

    threads.spawn("admin", None, async move || {
        tokio::spawn(async move { telemetry.exporter.upkeep().await });
        if let Some(interval) = watch_config {
            tokio::spawn(async move { reloader.watch(interval).await });
        }
        if let Some(ListeningPort { listener, .. }) = metrics {
            let router = RouterService(metrics_router(Arc::clone(&app), Arc::clone(&hosts)));
            tokio::spawn(port::serve(listener, router, limits, always_serving()));
        }
        let router = RouterService(admin_router(app, hosts));
        if let Err(error) = port::serve(listener, router, limits, always_serving()).await {
            tracing::error!(%error, "admin port failed");
        }
    })?;
    Ok(address)
}

/// Starts the workers and the accept loop of the decision port.
fn open_decision_port(
    parts: &SharedParts,
    max_connections: usize,
    decision: BoundAddress,
    phases: watch::Receiver<Phase>,
) -> Result<OpenPort, StartError> {
    let telemetry = Arc::clone(&parts.shared.telemetry);
    let app = parts.app();
    telemetry.observe_room(Arc::clone(&app.room));

    let log = parts.log.clone();
    let idle_timeout = parts.server.idle_timeout;
    let started = Workers::start(parts.workers(), move |index| {
        count_as_worker(index);
        let tap = log.as_ref().map(|log| Arc::new(log.tap()));
        let app = App {
            log: tap,
            batch_turn: Arc::default(),
            ..app.clone()
        };
        let service = DecisionService::new(app);
        Connections::new(Arc::new(service), idle_timeout)
    });
    let workers = Arc::new(started.map_err(StartError::Threads)?);

    let address = decision.address();
    let listener = decision.listen()?;
    let mut acceptor = Acceptor::new(listener, phases).map_err(StartError::Threads)?;
    let dispatch = Arc::clone(&workers);
    let acceptor = tokio::spawn(async move {
        while let Some(stream) = acceptor.accept().await {
            match telemetry.connect(max_connections) {
                Some(permit) => dispatch.assign(stream, permit),
                None => refuse(&stream),
            }
        }
    });

    let readiness = &parts.shared.readiness;
    readiness.open();
    tracing::info!(
        decision_address = %address,
        workers = parts.workers(),
        ready = readiness.is_ready(),
        "decision port listens"
    );
    Ok(OpenPort {
        address,
        acceptor,
        workers,
    })
}
