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

use commands::{Cli, CommandError};
use exit::ExitStatus;

fn main() -> ExitStatus {
    match commands::run(Cli::parse()) {
        Ok(()) => ExitStatus::Ok,
        // The reader closed the pipe, as in `rtad-loader synth … | head`.
        Err(CommandError::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            ExitStatus::Ok
        }
        Err(error) => {
            exit::write_error(&error);
            error.status()
        }
    }
}
