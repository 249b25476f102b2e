//! Command line: the service by default, and commands that check and document it.

#[cfg(test)]
mod reference;

use clap::{Args as _, FromArgMatches as _, Subcommand};

use rtad_cli::command_error::CommandError;
use rtad_cli::manual::Manual;

use super::check_config::{self, CheckConfigArgs};
use super::serve::{self, ServeArgs};

/// The template of the program's page in the reference: exit codes and examples.
const REFERENCE: &str = include_str!("cli/reference.md");

#[derive(Debug, Subcommand)]
enum Command {
    CheckConfig(CheckConfigArgs),
    #[command(flatten)]
    Manual(Manual),
}

/// The program: flags of the service, or a command.
fn program() -> clap::Command {
    let program = clap::Command::new("rtad-writer")
        .version(env!("CARGO_PKG_VERSION"))
        .max_term_width(110)
        .args_conflicts_with_subcommands(true)
        .after_help("Exit codes: 0 ok · 1 unexpected · 2 usage · 5 store or network");
    // The last one describes the program.
    ServeArgs::augment_args(Command::augment_subcommands(program))
}

pub fn run() -> Result<(), CommandError> {
    let matches = program().get_matches();
    let defined = "the matches are of this program";
    if matches.subcommand_name().is_none() {
        return serve::run(ServeArgs::from_arg_matches(&matches).expect(defined));
    }
    match Command::from_arg_matches(&matches).expect(defined) {
        Command::CheckConfig(args) => check_config::run(&args),
        Command::Manual(manual) => manual
            .write(program(), REFERENCE)
            .map_err(CommandError::output),
    }
}
