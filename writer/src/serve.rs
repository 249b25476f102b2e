//! Start and stop of the service: its flags, ports, signals and the drain.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use tokio::sync::watch;
use tokio::task::JoinSet;

use rtad_cli::command_error::CommandError;
use rtad_cli::exit::{CommandFailure, ExitStatus};
use rtad_cli::{SignArgs, Signer, TrustArgs};
use rtad_core::device::KeyMaker;
use rtad_core::error_chain::error_chain;
use rtad_http::connections::RouterService;
use rtad_http::listener::{BoundAddress, ListenError};
use rtad_http::logging::{LogLevel, init_logging};
use rtad_http::open_files::permit_connections;
use rtad_http::origin::OwnHosts;
use rtad_http::phase::{Phase, always_serving};
use rtad_http::port::{self, PortLimits};
use rtad_http::room::BodyRoom;
use rtad_http::signals::{Signal, Signals};
use rtad_store::Store;
use rtad_store::write::StoreWriter;

use super::app::App;
use super::audience::{WriteLimits, Writers};
use super::bodies::MAX_BUFFERED;
use super::routes::{admin_router, router};
use super::scopes::Scope;
use super::telemetry::Telemetry;
use super::tokens::{TokenFile, Tokens};
use super::windows::config::Config;
use super::windows::{WindowError, Windows, counters};

/// Idle time after which a connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);
const MAX_CONNECTIONS: usize = 1024;
/// Sized for probes, a scraper and a few people.
const ADMIN_LIMITS: PortLimits = PortLimits {
    max_connections: 64,
    frees_idle: true,
    idle_timeout: IDLE_TIMEOUT,
};

/// Accept writes over HTTP: add and remove devices; create, disable, expire and delete audiences;
/// count events in windows.
///
/// A write is answered with 200 once it is durable in the store and live for pods. Requests that
/// arrive during a write are coalesced into the next. Several processes may serve the same
/// audience; one is enough.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Store of the snapshots: a directory, file:///directory, s3://bucket/prefix,
    /// gs://bucket/prefix, az://container/prefix, oss://bucket/prefix, cos://bucket/prefix
    #[arg(long, value_name = "URL", env = "RTAD_WRITER_STORE")]
    store: String,
    #[command(flatten)]
    trust: TrustArgs,
    #[command(flatten)]
    sign: SignArgs,
    /// File of event windows and of audiences that follow them (TOML)
    #[arg(long, value_name = "FILE", env = "RTAD_WRITER_CONFIG")]
    config: Option<PathBuf>,
    /// Address for writers
    #[arg(
        long,
        value_name = "ADDR",
        env = "RTAD_WRITER_LISTEN",
        default_value = "127.0.0.1:8070"
    )]
    listen: SocketAddr,
    /// Address of /livez, /readyz, /metrics and /v1/windows, without authentication
    #[arg(
        long,
        value_name = "ADDR",
        env = "RTAD_WRITER_ADMIN_LISTEN",
        default_value = "127.0.0.1:9070"
    )]
    admin_listen: SocketAddr,
    /// Public host name under which clients reach the admin port, as through a proxy; repeatable.
    /// Requests under other public names are refused, but for /livez and /readyz
    #[arg(long = "admin-host", value_name = "NAME")]
    admin_hosts: Vec<String>,
    /// File of bearer tokens for all routes, one per line; reread on SIGHUP. Tables `[[token]]` in
    /// the file of --config name files of tokens with scopes
    #[arg(long, value_name = "FILE", env = "RTAD_WRITER_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// Accept writes without a token; only with a loopback address and without `[[token]]`
    #[arg(long, conflicts_with = "token_file")]
    no_token: bool,
    /// Shortest interval between writes of an audience; requests in between are coalesced
    #[arg(
        long,
        value_name = "TIME",
        default_value = "200ms",
        value_parser = humantime::parse_duration
    )]
    every: Duration,
    /// Maximum number of keys per write
    #[arg(long, value_name = "N", default_value = "1000000")]
    max_batch: NonZeroUsize,
    /// Additional id that means "no id"; repeatable
    #[arg(long = "blank", value_name = "ID")]
    blanks: Vec<String>,
    /// Time for requests in flight after SIGTERM; the last segments of windows have their own
    #[arg(
        long,
        value_name = "TIME",
        default_value = "30s",
        value_parser = humantime::parse_duration
    )]
    drain_timeout: Duration,
    /// Log level: error, warn, info, debug
    #[arg(
        long,
        value_name = "LEVEL",
        env = "RTAD_LOG",
        default_value = "info",
        value_parser = LogLevel::from_str
    )]
    log: LogLevel,
}

