//! `rtad check-config`: the effective config and a summary of it, or every mistake in it.

mod changes;

use std::fmt::{self, Display, Formatter};
use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;
use rtad::config::{
    AssignedSlots, CapConfig, Config, PartNames, PlatformConfig, SignatureMode, StrategyConfig,
    experiments as rules_of,
};
use rtad::offline::{OfflineError, read_config};
use rtad::serve::Assembly;
use rtad::strategy::{Experiment, NO_BUCKET};
use rtad_cli::command_error::CommandError;
use rtad_config::ConfigError;
use rtad_config::values::Time;
use rtad_core::snapshot::AudienceName;

use changes::{Changes, percent, share_with_bucket};

#[derive(Args)]
pub struct CheckConfig {
    /// The config file
    file: PathBuf,
    /// Say who gets other answers than under this config file, the one in use, and refuse a change
    /// of experiments that moves devices to other buckets
    #[arg(long, value_name = "FILE")]
    previous: Option<PathBuf>,
}

pub fn run(arguments: &CheckConfig) -> Result<(), CommandError> {
    let assembly = read_config(&arguments.file, &Vec::new())?;
    let config = &assembly.config;
    let mut previous = None;
    if let Some(file) = &arguments.previous {
        let previous = previous.insert(read_config(file, &Vec::new())?.config);
        let mistakes = AssignedSlots::of(&previous.experiments).moves(&config.experiments);
        if !mistakes.is_empty() {
            return Err(OfflineError::Config(ConfigError { mistakes }).into());
        }
    }

    std::io::stdout()
        .write_all(config.to_toml().as_bytes())
        .map_err(CommandError::output)?;
    // After the config, for a person; a script reads stdout alone.
    let file = arguments.file.display();
    let _ = write!(std::io::stderr(), "{file}: valid\n{}", Summary(&assembly));
    if let Some(before) = &previous {
        let after = config;
        let _ = write!(std::io::stderr(), "{}", Changes { before, after });
    }
    Ok(())
}

/// A line for each port, audience, strategy and platform.
struct Summary<'a>(&'a Assembly);

impl Display for Summary<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Config {
            server,
            store,
            audiences,
            strategies,
            caps,
            experiments,
            platforms,
            ..
        } = &self.0.config;
        let every = Time(store.poll_interval);
        let stores = store.stores().join(", ");

        writeln!(f, "config     {}", self.0.config.id)?;
        writeln!(f, "store      {stores}, polled every {every}")?;
        writeln!(f, "decisions  {}", server.listen)?;
        writeln!(f, "admin      {}", server.admin_listen)?;
        writeln!(f, "own API    {}", api(&self.0.config))?;

        for audience in audiences {
            let word = if audience.required {
                "required"
            } else {
                "optional"
            };
            write!(f, "audience   {}: {word}", audience.name)?;
            match audience.max_age {
                Some(age) => writeln!(f, ", unavailable after {}", Time(age))?,
                None => writeln!(f)?,
            }
        }
        if audiences.is_empty() {
            writeln!(f, "audience   each in the store")?;
        }

        for strategy in strategies {
            writeln!(
                f,
                "strategy   {}: {}",
                strategy.name,
                rule_text(&self.0.config, strategy)
            )?;
        }

        for cap in caps {
            writeln!(f, "cap        {}: {}", cap.name, limit(cap))?;
        }
        for experiment in rules_of(experiments) {
            writeln!(f, "experiment {}: {}", experiment.name, shares(&experiment))?;
        }

        for platform in platforms {
            let PlatformConfig {
                name,
                kind,
                path,
                strategies,
                ..
            } = platform;
            let count = strategies.len();
            let access = access(platform);
            let noun = if count == 1 { "strategy" } else { "strategies" };
            writeln!(
                f,
                "platform   {name}: {kind} at {path}, {count} {noun}, {access}"
            )?;
        }

        for warning in self.0.warnings() {
            writeln!(f, "warning    {warning}")?;
        }
        Ok(())
    }
}

/// Callers of rtad's own routes.
const fn api(config: &Config) -> &'static str {
    let api = &config.server.api;
    if !api.token_files.is_empty() {
        "the decision port, with a token"
    } else if api.public || config.platforms.is_empty() {
        "the decision port, open to every caller"
    } else {
        "closed beside platforms"
    }
}

/// Which devices get a bid, and when.
fn rule_text(config: &Config, strategy: &StrategyConfig) -> String {
    let Config {
        audiences,
        experiments: configs,
        ..
    } = config;
    let mut conditions = Vec::new();
    if !strategy.exclude.is_empty() {
        let names: Vec<_> = strategy.exclude.iter().map(AudienceName::as_str).collect();
        conditions.push(format!("unless in {}", names.join(", ")));
    }
    if let Some(when) = &strategy.when {
        let parts = PartNames::of(configs);
        let rule = when.rule(
            &|name| audiences.iter().position(|it| it.name == *name),
            &parts,
        );
        let words = rule.to_text(
            &|index| audiences[index].name.to_string(),
            &rules_of(configs),
        );
        conditions.push(format!("if {words}"));
    }
    if strategy.schedule().is_some() {
        conditions.push("by its schedule".to_owned());
    }
    if let Some(cap) = &strategy.cap {
        conditions.push(format!("up to {cap}"));
    }

    let bid = if strategy.shadow {
        "in shadow, bid"
    } else {
        "bid"
    };
    format!("{bid} {}", conditions.join(", "))
}

/// The shares of devices in the parts of an experiment.
fn shares(experiment: &Experiment) -> String {
    let mut parts = Vec::new();
    for bucket in &experiment.buckets {
        let only = Experiment {
            buckets: vec![bucket.clone()],
            ..experiment.clone()
        };
        let share = percent(share_with_bucket(&only, &only));
        parts.push(format!("{} {share}", bucket.name));
    }

    let none = 1.0 - share_with_bucket(experiment, experiment);
    if none > 1e-9 {
        parts.push(format!("{NO_BUCKET} {}", percent(none)));
    }
    parts.join(", ")
}

/// The number of devices that get a bid.
fn limit(cap: &CapConfig) -> String {
    let devices = cap.limit;
    let per = cap.period.as_str();
    let time_zone = cap.zone();
    format!("{devices} distinct devices per {per} in {time_zone}")
}

/// The condition that admits a request of a platform.
fn access(platform: &PlatformConfig) -> &'static str {
    let signature = platform.signature.as_ref();
    let is_signed = signature.is_some_and(|signature| signature.mode == SignatureMode::Enforce);
    match (platform.headers.is_empty(), is_signed) {
        (true, true) => "admitted by signature",
        (false, true) => "admitted by header and signature",
        (false, false) => "admitted by header",
        (true, false) => "open to every caller",
    }
}
