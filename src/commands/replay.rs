//! `rtad replay`: the decisions of a log, made again under another config.

use std::collections::BTreeSet;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use rtad::catalog::{Audience, Catalog};
use rtad::config::ConfigUse;
use rtad::offline::read_config_for;
use rtad::platform::IdReader;
use rtad::replay::{Replay, Snapshots};
use rtad::serve::{Assembly, find_audiences};
use rtad::strategy::Strategy;
use rtad::sync::{Shared, SyncHistory, Syncer};
use rtad_core::device::KeyMaker;

use super::failure::CommandFailure;

#[derive(Args)]
pub struct ReplayCommand {
    /// The config file whose decisions are asked for
    #[arg(long, value_name = "FILE", env = "RTAD_CONFIG")]
    config: PathBuf,
    /// Compare with the decisions of this config file, in place of those that were answered
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Look the devices of logged bodies up in the config's store, to see the effect of other
    /// audiences; such a log has `raw = "sampled"`
    #[arg(long)]
    lookup: bool,
    /// Exit with 3 if more of the requests change, such as 0.5%; those whose rows lack what the
    /// answer depends on count too
    #[arg(long, value_name = "SHARE", value_parser = share)]
    max_change: Option<f64>,
    /// Exit with 3 if any request changes, or its row lacks what the answer depends on
    #[arg(long, value_enum, conflicts_with = "max_change")]
    assert: Option<Assertion>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Files of a decision log, or folders of them
    #[arg(value_name = "LOG", required = true)]
    logs: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Assertion {
    /// No answer, value or bucket changes.
    Unchanged,
}

/// A share in percent.
fn share(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|text| text.parse().ok());
    let number = number.filter(|number: &f64| (0.0..=100.0).contains(number));
    number
        .map(|number| number / 100.0)
        .ok_or_else(|| "accepted: 0% to 100%".to_owned())
}

pub fn run(arguments: &ReplayCommand) -> Result<(), CommandFailure> {
    // A lookup reads the store, whose snapshots may be signed.
    let uses = if arguments.lookup {
        ConfigUse::All
    } else {
        ConfigUse::Rules
    };
    let after = read_rules(&arguments.config, uses)?;
    let before = arguments
        .against
        .as_ref()
        .map(|file| read_rules(file, ConfigUse::Rules));
    let before = before.transpose()?;
    let replay = Replay::open(&arguments.logs)?;
    let bar = progress_bar(replay.rows());
    let snapshots = arguments.lookup.then(|| load(after.clone())).transpose()?;
    let report = replay.run(&after, before.as_ref(), snapshots.as_ref(), |rows| {
        bar.inc(rows)
    });
    bar.finish_and_clear();
    let report = report?;
    let text = match arguments.json {
        true => serde_json::to_string(&report).expect("plain values serialize") + "\n",
        false => report.to_string(),
    };
    // A closed pipe is not an error.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    let share = report.open_share();
    match arguments
        .assert
        .map(|Assertion::Unchanged| 0.0)
        .or(arguments.max_change)
    {
        Some(most) if share > most => {
            let (share, most) = (100.0 * share, 100.0 * most);
            let reason =
                format!("{share:.4} % of the requests change or lack facts; accepted: {most} %");
            Err(CommandFailure::Changed(reason))
        }
        _ => Ok(()),
    }
}

/// A config with strategies.
fn read_rules(file: &Path, uses: ConfigUse) -> Result<Assembly, CommandFailure> {
    let assembly = read_config_for(uses, Some(file), &Vec::new())?;
    if assembly.config.strategies.is_empty() {
        let file = file.display();
        return Err(CommandFailure::Usage(format!(
            "{file}: has no [[strategy]]; accepted: a config that names its strategies"
        )));
    }
    Ok(assembly)
}

/// Loads all audiences of a config from its store, and refuses a strategy's audience that cannot be
/// served: its decisions would be reported as changes.
fn load(assembly: Assembly) -> Result<Snapshots, CommandFailure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut assembly = assembly;
        let store = find_audiences(&mut assembly.config).await?;
        let shared = Shared::default();
        let mut plan = assembly.plan();
        // Counts are in the pods.
        plan.caps.clear();
        // The age today says nothing about the time of the rows.
        plan.audiences
            .iter_mut()
            .for_each(|audience| audience.max_age = None);
        let sync = Syncer::new(store, plan, shared.clone());
        sync.poll_matching(|_| true).await;
        let catalog = sync.serving().load_full();
        let missing = missing(&catalog, &shared.polls);
        if !missing.is_empty() {
            return Err(CommandFailure::NotLoaded(missing.join("\n")));
        }
        let keys = KeyMaker::with_extra_blanks(&assembly.config.ids.blank);
        Ok(Snapshots::new(
            catalog,
            IdReader::new(keys, &shared.telemetry),
        ))
    })
}

/// A line for each audience of the strategies that cannot be looked up.
fn missing(catalog: &Catalog, history: &SyncHistory) -> Vec<String> {
    let named: BTreeSet<usize> = catalog.strategies().flat_map(Strategy::audiences).collect();
    let audiences = named.into_iter().map(|index| &catalog.audiences()[index]);
    let missing = audiences.filter(|audience| audience.available().is_none());
    let line = |audience: &Audience| {
        let error = history.last(&audience.name).and_then(|last| last.error);
        let cause = error.unwrap_or_else(|| "it has expired or is disabled".to_owned());
        format!(
            "--lookup: audience {} cannot be looked up: {cause}",
            audience.name
        )
    };
    missing.map(line).collect()
}

/// A bar on a terminal's stderr.
fn progress_bar(rows: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = "{bar:30} {human_pos} of {human_len} rows, {per_sec}, {eta} left";
    ProgressBar::new(rows).with_style(ProgressStyle::with_template(style).expect("a template"))
}