/// A service that could not start, or that stopped too early.
#[derive(Debug, thiserror::Error)]
enum ServeError {
    #[error("--no-token: --listen {listen} is not a loopback address; use --token-file instead")]
    NoToken { listen: SocketAddr },
    #[error("no tokens: expected --token-file, a [[token]] of --config, or --no-token")]
    NoTokens,
    #[error("--no-token: expected no [[token]] beside it, found {origin}")]
    BothTokens { origin: String },
    #[error("could not serve the windows")]
    Window(#[source] Arc<WindowError>),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error("stopped before every request was answered; unanswered writes are not acknowledged")]
    Drain,
    #[error(
        "stopped by a second signal: unanswered writes are not acknowledged, and windows may not be \
         given back"
    )]
    SecondSignal,
}

impl CommandFailure for ServeError {
    fn exit(&self) -> ExitStatus {
        match self {
            Self::NoToken { .. } | Self::NoTokens | Self::BothTokens { .. } => ExitStatus::Usage,
            Self::Window(error) if error.is_usage() => ExitStatus::Usage,
            Self::Window(_) | Self::Listen(_) | Self::Drain | Self::SecondSignal => {
                ExitStatus::Unexpected
            }
        }
    }
}

pub fn run(args: ServeArgs) -> Result<(), CommandError> {
    let config = args
        .config
        .as_deref()
        .map(Config::read_settled)
        .transpose()?
        .unwrap_or_default();
    let tokens = tokens(&args, &config)?;
    let store = args.trust.applied_to(Store::open(&args.store)?)?;
    let (store, signer) = args.sign.reloadable_writer(store, &args.trust)?;
    init_logging(args.log);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(CommandError::runtime)?;
    let served = runtime.block_on(serve(args, tokens, (store, signer), config));
    // A read that still blocks does not delay the stop.
    runtime.shutdown_background();
    served
}

fn tokens(args: &ServeArgs, config: &Config) -> Result<Tokens, CommandError> {
    let mut files = config.tokens.clone();
    if args.no_token {
        return match (files.first(), args.listen.ip().is_loopback()) {
            (Some(file), _) => Err(ServeError::BothTokens {
                origin: file.origin.clone(),
            }
            .into()),
            (None, false) => Err(ServeError::NoToken {
                listen: args.listen,
            }
            .into()),
            (None, true) => Ok(Tokens::disabled()),
        };
    }
    if let Some(path) = &args.token_file {
        let origin = "--token-file".to_owned();
        files.push(TokenFile {
            origin,
            path: path.clone(),
            scopes: vec![Scope::Admin],
        });
    }
    if files.is_empty() {
        return Err(ServeError::NoTokens.into());
    }
    Ok(Tokens::from_files(files)?)
}

