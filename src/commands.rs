//! Commands of `rtad`.
//!
//! | module | job |
//! |---|---|
//! | `ports` | flags of the ports |
//! | `process` | logging, runtime and signals of a serving process |
//! | `check_config`, `demo`, `explain`, `init`, `replay`, `serve` | the commands |

mod check_config;
mod demo;
mod explain;
mod init;
mod ports;
mod process;
#[cfg(test)]
mod reference;
mod replay;
mod serve;

use clap::{CommandFactory as _, Parser, Subcommand};
use rtad_cli::command_error::CommandError;
use rtad_cli::manual::Manual;

/// The template of the program's page in the reference: exit codes and examples.
const REFERENCE: &str = include_str!("commands/reference.md");

/// Answers ad platforms in microseconds whether a device is in one of your audiences
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write a first config, from flags or from answers on the terminal
    Init(init::Init),
    /// Serve decisions from a snapshot store
    Serve(serve::Serve),
    /// Make synthetic devices, build and publish a snapshot of them, and serve it
    Demo(demo::Demo),
    /// Explain the answer to a platform's captured request
    Explain(explain::Explain),
    /// Decide about the requests of a decision log again, under another config
    Replay(replay::ReplayCommand),
    /// Check a config: print it with its defaults and without secrets, and a summary on stderr, or
    /// every mistake in it
    CheckConfig(check_config::CheckConfig),
    #[command(flatten)]
    Manual(Manual),
}

/// Runs the command that the process's arguments name.
pub fn run() -> Result<(), CommandError> {
    match Cli::parse().command {
        Command::CheckConfig(arguments) => check_config::run(&arguments),
        Command::Manual(manual) => manual
            .write(Cli::command(), REFERENCE)
            .map_err(CommandError::output),
        Command::Init(arguments) => init::run(arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Explain(arguments) => explain::run(arguments),
        Command::Serve(arguments) => process::run(|| serve::serve(arguments)),
        Command::Demo(arguments) => process::run(|| demo::demo(arguments)),
    }
}
