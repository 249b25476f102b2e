//! A running rtad: admin port, first snapshots, decision port, and the way down again.
//!
//! | thread | what runs on it |
//! |---|---|
//! | the caller's | signals, and the acceptor of the decision port |
//! | `admin` | the admin port, the histograms' upkeep, looking at the config |
//! | `sync` | looking at the store: a mount that hangs must not stop the probes |
//! | `worker-N` | connections of the decision port |
//! | the sync runtime's blocking pool | reading, hashing and freeing snapshots |

mod reload;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot, watch};

use crate::catalog::Serving;
use crate::config::Config;
use crate::http::connections::Connections;
use crate::http::server::{self, Phase, Workers};
use crate::http::{AdminApp, AdminPort, App, DecisionPort, Reloaded};
use crate::platform::IdReader;
use crate::sync::{Command, Shared, Sync, cached_audiences, chain};
use crate::telemetry::ConnectionPlace;
use reload::Reloader;
use rtad_core::device::KeyMaker;
use rtad_core::snapshot::State;
use rtad_store::{Live, Store, StoreError};

/// Open connections of the admin port: probes, a scraper and a few people.
const MAX_ADMIN_CONNECTIONS: usize = 256;
/// A body comes with its head or soon after; one that trickles holds a place among the requests in flight.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// At most so long after SIGTERM new connections are still answered, while load balancers learn of it.
const LAME_DUCK: Duration = Duration::from_secs(5);
/// Who opens a connection for each request, as a balancer does that is told `Connection: close`, will be back within so long.
const UNUSED: Duration = Duration::from_secs(1);

/// A seventieth of the share of a thread that answers, while that has something to do. More would be missed by a core that is nearly
/// busy: requests would come faster than it answers them. `SCHED_IDLE` would give no share at all to a load where all cores are busy.
#[cfg(target_os = "linux")]
const BACKGROUND_NICENESS: i32 = 19;

/// Why rtad could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A port is not to be had.
    #[error("could not listen on {key} = {address}")]
    Listen {
        /// The config's key.
        key: &'static str,
        /// The address.
        address: SocketAddr,
        /// The kernel's reason.
        #[source]
        source: std::io::Error,
    },
    /// No thread, or no event queue.
    #[error("could not start threads")]
    Threads(#[source] std::io::Error),
    /// The store cannot be used at all.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The config names no audience and the store holds none.
    #[error(
        "the config names no [[audience]] and the store {url} holds none: publish one with `rtad-loader build`"
    )]
    NothingToServe {
        /// The store.
        url: String,
    },
}

/// Reads the configuration anew, for a reload. May block.
pub type Reread = Box<dyn Fn() -> Result<Config, String> + Send + std::marker::Sync>;

/// rtad, serving.
pub struct Running {
    /// Where the decision port listens.
    pub decision_address: SocketAddr,
    /// Where the admin port listens.
    pub admin_address: SocketAddr,
    serving: Arc<Serving>,
    shared: Shared,
    drain_timeout: Duration,
    phase: watch::Sender<Phase>,
    commands: mpsc::Sender<Command>,
    acceptor: tokio::task::JoinHandle<std::io::Result<()>>,
    workers: Arc<Workers<ConnectionPlace>>,
    reloader: Arc<Reloader>,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running")
            .field("decision_address", &self.decision_address)
            .field("admin_address", &self.admin_address)
            .finish_non_exhaustive()
    }
}

/// Opens the config's store and, if the config names neither audiences nor strategies, lets it serve all that the store holds;
/// all that the cache holds, if the store cannot say.
///
/// # Errors
///
/// [`StartError`] if the store cannot be used, or is to name the audiences and holds none, or does not answer and neither does the
/// cache.
pub async fn find_audiences(config: &mut Config) -> Result<Store, StartError> {
    let store = Store::open(&config.store.url)?
        .with_stall_timeout(config.store.stall_timeout)
        .with_public_keys(config.store.public_keys.clone());
    match serve_what_there_is(config, &store).await {
        Err(StartError::Store(error)) if error.is_outage() => {
            let audiences = config.store.cache_dir.as_deref().map(cached_audiences).unwrap_or_default();
            if audiences.is_empty() {
                return Err(error.into());
            }
            let (error, count) = (chain(&error), audiences.len());
            tracing::warn!(
                error,
                count,
                "the store cannot name its audiences: those that the cache holds are served"
            );
            config.serve_all(audiences);
        }
        found => found?,
    }
    Ok(store)
}

