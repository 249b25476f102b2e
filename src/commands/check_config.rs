//! `rtad check-config`: the effective config, or every mistake in it.

use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;

use super::config::read_config;
use super::failure::Failure;

#[derive(Args)]
pub(super) struct CheckConfig {
    /// The config file
    file: PathBuf,
}

pub(super) fn run(arguments: &CheckConfig) -> Result<(), Failure> {
    let assembly = read_config(Some(&arguments.file), &Vec::new())?;
    std::io::stdout().lock().write_all(assembly.config.to_toml().as_bytes())?;
    Ok(())
}
