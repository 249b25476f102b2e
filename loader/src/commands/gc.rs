//! `gc` command: removes old generations and the files that only they used.
//!
//! `rtad_store` selects the files to remove, and says why a publish may run at the same time.

use std::num::NonZeroUsize;
use std::str::FromStr as _;

use clap::Args;
use serde::Serialize;

use rtad_cli::command_error::CommandError;
use rtad_cli::{SignArgs, TrustArgs};
use rtad_core::snapshot::AudienceName;
use rtad_store::write::{Collected, MIN_AGE, Retention};

use super::context::{Output, Target, runtime};
use super::error::CommonError;

/// Remove old generations, and files that no kept generation uses.
///
/// Keeps the live generation and those that were live before it, --keep in all, every generation
/// above the oldest of them, and all files younger than --min-age. A removed generation is no
/// longer available for a rollback. Records are kept for a week at least. On a mirror use --keep 100:
/// all generations stay, and no record is created.
///
/// May run while others write. A publish that takes longer than 12 hours may then exit with code 6.
/// Use a shorter --min-age only on a store that nothing else writes to.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct GcArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    trust: TrustArgs,
    #[command(flatten)]
    sign: SignArgs,
    /// Number of generations to keep: the live one, and those that were live before it
    #[arg(long, value_name = "N", default_value = "3")]
    keep: NonZeroUsize,
    /// Keep files younger than this; less than a day only where nothing else writes
    #[arg(
        long,
        value_name = "TIME",
        default_value_t = MIN_AGE.into(),
        value_parser = humantime::Duration::from_str
    )]
    min_age: humantime::Duration,
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
    let store = args.trust.applied_to(args.target.open()?)?;
    let writer = args.sign.writer_or_plain(store)?;
    let audience = &args.target.audience;
    let retention = Retention {
        keep: args.keep.get(),
        min_age: args.min_age.into(),
    };

    let collected = runtime()?.block_on(async {
        if writer.store().live(audience).await?.is_none() {
            return Err(CommonError::not_published(audience));
        }
        Ok(writer.collect(audience, retention, args.dry_run).await?)
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
