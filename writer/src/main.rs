//! `rtad-writer`: writes of audiences over HTTP, and event windows. A write is acknowledged once it
//! is durable.
//!
//! | module | job |
//! |---|---|
//! | `new_manifest` | manifest of a new generation |
//! | `batch` | coalescing of requests into one change |
//! | `error` | errors, as problem documents |
//! | `telemetry` | metrics |
//! | `scopes`, `tokens` | credentials |
//! | `windows` | event windows, and the audiences that follow them |
//! | `check_config` | the command that checks the configuration |
//! | `bodies`, `ids` | request bodies, and the ids in them |
//! | `commands` | commands to the task that writes an audience |
//! | `session` | the audience's ledger at the store |
//! | `changes` | changes of an audience as a whole |
//! | `members` | filters of the live generation, for `add_if_absent` |
//! | `writer`, `writers` | one task with a queue per audience; waiting writes are coalesced |
//! | `app` | shared state and middleware |
//! | `console` | a page about the windows |
//! | `devices`, `audiences`, `events`, `callbacks` | handlers |
//! | `routes` | list of all routes |
//! | `serve` | start and stop of the service |
//! | `cli` | command line |
//!
//! Each module uses only those above it in the table. Neither stdout nor stderr ever carries a
//! device id, hashed or not.

mod app;
mod audiences;
mod batch;
mod bodies;
mod callbacks;
mod changes;
mod check_config;
mod cli;
mod commands;
mod console;
mod devices;
mod error;
mod events;
mod ids;
mod members;
mod new_manifest;
mod routes;
mod scopes;
mod serve;
mod session;
mod telemetry;
mod tokens;
mod windows;
mod writer;
mod writers;

use rtad_cli::exit::{ExitStatus, write_failure};

fn main() -> ExitStatus {
    let Err(error) = cli::run() else { return ExitStatus::Ok };
    let status = error.exit();
    if status != ExitStatus::Ok {
        write_failure(&*error);
    }
    status
}