/// Has a config that names neither audiences nor strategies serve all that the store holds.
async fn serve_what_there_is(config: &mut Config, store: &Store) -> Result<(), StartError> {
    if config.audiences.is_empty() && config.strategies.is_empty() {
        let mut audiences = Vec::new();
        for audience in store.audiences().await? {
            // What is deleted would be waited for in vain. A `CURRENT` that is refused is sync's to report.
            let is_deleted = |live: &Live| live.current.state == State::Deleted;
            if !store.live(&audience).await.is_ok_and(|live| live.as_ref().is_some_and(is_deleted)) {
                audiences.push(audience);
            }
        }
        if audiences.is_empty() {
            return Err(StartError::NothingToServe { url: config.store.url.clone() });
        }
        config.serve_all(audiences);
    }
    Ok(())
}

/// Starts everything; returns when the first look at every audience is done, well or badly, and decisions are answered.
/// To be called inside a runtime, whose thread accepts connections from then on.
///
/// # Errors
///
/// [`StartError`]. A store that does not answer is not one: the pod starts, is not ready, and goes on looking.
pub async fn start(mut config: Config, reread: Reread) -> Result<Running, StartError> {
    let store = find_audiences(&mut config).await?;
    let listen_error = |key, address| move |source| StartError::Listen { key, address, source };
    let (address, admin_address) = (config.server.listen, config.server.admin_listen);
    let admin_error = listen_error("server.admin_listen", admin_address);
    let decision_error = listen_error("server.listen", address);
    let admin_socket = server::bind(admin_address).map_err(admin_error)?;
    let decision_socket = server::bind(address).map_err(decision_error)?;
    let admin_listener = server::listen(admin_socket).map_err(admin_error)?;
    let admin_address = admin_listener.local_addr().map_err(admin_error)?;

    allow_open_files(config.server.max_connections);
    let shared = Shared::default();
    let sync =
        Sync::new(store.clone(), config.plan(), shared.clone()).with_cache(config.store.cache_dir.clone());
    let serving = sync.serving();
    let watch_config = config.server.watch_config;
    let (phase, phases) = watch::channel(Phase::Serving);
    let (commands, told) = mpsc::channel(4);
    shared.telemetry.max_connections(config.server.max_connections);
    let reloader = Reloader::new(config.clone(), store, reread, commands.clone(), shared.telemetry.clone());
    let reloader = Arc::new(reloader);
    let (watching, reload) = (Arc::clone(&reloader), reloader.handle());
    let (loaded, first_look) = oneshot::channel();
    let ids = IdReader::new(KeyMaker::with_extra_blanks(&config.ids.blank), &shared.telemetry);
    let ids = Arc::new(ids);
    let max_body = usize::try_from(config.server.max_body).unwrap_or(usize::MAX);
    let body_timeout = config.server.idle_timeout.min(BODY_TIMEOUT);
    let admin = AdminApp {
        serving: Arc::clone(&serving),
        shared: shared.clone(),
        ids: Arc::clone(&ids),
        max_body,
        body_timeout,
        started: Instant::now(),
        reload,
    };
    // The admin port outlives the drain, as probes must see it: nobody is left to close it but the end of the process.
    let never = watch::channel(Phase::Serving).1;
    let port = AdminPort::new(Arc::new(admin));
    let admin_connections = Connections::new(port, config.server.idle_timeout, never.clone());
    let telemetry = Arc::clone(&shared.telemetry);
    spawn("sync", step_back, async move || {
        let mut sync = sync;
        sync.look_at_all().await;
        let _ = loaded.send(());
        sync.run(told).await;
    })?;
    spawn(
        "admin",
        || {},
        async move || {
            tokio::spawn(async move { telemetry.upkeep().await });
            if let Some(interval) = watch_config {
                tokio::spawn(async move { watching.watch(interval).await });
            }
            let admin_connections = Arc::new(admin_connections);
            tokio::spawn(Arc::clone(&admin_connections).watch());
            let open = Arc::new(());
            let admit = || (Arc::strong_count(&open) <= MAX_ADMIN_CONNECTIONS).then(|| Arc::clone(&open));
            let hand_out = |stream, place| {
                tokio::spawn(Arc::clone(&admin_connections).serve(stream, place));
            };
            let _ = server::accept(admin_listener, never, admit, hand_out).await;
        },
    )?;
    tracing::info!(%admin_address, store = config.store.url, "admin port listens; loading the first snapshots");
    // Fails only if the admin thread is gone, and then there is nothing to wait for.
    let _ = first_look.await;

    let app = App {
        serving: Arc::clone(&serving),
        ids,
        telemetry: Arc::clone(&shared.telemetry),
        readiness: Arc::clone(&shared.readiness),
        max_body,
        body_timeout,
        max_in_flight: config.server.max_in_flight,
        max_wait: config.server.max_wait,
    };
    let port = DecisionPort(Arc::new(app));
    let connections = Connections::new(port, config.server.idle_timeout, phases.clone());
    let count = match config.server.workers {
        // What the cgroup grants, not what the machine has.
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        count => count,
    };
    let workers = Arc::new(Workers::start(count, &connections).map_err(StartError::Threads)?);
    let listener = server::listen(decision_socket).map_err(decision_error)?;
    let decision_address = listener.local_addr().map_err(decision_error)?;
    shared.readiness.open();
    let (hands, telemetry, limit) =
        (Arc::clone(&workers), Arc::clone(&shared.telemetry), config.server.max_connections);
    let acceptor = tokio::spawn(async move {
        server::accept(
            listener,
            phases,
            || telemetry.connect(limit),
            |stream, place| hands.hand_out(stream, place),
        )
        .await
    });
    let ready = shared.readiness.is_ready();
    tracing::info!(%decision_address, workers = count, ready, "decision port listens");
    let drain_timeout = config.server.drain_timeout;
    Ok(Running {
        decision_address,
        admin_address,
        serving,
        shared,
        drain_timeout,
        phase,
        commands,
        acceptor,
        workers,
        reloader,
    })
}

