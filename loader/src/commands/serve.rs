//! `serve`: writes over HTTP, acknowledged when they are durable in the store.
//!
//! | file | job |
//! |---|---|
//! | `http` | the routes, and what every request goes through |
//! | `devices`, `audiences` | bodies in, answers out |
//! | `tokens` | who may write |
//! | `writers`, `writer` | one task for each audience, with its queue; what waits is written together |
//! | `orders` | what is done to an audience as a whole |
//! | `batch` | what several requests come to, each answered as if alone |
//! | `members` | the filters, for who must know whether a device is a member |
//! | `connections`, `body`, `error`, `telemetry` | the rest of HTTP |

mod audiences;
mod batch;
mod body;
mod connections;
mod devices;
mod error;
mod http;
mod members;
mod orders;
mod telemetry;
mod tokens;
mod writer;
mod writers;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use rtad_core::device::KeyMaker;
use rtad_store::Store;

use super::{CommandError, SignArgs, TrustArgs, UsageError};
use http::App;
use telemetry::Telemetry;
pub(crate) use tokens::TokenError;
use tokens::Tokens;
use writer::Pace;
use writers::Writers;

const MAX_CONNECTIONS: usize = 1024;
/// Probes, a scraper and a few people.
const MAX_ADMIN_CONNECTIONS: usize = 64;

/// Take writes over HTTP: devices added and removed, audiences created, disabled, expired and deleted.
///
/// A write is answered with 200 when it is durable in the store and live for pods. Requests that come while one write is
/// under way are written together. Several processes may serve the same audience; one is enough.
#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    /// Where snapshots are published: a directory, file:///directory, s3://bucket/prefix, gs://bucket/prefix,
    /// az://container/prefix
    #[arg(long, value_name = "URL", env = "RTAD_LOADER_STORE")]
    store: String,
    #[command(flatten)]
    trust: TrustArgs,
    #[command(flatten)]
    sign: SignArgs,
    /// Where writers connect
    #[arg(long, value_name = "ADDR", env = "RTAD_LOADER_LISTEN", default_value = "127.0.0.1:8070")]
    listen: SocketAddr,
    /// Where /livez, /readyz and /metrics are, for whoever can connect
    #[arg(long, value_name = "ADDR", env = "RTAD_LOADER_ADMIN_LISTEN", default_value = "127.0.0.1:9070")]
    admin_listen: SocketAddr,
    /// Tokens of which a request must show one, one per line; read again on SIGHUP
    #[arg(long, value_name = "FILE", env = "RTAD_LOADER_TOKEN_FILE", required_unless_present = "no_token")]
    token_file: Option<PathBuf>,
    /// Take writes from whoever can connect; only with a loopback address
    #[arg(long, conflicts_with = "token_file")]
    no_token: bool,
    /// An audience is written at most this often; what comes in between is written together
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = humantime::parse_duration)]
    every: Duration,
    /// Keys written together at most
    #[arg(long, value_name = "N", default_value = "1000000")]
    max_batch: NonZeroUsize,
    /// Another id that stands for "no id", besides those built in; may be given several times
    #[arg(long = "blank", value_name = "ID")]
    blanks: Vec<String>,
    /// What SIGTERM leaves to requests that are under way
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = humantime::parse_duration)]
    drain_timeout: Duration,
    /// How much is logged: error, warn, info, debug
    #[arg(long, value_name = "LEVEL", env = "RTAD_LOG", default_value = "info", value_parser = LogLevel::from_str)]
    log: LogLevel,
}

/// How much is logged.
#[derive(Debug, Clone, Copy)]
struct LogLevel(tracing::Level);

impl FromStr for LogLevel {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        match word {
            "error" => Ok(Self(tracing::Level::ERROR)),
            "warn" => Ok(Self(tracing::Level::WARN)),
            "info" => Ok(Self(tracing::Level::INFO)),
            "debug" => Ok(Self(tracing::Level::DEBUG)),
            _ => Err("accepted: error, warn, info, debug"),
        }
    }
}

