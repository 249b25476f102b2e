//! `rtad-writer`: writes of audiences over HTTP, and event windows. A write is acknowledged once it
//! is durable.
//!
//! | module | job |
//! |---|---|
//! | `blocking` | work that would keep other tasks waiting |
//! | `op` | operations on devices |
//! | `error` | errors, as problem documents |
//! | `telemetry` | metrics |
//! | `scopes`, `tokens` | credentials |
//! | `audience` | one task with a queue per audience; waiting writes are coalesced |
//! | `windows` | event windows, and the audiences that follow them |
//! | `check_config` | the command that checks the configuration |
//! | `bodies`, `ids` | request bodies, and the ids in them |
//! | `app` | shared state and middleware |
//! | `devices`, `audiences`, `events`, `callbacks` | handlers |
//! | `routes` | list of all routes |
//! | `serve` | start and stop of the service |
//! | `cli` | command line |
//!
//! Each module uses only those above it in the table. Neither stdout nor stderr ever carries a
//! device id, hashed or not.
//!
//! [`main`] is the program. [`Windows`] and [`Writers`] are its work behind the routes.

mod app;
mod audience;
mod audiences;
mod blocking;
mod bodies;
mod callbacks;
mod check_config;
mod cli;
mod devices;
mod error;
mod events;
mod ids;
mod op;
mod routes;
mod scopes;
mod serve;
mod telemetry;
mod tokens;
mod windows;

use rtad_cli::exit::ExitStatus;

pub use audience::{WriteLimits, Writers};
pub use telemetry::Telemetry;
pub use windows::Windows;
pub use windows::config::Config;

/// The name and version of this program in manifests.
const TOOL: &str = concat!("rtad-writer ", env!("CARGO_PKG_VERSION"));

/// Runs the command line of this process.
pub fn main() -> ExitStatus {
    match cli::run() {
        Ok(()) => ExitStatus::Ok,
        Err(error) => error.report(),
    }
}