impl Running {
    /// What is served.
    pub const fn serving(&self) -> &Arc<Serving> {
        &self.serving
    }

    /// Metrics, readiness, last syncs.
    pub const fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Looks at the store now; returns when it has been done.
    pub async fn look(&self) {
        let (done, answered) = oneshot::channel();
        if self.commands.send(Command::Look(done)).await.is_ok() {
            let _ = answered.await;
        }
    }

    /// Rereads the config and serves it, all of it or nothing.
    ///
    /// # Errors
    ///
    /// Why nothing was changed, in words.
    pub async fn reload(&self) -> Result<Reloaded, String> {
        self.reloader.reload().await
    }

    /// Ends in order: readiness falls; for a while requests are answered with `Connection: close`; then no more connections
    /// are accepted, idle ones are closed, and requests in flight finish. Returns when all have, or at the drain time-out.
    pub async fn drain(self) {
        let begun = Instant::now();
        self.shared.readiness.drain();
        let telemetry = &self.shared.telemetry;
        tracing::info!(connections = telemetry.connections(), "draining");
        let lame_duck = LAME_DUCK.min(self.drain_timeout / 2);
        // Whoever was connected before may not have heard of it yet. Nobody ever was: nobody waits.
        let was_used = telemetry.unused_for() < Duration::MAX;
        let unused_for = || telemetry.unused_for().min(begun.elapsed());
        while was_used && unused_for() < UNUSED && begun.elapsed() < lame_duck {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let _ = self.phase.send(Phase::Closing);
        let _ = self.acceptor.await;
        let Some(workers) = Arc::into_inner(self.workers) else { return };
        let ended = tokio::task::spawn_blocking(move || workers.join());
        let rest = self.drain_timeout.saturating_sub(begun.elapsed());
        let in_time = tokio::time::timeout(rest, ended).await.is_ok();
        tracing::info!(in_time, open_connections = telemetry.connections(), "drained");
    }
}

/// Raises the limit of open files as far as it goes: a login shell's 1,024 would run out long before `max_connections`.
fn allow_open_files(max_connections: usize) {
    /// Files besides connections: the admin port's, the store's, the runtimes'.
    const OTHERS: u64 = 512;
    let wanted = max_connections as u64 + OTHERS;
    let limit = rlimit::increase_nofile_limit(wanted).unwrap_or(0);
    if limit < wanted {
        tracing::warn!(
            limit,
            wanted,
            "too few open files allowed for server.max_connections: raise `ulimit -n`"
        );
    }
}

/// Runs `work` on a thread and a runtime of its own. Each of its threads begins with `begin`.
fn spawn<F: Future<Output = ()>>(
    name: &str,
    begin: fn(),
    work: impl FnOnce() -> F + Send + 'static,
) -> Result<(), StartError> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().on_thread_start(begin).build().map_err(StartError::Threads)?;
    let thread = std::thread::Builder::new().name(name.to_owned());
    let live = move || {
        begin();
        runtime.block_on(work());
    };
    thread.spawn(live).map_err(StartError::Threads)?;
    Ok(())
}

/// Leaves this thread's turn to any that answers requests: hashing gigabytes is in no hurry, and a request that waits for the end of a
/// time slice is late. Where the kernel knows no threads of different priority, all stay equal.
fn step_back() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(None, BACKGROUND_NICENESS);
}
