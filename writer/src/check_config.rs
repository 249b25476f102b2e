//! `check-config` command: a summary of the writer's configuration, or every mistake in it.

use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;

use rtad_cli::command_error::CommandError;

use super::tokens::Tokens;
use super::windows::config::Config;

/// Check a configuration file and the token files that it names: print a summary, or every mistake
/// with its line.
#[derive(Debug, Args)]
pub struct CheckConfigArgs {
    /// The configuration file (TOML)
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub fn run(args: &CheckConfigArgs) -> Result<(), CommandError> {
    let config = Config::read(&args.file)?;
    Tokens::from_files(config.tokens.clone())?;
    write!(
        std::io::stdout(),
        "{}: valid\n{config}",
        args.file.display()
    )
    .map_err(CommandError::output)
}
