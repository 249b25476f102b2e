//! `rtad-loader`: builds rtad snapshots from device-id exports, publishes and inspects them.
//!
//! Each command has one file in `commands/`. Data goes to stdout, progress and errors to stderr.
//! `exit.rs` defines the exit codes. Neither stream ever carries a device id, hashed or not.

mod commands;
mod exit;
mod frames;
mod input;
mod keys;
mod merged_deltas;
mod progress;
mod seen;
mod sign;

use clap::Parser;

use commands::Cli;
use exit::ExitStatus;

fn main() -> ExitStatus {
    let Err(error) = commands::run(Cli::parse()) else { return ExitStatus::Ok };
    let status = error.exit();
    if status != ExitStatus::Ok {
        exit::write_failure(&*error);
    }
    status
}
