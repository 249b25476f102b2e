//! `promote` command: makes the staged generation live.

use clap::Args;
use serde::Serialize;

use rtad_cli::command_error::CommandError;
use rtad_cli::{SignArgs, TrustArgs};
use rtad_core::clock::now_unix_seconds;
use rtad_core::snapshot::AudienceName;

use super::context::{Output, Target, runtime};
use super::error::CommonError;
use super::stage_args::{PodShare, parse_share};
use crate::interrupts;

/// Make the staged generation live for all pods, or for another share of them.
#[derive(Debug, Args)]
pub struct PromoteArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    trust: TrustArgs,
    #[command(flatten)]
    sign: SignArgs,
    /// Keep it staged, for this share of the pods: a larger share has the pods of a smaller one
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    stage: Option<PodShare>,
}

#[derive(Debug, Serialize)]
struct PromoteReport {
    audience: AudienceName,
    generation: u64,
    /// The share of the pods; all without one.
    stage: Option<PodShare>,
    signed: bool,
}

pub fn run(args: &PromoteArgs, output: &Output) -> Result<(), CommandError> {
    let audience = &args.target.audience;
    let store = args.trust.applied_to(args.target.open()?)?;
    let writer = args.sign.writer(store, &args.trust)?;
    let pods_per_million = args.stage.map(PodShare::millionths);
    let current = runtime()?.block_on(async {
        let base = writer.base(audience).await?;
        let Some(current) = base.with_generation() else {
            return Err(CommonError::not_published(audience));
        };
        if let Some(staged) = current.staged {
            let manifest = writer.store().manifest(audience, &staged.entry).await?;
            if manifest.is_expired(now_unix_seconds()) {
                return Err(CommonError::Expired {
                    audience: audience.clone(),
                    generation: staged.entry.generation,
                }
                .into());
            }
        }
        interrupts::begin_publish();
        Ok(writer.promote(&base, pods_per_million).await?)
    })?;

    let generation = match current.staged {
        Some(staged) => staged.entry.generation,
        None => current.generation,
    };
    let report = PromoteReport {
        audience: audience.clone(),
        generation,
        stage: args.stage,
        signed: writer.signs(),
    };
    let headline = match args.stage {
        Some(share) => {
            format!("{audience}: generation {generation} is staged for {share} of the pods")
        }
        None => format!("{audience}: generation {generation} is live for all pods"),
    };
    output.report(&headline, &report)
}
