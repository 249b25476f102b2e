//! `rollback`: makes an older generation live again.

use clap::Args;
use serde::Serialize;

use rtad_store::StoreError;

use super::{CommandError, Output, SignArgs, Target, UsageError, now_unix_seconds, runtime};

/// Make an older generation live again: by default the newest that is older than the live one.
#[derive(Debug, Args)]
pub(super) struct RollbackArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    sign: SignArgs,
    /// Go back even if it cannot be found out which deltas later generations have taken up, as when a manifest of theirs is
    /// damaged: those deltas are then lost, removals among them. Tombstones stay
    #[arg(long)]
    lose_deltas: bool,
    /// The generation to make live; also a newer one, to undo a rollback
    #[arg(long, value_name = "G")]
    to: Option<u64>,
}

#[derive(Debug, Serialize)]
struct RollbackReport {
    audience: String,
    generation: u64,
    previous_generation: u64,
}

/// The manifest that is gone back to has been read: one that cannot be is a later one's.
fn explained(error: StoreError) -> CommandError {
    match &error {
        StoreError::NotFound { path }
        | StoreError::Manifest { path, .. }
        | StoreError::Signature { path, .. }
            if path.contains("/manifests/") =>
        {
            CommandError::LaterManifest(error)
        }
        _ => error.into(),
    }
}

pub(super) fn run(args: RollbackArgs, output: &Output) -> Result<(), CommandError> {
    let Target { audience, .. } = &args.target;
    // Needed only if deltas must be merged; what is gone back to was signed when it was built.
    let writer = args.sign.open_or_plain(&args.target)?;
    let store = writer.store();
    let report = runtime()?.block_on(async {
        let base = writer.base(audience).await?;
        let live = base.current().map(|current| current.generation);
        let live = live.ok_or_else(|| CommandError::NotPublished { audience: audience.clone() })?;
        let to = match args.to {
            Some(generation) if generation == live => {
                return Err(
                    UsageError::LiveAlready { audience: audience.clone(), generation }.into()
                );
            }
            Some(generation) => generation,
            None => {
                let older =
                    store.generations(audience).await?.into_iter().rfind(|found| *found < live);
                older.ok_or_else(|| CommandError::NoOlderGeneration {
                    audience: audience.clone(),
                    live,
                })?
            }
        };
        let (manifest, _) = store.manifest_of(audience, to).await?;
        if manifest.is_expired(now_unix_seconds()) {
            return Err(CommandError::Expired { audience: audience.clone(), generation: to });
        }
        let publication = writer.publish(base).await?;
        if args.lose_deltas {
            publication.roll_back_without_deltas(to).await?;
        } else {
            publication.roll_back(to).await.map_err(explained)?;
        }
        Ok::<_, CommandError>(RollbackReport {
            audience: audience.as_str().to_owned(),
            generation: to,
            previous_generation: live,
        })
    })?;
    output.report(&report, |report, out| {
        let RollbackReport { audience, generation, previous_generation } = report;
        writeln!(out, "{audience}: generation {generation} is live, it was {previous_generation}")
    })
}
