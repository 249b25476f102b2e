//! Logging, runtime and signals of a serving process.

use rtad::serve::{self, Assembly, Reread, Running, StartError};
use rtad_cli::command_error::CommandError;
use rtad_cli::exit::UsageMistake;
use rtad_http::logging::{LogLevel, init_logging};
use rtad_http::signals::{Signal, Signals};

/// Runs a serving command: logging first, then a runtime for signals and the accept loop.
pub fn run<F>(command: impl FnOnce() -> F) -> Result<(), CommandError>
where
    F: Future<Output = Result<(), CommandError>>,
{
    let level = match std::env::var("RTAD_LOG") {
        Ok(word) => word
            .parse()
            .map_err(|error| UsageMistake::new(format!("RTAD_LOG: {error}")))?,
        Err(_) => LogLevel::default(),
    };
    init_logging(level);

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(CommandError::runtime)?;
    let result = runtime.block_on(command());
    // Closes connections that outlived the drain, without waiting for their workers.
    runtime.shutdown_background();
    result
}

/// Starts serving; `None` if a stop signal comes first.
pub async fn start(
    signals: &mut Signals,
    assembly: Assembly,
    reread: Reread,
) -> Result<Option<Running>, StartError> {
    tokio::select! {
        running = serve::start(assembly, reread) => running.map(Some),
        () = signals.stop() => Ok(None),
    }
}

/// Serves until SIGTERM or SIGINT, then drains; a second signal ends the process at once. SIGHUP
/// reloads the config.
pub async fn serve_until_stopped(signals: &mut Signals, running: Running) {
    while signals.next().await == Signal::Reload {
        tokio::select! {
            // The result is logged.
            _ = running.reload() => {}
            // A reload waits for the store; a stop does not.
            () = signals.stop() => break,
        }
    }
    tokio::select! {
        () = running.drain() => {}
        () = signals.stop() => tracing::warn!("second signal: stopping at once"),
    }
}
