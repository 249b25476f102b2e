//! Logging: one JSON object per line on stderr.

use std::str::FromStr;

use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Least severe level that is logged; `info` by default.
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
            _ => Err(format!("log level {word:?}; accepted: error, warn, info, debug")),
        }
    }
}

/// Starts logging for the process, and makes panics log their source location alone.
///
/// Only events of rtad's own crates pass: a library's may quote a request, and so a device id; so
/// may the message of a panic.
pub fn init_logging(level: LogLevel) {
    // Targets match by prefix: rtad, rtad_core, rtad_http, rtad_loader and rtad_store.
    let own = Targets::new().with_target("rtad", level.0);
    let json =
        tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(std::io::stderr);
    // Fails only if logging was started before; then that subscriber stays.
    let _ = tracing_subscriber::registry().with(json).with(own).try_init();
    std::panic::set_hook(Box::new(|panic| {
        let location = panic.location().map_or_else(|| "unknown".to_owned(), ToString::to_string);
        tracing::error!(location, "panic; its message is left out, as it may quote a request");
    }));
}