async fn serve(
    args: ServeArgs,
    tokens: Tokens,
    (store, signer): (StoreWriter, Option<Arc<Signer>>),
    config: Config,
) -> Result<(), CommandError> {
    store.store().check_directory().await?;
    // The handler precedes the first client: a SIGHUP without a handler ends the process.
    let mut signals = Signals::listen().map_err(CommandError::runtime)?;
    let bound = BoundAddress::bind("--listen", args.listen).map_err(ServeError::from)?;
    let admin_bound = BoundAddress::bind("--admin-listen", args.admin_listen);
    let admin_bound = admin_bound.map_err(ServeError::from)?;
    let telemetry = Arc::new(Telemetry::default());
    telemetry.exporter.record(counters::describe);
    let limits = WriteLimits {
        every: args.every,
        max_batch: args.max_batch.get(),
    };
    let opened = tokio::select! {
        biased;
        () = signals.stop() => {
            tracing::info!("stopped before a window was read");
            return Ok(());
        }
        opened = Windows::open(&config, &store, &telemetry) => opened,
    };
    let (windows, standbys) = opened.map_err(|error| ServeError::Window(Arc::new(error)))?;
    let windows = Arc::new(windows);
    let writers = Arc::new(Writers::new(store, limits, Arc::clone(&telemetry)));
    let (address, admin_address) = (bound.address(), admin_bound.address());
    let listener = bound.listen().map_err(ServeError::from)?;
    let admin_listener = admin_bound.listen().map_err(ServeError::from)?;
    let app = Arc::new(App {
        tokens,
        windows: Arc::clone(&windows),
        writers: Arc::clone(&writers),
        keys: Arc::new(KeyMaker::with_extra_blanks(&args.blanks)),
        telemetry: Arc::clone(&telemetry),
        draining: AtomicBool::new(false),
        room: BodyRoom::new(MAX_BUFFERED),
    });
    tracing::info!(
        %address,
        %admin_address,
        token = !args.no_token,
        "listening for writes"
    );
    let mut running = JoinSet::new();
    running.spawn(windows.run(standbys, writers, Arc::clone(&telemetry)));
    let (phase, phases) = watch::channel(Phase::Serving);
    // The admin port stays open during the drain and reports it.
    let hosts = OwnHosts::new("--admin-host", args.admin_hosts);
    let admin = RouterService(admin_router(Arc::clone(&app), hosts));
    tokio::spawn(port::serve(
        admin_listener,
        admin,
        ADMIN_LIMITS,
        always_serving(),
    ));
    tokio::spawn(async move { telemetry.exporter.upkeep().await });
    let service = RouterService(router(Arc::clone(&app)));
    let limits = PortLimits {
        max_connections: permit_connections(MAX_CONNECTIONS),
        frees_idle: false,
        idle_timeout: IDLE_TIMEOUT,
    };
    let mut port = tokio::spawn(port::serve(listener, service, limits, phases));

    let failure = loop {
        let signal = tokio::select! {
            signal = signals.next() => signal,
            failure = app.windows.failed() => break Some(failure),
            Some(_) = running.join_next() => break Some(Arc::new(WindowError::Panicked)),
        };
        if signal != Signal::Reload {
            break None;
        }
        reload_tokens(Arc::clone(&app));
        if let Some(signer) = &signer {
            reload_signer(Arc::clone(signer), app.writers.store.store().clone());
        }
    };
    app.draining.store(true, Ordering::Relaxed);
    app.windows.begin_drain();
    if failure.is_some() {
        tracing::error!("a window ended; finishing accepted writes");
    } else {
        tracing::info!("stop requested; finishing accepted writes");
    }
    let _ = phase.send(Phase::Closing);
    let stopped = async {
        let is_drained = tokio::time::timeout(args.drain_timeout, &mut port)
            .await
            .is_ok();
        if !is_drained {
            tracing::warn!("requests that are not answered are closed");
            port.abort();
        }
        // A client must not take this time: without it the next owner waits. Its last changes of
        // audiences are writes, too.
        app.windows.stop();
        while running.join_next().await.is_some() {}
        if is_drained {
            app.writers.finish().await;
        }
        is_drained
    };
    let is_drained = tokio::select! {
        is_drained = stopped => is_drained,
        () = signals.stop() => {
            app.windows.give_up();
            return Err(ServeError::SecondSignal.into());
        }
    };
    if let Some(failure) = failure {
        return Err(ServeError::Window(failure).into());
    }
    if !is_drained {
        return Err(ServeError::Drain.into());
    }
    tracing::info!("stopped");
    Ok(())
}

/// Rereads the token files on a thread of its own, as it takes a moment.
fn reload_tokens(app: Arc<App>) {
    tokio::task::spawn_blocking(move || match app.tokens.reload() {
        Ok(removed) => {
            if removed > 0 {
                tracing::warn!(removed, "old tokens are not accepted any more");
            }
            tracing::info!("tokens reloaded");
        }
        Err(error) => {
            let error = error_chain(&error);
            tracing::warn!(error, "tokens not reloaded; the old tokens stay valid");
        }
    });
}

/// Rereads the signing key on a thread of its own: unlocking it can take a second.
fn reload_signer(signer: Arc<Signer>, store: Store) {
    tokio::task::spawn_blocking(move || match signer.reload(store.trust()) {
        Ok(()) => tracing::info!("signing key reloaded"),
        Err(error) => {
            let error = error_chain(&*error);
            tracing::warn!(error, "signing key not reloaded; the old key stays");
        }
    });
}
