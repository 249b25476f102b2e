//! `rtad replay`: the decisions of a log, made again under another config.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use rtad::config::ConfigUse;
use rtad::offline::read_config_for;
use rtad::replay::Replay;
use rtad::serve::Assembly;
use rtad_cli::command_error::CommandError;
use rtad_cli::exit::{CommandFailure, ExitStatus, UsageMistake};

#[derive(Args)]
pub struct ReplayCommand {
    /// The config file whose decisions are asked for
    #[arg(long, value_name = "FILE", env = "RTAD_CONFIG")]
    config: PathBuf,
    /// Compare with the decisions of this config file, in place of those that were answered
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Exit with 3 if more of the requests change, such as 0.5%, or with 0% if any does; requests
    /// whose rows lack a fact of the decision count too
    #[arg(long, value_name = "SHARE", value_parser = share)]
    max_change: Option<f64>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Files of a decision log, or folders of them
    #[arg(value_name = "LOG", required = true)]
    logs: Vec<PathBuf>,
}

/// More changes than are accepted.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct TooManyChanges(String);

impl CommandFailure for TooManyChanges {
    fn exit(&self) -> ExitStatus {
        ExitStatus::BadInput
    }
}

/// A share in percent.
fn share(text: &str) -> Result<f64, String> {
    match text.strip_suffix('%').map(str::parse::<f64>) {
        Some(Ok(number)) if (0.0..=100.0).contains(&number) => Ok(number / 100.0),
        _ => Err("accepted: 0% to 100%".to_owned()),
    }
}

pub fn run(arguments: &ReplayCommand) -> Result<(), CommandError> {
    let after = read_rules(&arguments.config)?;
    let before = match &arguments.against {
        Some(file) => Some(read_rules(file)?),
        None => None,
    };

    let replay = Replay::open(&arguments.logs)?;
    let bar = progress_bar(replay.rows());
    let report = replay.run(&after, before.as_ref(), |rows| bar.inc(rows));
    bar.finish_and_clear();
    let report = report?;

    let text = if arguments.json {
        serde_json::to_string(&report).expect("plain values serialize") + "\n"
    } else {
        report.to_string()
    };
    // A closed pipe is not an error.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());

    let Some(accepted) = arguments.max_change else {
        return Ok(());
    };
    if report.has_decided_nothing() {
        let found = "no row has facts, so nothing was compared".to_owned();
        return Err(TooManyChanges(found).into());
    }
    let share = report.open_share();
    if share > accepted {
        let share = 100.0 * share;
        let accepted = 100.0 * accepted;
        let found =
            format!("{share:.4} % of the requests change or lack facts; accepted: {accepted} %");
        return Err(TooManyChanges(found).into());
    }
    Ok(())
}

/// A config with strategies.
fn read_rules(file: &Path) -> Result<Assembly, CommandError> {
    let assembly = read_config_for(ConfigUse::Rules, file, &Vec::new())?;
    if assembly.config.strategies.is_empty() {
        let message = format!(
            "{}: has no [[strategy]]; accepted: a config that names its strategies",
            file.display()
        );
        return Err(UsageMistake::new(message).into());
    }
    Ok(assembly)
}

/// A bar on a terminal's stderr.
fn progress_bar(rows: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = "{bar:30} {human_pos} of {human_len} rows, {per_sec}, {eta} left";
    ProgressBar::new(rows).with_style(ProgressStyle::with_template(style).expect("a template"))
}