pub(super) fn run(args: ServeArgs) -> Result<(), CommandError> {
    let tokens = match &args.token_file {
        Some(path) => Tokens::of_file(path).map_err(UsageError::Token)?,
        None if args.listen.ip().is_loopback() => Tokens::of_nobody(),
        None => return Err(UsageError::NoToken { listen: args.listen }.into()),
    };
    let store = args.sign.signing(args.trust.applied_to(Store::open(&args.store)?), &args.trust)?;
    store.writable()?;
    start_logging(args.log);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(CommandError::Runtime)?;
    runtime.block_on(serve(args, tokens, store))
}

/// One JSON object per line on stderr. Only our own events pass: a library's may quote a request, and so an id; and so may the
/// message of a panic.
fn start_logging(level: LogLevel) {
    let own = Targets::new().with_target("rtad", level.0);
    let json = tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(std::io::stderr);
    // Fails only if logging was started before; then that is what logs.
    let _ = tracing_subscriber::registry().with(json).with(own).try_init();
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map_or_else(|| "unknown".to_owned(), ToString::to_string);
        tracing::error!(place, "panic; its message is left out, as it may quote a request");
    }));
}

async fn serve(args: ServeArgs, tokens: Tokens, store: Store) -> Result<(), CommandError> {
    // From before anybody can connect: a SIGHUP would kill the process otherwise.
    let mut signals = Signals::listen().map_err(CommandError::Runtime)?;
    let listener = bind("--listen", args.listen).await?;
    let admin_listener = bind("--admin-listen", args.admin_listen).await?;
    let telemetry = Arc::new(Telemetry::default());
    let pace = Pace { every: args.every, max_batch: args.max_batch.get() };
    let app = Arc::new(App {
        tokens,
        writers: Writers::new(store, pace, Arc::clone(&telemetry)),
        keys: Arc::new(KeyMaker::with_extra_blanks(&args.blanks)),
        bodies: Default::default(),
        telemetry: Arc::clone(&telemetry),
        draining: AtomicBool::new(false),
    });
    tracing::info!(
        address = listener.local_addr().map_err(CommandError::Runtime)?.to_string(),
        admin_address = admin_listener.local_addr().map_err(CommandError::Runtime)?.to_string(),
        token = args.token_file.is_some(),
        "listening for writes"
    );
    let (close, closing) = watch::channel(false);
    // The admin port outlives the other: that the process drains is told there.
    let admin = http::admin_router(Arc::clone(&app));
    tokio::spawn(connections::serve(admin_listener, admin, MAX_ADMIN_CONNECTIONS, watch::channel(false).1));
    tokio::spawn(async move { telemetry.upkeep().await });
    let router = http::router(Arc::clone(&app));
    let port = tokio::spawn(connections::serve(listener, router, MAX_CONNECTIONS, closing));

    signals.wait(&app.tokens).await;
    app.draining.store(true, Ordering::Relaxed);
    tracing::info!("told to stop; what was taken is written first");
    let _ = close.send(true);
    let drained = async {
        let _ = port.await;
        app.writers.finish().await;
    };
    tokio::select! {
        () = drained => {
            tracing::info!("stopped");
            Ok(())
        }
        () = tokio::time::sleep(args.drain_timeout) => Err(CommandError::Drain),
        () = signals.stop() => Err(CommandError::Drain),
    }
}

async fn bind(flag: &'static str, address: SocketAddr) -> Result<TcpListener, CommandError> {
    TcpListener::bind(address).await.map_err(|source| CommandError::Listen { flag, address, source })
}

/// What an operator tells the process.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// SIGTERM or SIGINT.
    async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Until told to stop; on SIGHUP the tokens are read again.
    async fn wait(&mut self, tokens: &Tokens) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hang_up.recv() => match tokens.reload() {
                    Ok(()) => tracing::info!("tokens read again"),
                    Err(error) => {
                        tracing::warn!(error = chain(&error), "tokens not read again; the old ones stay");
                    }
                },
            }
        }
    }
}

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
