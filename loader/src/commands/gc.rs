//! `gc` command: removes old generations and the chunks that only they used.
//!
//! `rtad_store` selects the files to remove and handles concurrent publishes.

use std::num::NonZeroUsize;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use rtad_cli::command_error::CommandError;
use rtad_core::snapshot::AudienceName;
use rtad_store::write::{Collected, Retention, StoreWriter};

use super::context::{Output, Target, runtime};
use super::error::CommonError;

/// Remove old generations, and chunks that no kept generation uses.
///
/// Keeps the live generation and those that were live before it, --keep in all, every generation
/// above the oldest of them, and all files younger than --min-age. A removed generation is no
/// longer available for a rollback.
///
/// May run while a build publishes. In a directory, the second to start exits with code 6. In a
/// bucket both proceed; a build that reused an old chunk just removed exits with code 6, and the
/// live generation stays intact. Use --min-age 0s only on a store that nothing else writes to.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct GcArgs {
    #[command(flatten)]
    target: Target,
    /// Number of generations to keep: the live one, and those that were live before it
    #[arg(long, value_name = "N", default_value = "3")]
    keep: NonZeroUsize,
    /// Keep files younger than this; should exceed the duration of a publish
    #[arg(
        long,
        value_name = "TIME",
        default_value = "1h",
        value_parser = humantime::parse_duration
    )]
    min_age: Duration,
    /// Report the files to remove, but remove nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Serialize)]
struct GcReport {
    audience: AudienceName,
    dry_run: bool,
    #[serde(flatten)]
    collected: Collected,
}

pub fn run(args: &GcArgs, output: &Output) -> Result<(), CommandError> {
    let store = args.target.open()?;
    let audience = &args.target.audience;
    let retention = Retention {
        keep: args.keep.get(),
        min_age: args.min_age,
    };
    let collected = runtime()?.block_on(async {
        if store.live(audience).await?.is_none() {
            return Err(CommonError::not_published(audience));
        }
        Ok(StoreWriter::new(store)?
            .collect(audience, retention, args.dry_run)
            .await?)
    })?;
    let report = GcReport {
        audience: audience.clone(),
        dry_run: args.dry_run,
        collected,
    };
    let headline = if args.dry_run {
        format!("dry run of {audience}: nothing was removed")
    } else {
        let count = report.collected.removed_generations.len();
        format!("{audience}: {count} generations removed")
    };
    output.report(&headline, &report)
}
