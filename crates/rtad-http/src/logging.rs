//! Logging on stderr: text on a terminal, otherwise one JSON object per line.

use std::io::IsTerminal as _;
use std::str::FromStr;

use tracing::Level;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Lowest severity that is logged; `info` by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLevel(Level);

impl Default for LogLevel {
    fn default() -> Self {
        Self(Level::INFO)
    }
}

impl FromStr for LogLevel {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "error" => Ok(Self(Level::ERROR)),
            "warn" => Ok(Self(Level::WARN)),
            "info" => Ok(Self(Level::INFO)),
            "debug" => Ok(Self(Level::DEBUG)),
            _ => Err(format!(
                "log level is {word:?}, expected error, warn, info or debug"
            )),
        }
    }
}

/// Starts logging for the process. A panic logs only its source location.
///
/// Logs only events of rtad's crates: those of libraries, and panic messages, may quote a device
/// id.
pub fn init_logging(level: LogLevel) {
    // Targets match by prefix: rtad, rtad_core, rtad_http, rtad_store and rtad_writer.
    let rtad_only = Targets::new().with_target("rtad", level.0);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let layer = if std::io::stderr().is_terminal() {
        lines.with_target(false).boxed()
    } else {
        lines.json().flatten_event(true).boxed()
    };

    // Fails only if logging was started already.
    let _ = tracing_subscriber::registry()
        .with(layer)
        .with(rtad_only)
        .try_init();
    std::panic::set_hook(Box::new(|panic| {
        let location = panic
            .location()
            .map_or_else(|| "unknown".to_owned(), ToString::to_string);
        tracing::error!(
            location,
            "panic; message omitted, as it may quote a request"
        );
    }));
}
