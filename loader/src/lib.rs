//! `rtad-loader`: builds rtad snapshots from device-id exports, publishes and inspects them.
//!
//! Each command has one file in `commands/`. Data goes to stdout, progress and errors to stderr.
//! `rtad-cli` defines the exit codes. Neither stream ever carries a device id, hashed or not.
//!
//! [`main`] is the program. [`host`] runs the same commands inside another program.

mod commands;
pub mod host;
mod input;
mod interrupts;
mod keys;
mod live_filters;
mod merged_deltas;
mod progress;

use clap::Parser;

use rtad_cli::command_error::CommandError;
use rtad_cli::exit::{ExitStatus, UsageMistake, write_failure_json};

use commands::Cli;

/// Runs the command line of this process.
pub fn main() -> ExitStatus {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // No parsed flags exist; help and version are no mistakes.
            let has_flag = std::env::args_os().any(|argument| argument == "--json");
            if error.use_stderr() && has_flag {
                write_failure_json(&UsageMistake::of(&error));
            }
            error.exit()
        }
    };

    let is_json = cli.reports_json();
    let watched = interrupts::watch(is_json, cli.effect_of_interrupt());
    let done = watched
        .map_err(CommandError::runtime)
        .and_then(|()| commands::run(cli));
    let Err(error) = done else {
        return ExitStatus::Ok;
    };
    let status = error.report();
    if is_json && status != ExitStatus::Ok {
        write_failure_json(&*error);
    }
    status
}
