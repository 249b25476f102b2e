//! `rtad-loader`: turns device-id dumps into rtad snapshots, publishes them, and looks into what was
//! published.
//!
//! The commands stand in `commands/`, one file each. Data goes to stdout, progress and errors to stderr; the
//! exit codes stand in `exit.rs`. A device id, hashed or not, is written to neither.

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
        // Whoever read the output has seen enough, as in `rtad-loader synth … | head`.
        Err(CommandError::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            ExitStatus::Ok
        }
        Err(error) => {
            exit::write_error(&error);
            error.status()
        }
    }
}
