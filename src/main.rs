//! The commands of `rtad`. Everything they do is in the library.

mod demo;
mod explain_command;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory as _, Parser, Subcommand};
use rtad::config::{Config, ConfigError, Flags};
use rtad::serve::{Reread, Running, StartError, start};
use rtad::sync::chain;
use rtad::telemetry::{LogLevel, init_logging};
use rtad_http::manual::Manual;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Tells an ad platform, in microseconds, whether a device is one you already know.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve decisions from a snapshot store
    Serve(Serve),
    /// Make synthetic devices, build and publish a snapshot of them, and serve it
    Demo(demo::Demo),
    /// Explain why a platform's captured request gets the answer it gets
    Explain(explain_command::Explain),
    /// Print the effective config, secrets redacted, or every mistake in it
    CheckConfig {
        /// The config file
        file: PathBuf,
    },
    #[command(flatten)]
    Manual(Manual),
}

#[derive(Args)]
struct Serve {
    /// The config file; without one, every audience in the store is served
    #[arg(long, value_name = "FILE", env = "RTAD_CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    ports: Ports,
    /// Where snapshots come from: a directory, or s3://, gs://, az://, https:// URL [env: RTAD_STORE]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Threads that answer decisions; 0 = one per CPU [env: RTAD_WORKERS]
    #[arg(long, value_name = "N")]
    workers: Option<String>,
}

#[derive(Args)]
struct Ports {
    /// Decision port [default: 127.0.0.1:8080] [env: RTAD_LISTEN]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Admin port [default: 127.0.0.1:9090] [env: RTAD_ADMIN_LISTEN]
    #[arg(long, value_name = "ADDR")]
    admin_listen: Option<String>,
}

impl Ports {
    fn flags(&self) -> Flags {
        let given = [("server.listen", &self.listen), ("server.admin_listen", &self.admin_listen)];
        given.into_iter().filter_map(|(key, value)| Some((key, value.clone()?))).collect()
    }
}

/// Why a command failed; its number is the exit code's.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Demo(#[from] demo::DemoError),
    #[error("could not start")]
    Io(#[from] std::io::Error),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::CheckConfig { file } => check_config(file),
        Command::Manual(manual) => manual.write(Cli::command()).map_err(Failure::from),
        Command::Explain(arguments) => explain_command::run(arguments),
        Command::Serve(arguments) => serving(|| serve(arguments)),
        Command::Demo(arguments) => serving(|| demo::demo(arguments)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let lines = chain(&failure);
            let mut stderr = std::io::stderr().lock();
            for line in lines.lines() {
                let _ = writeln!(stderr, "error: {line}");
            }
            ExitCode::from(match failure {
                Failure::Usage(_) | Failure::Config(_) => 2,
                Failure::Start(_) | Failure::Demo(_) | Failure::Io(_) => 1,
            })
        }
    }
}

/// Logging first, then a runtime for signals and the acceptor.
fn serving<F: Future<Output = Result<(), Failure>>>(command: impl FnOnce() -> F) -> Result<(), Failure> {
    let level = std::env::var("RTAD_LOG").map_or(Ok(LogLevel::default()), |level| level.parse());
    init_logging(level.map_err(|error| Failure::Usage(format!("RTAD_LOG: {error}")))?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(command());
    // Connections that outlived the drain are cut here; a worker that still serves one is not waited for.
    runtime.shutdown_background();
    result
}

fn read_config(file: Option<&PathBuf>, flags: &Flags) -> Result<Config, Failure> {
    let environment = |name: &str| std::env::var(name).ok();
    let Some(path) = file else { return Ok(Config::read(None, environment, flags)?) };
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| Failure::Usage(format!("{name}: {error}")))?;
    Ok(Config::read(Some((&name, &text)), environment, flags)?)
}

fn check_config(file: PathBuf) -> Result<(), Failure> {
    let config = read_config(Some(&file), &Vec::new())?;
    std::io::stdout().lock().write_all(config.to_toml().as_bytes())?;
    Ok(())
}

async fn serve(arguments: Serve) -> Result<(), Failure> {
    let Serve { config: file, ports, store, workers } = arguments;
    let mut flags = ports.flags();
    flags.extend(store.map(|store| ("store.url", store)));
    flags.extend(workers.map(|workers| ("server.workers", workers)));
    let config = read_config(file.as_ref(), &flags)?;
    let reread: Reread =
        Box::new(move || read_config(file.as_ref(), &flags).map_err(|failure| chain(&failure)));
    let mut signals = Signals::listen()?;
    match signals.start(config, reread).await? {
        Some(running) => signals.run(running).await,
        None => Ok(()),
    }
}

/// What an operator tells a process. Listened to from before the start: a SIGHUP while the first snapshots load, or a SIGTERM
/// as soon as the port answers, would otherwise kill it.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn listen() -> Result<Self, Failure> {
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

    /// Starts to serve; `None` if told to stop before that is done.
    async fn start(&mut self, config: Config, reread: Reread) -> Result<Option<Running>, Failure> {
        tokio::select! {
            running = start(config, reread) => Ok(Some(running?)),
            () = self.stop() => Ok(None),
        }
    }

    /// Serves until SIGTERM or SIGINT, then drains; a second one ends the process at once. SIGHUP reloads the config.
    async fn run(&mut self, running: Running) -> Result<(), Failure> {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => break,
                _ = self.interrupt.recv() => break,
                _ = self.hang_up.recv() => tokio::select! {
                    // What comes of it is logged.
                    _ = running.reload() => {}
                    // A reload waits for the store; whoever wants to stop does not.
                    () = self.stop() => break,
                },
            }
        }
        tokio::select! {
            () = running.drain() => {}
            () = self.stop() => tracing::warn!("told twice: stopping at once"),
        }
        Ok(())
    }
}
