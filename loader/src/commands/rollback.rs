//! `rollback` command: makes an older generation live again.

use clap::Args;
use serde::Serialize;

use rtad_cli::command_error::CommandError;
use rtad_cli::exit::{CommandFailure, ExitStatus};
use rtad_cli::{SignArgs, TrustArgs, UnsignedArgs};
use rtad_core::clock::now_unix_seconds;
use rtad_core::snapshot::AudienceName;
use rtad_store::StoreError;

use super::context::{Output, Target, runtime};
use super::error::CommonError;
use crate::interrupts;

/// Make an older generation live again; by default the one that was live before the live
/// generation was published.
#[derive(Debug, Args)]
pub struct RollbackArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    trust: TrustArgs,
    #[command(flatten)]
    sign: SignArgs,
    #[command(flatten)]
    unsigned: UnsignedArgs,
    /// Roll back even if a later manifest is unreadable and the deltas merged into that generation
    /// are therefore unknown. Those deltas are lost, including removals. Tombstones are kept
    #[arg(long)]
    lose_deltas: bool,
    /// Generation to make live; a newer one undoes a rollback
    #[arg(long, value_name = "G")]
    to: Option<u64>,
}

#[derive(Debug, thiserror::Error)]
enum RollbackError {
    #[error("audience {audience}: generation {generation} is already live")]
    LiveAlready {
        audience: AudienceName,
        generation: u64,
    },
    #[error(
        "audience {audience}: the store has no generation {generation}; it has {}",
        kept.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
    )]
    NoGeneration {
        audience: AudienceName,
        generation: u64,
        kept: Vec<u64>,
    },
    #[error(
        "audience {audience}: the store has no generation that was live before {live}; --to makes \
         another one live"
    )]
    NoOlderGeneration { audience: AudienceName, live: u64 },
    #[error(
        "audience {audience}: generation {generation} has no signature, but the live one, {live}, \
         has: pods with public keys would refuse it and keep {live}; nothing was changed; \
         --allow-unsigned rolls back nevertheless"
    )]
    Unsigned {
        audience: AudienceName,
        generation: u64,
        live: u64,
    },
    #[error(
        "the manifest of a later generation is unreadable, so its merged deltas are unknown; \
         nothing was changed; --lose-deltas rolls back without them"
    )]
    LaterManifest(#[source] StoreError),
    #[error(
        "a delta since that generation is missing or damaged; nothing was changed; --lose-deltas \
         rolls back without those that are merged into a later generation"
    )]
    LaterDelta(#[source] StoreError),
}

impl CommandFailure for RollbackError {
    fn exit(&self) -> ExitStatus {
        match self {
            Self::LiveAlready { .. } => ExitStatus::Usage,
            Self::Unsigned { .. } => ExitStatus::VerificationFailed,
            Self::NoGeneration { .. }
            | Self::NoOlderGeneration { .. }
            | Self::LaterManifest(_)
            | Self::LaterDelta(_) => ExitStatus::Store,
        }
    }
}

#[derive(Debug, Serialize)]
struct RollbackReport {
    audience: String,
    generation: u64,
    previous_generation: u64,
    signed: bool,
}

/// Maps errors of manifests to those of later generations: the target's manifest was read before.
fn explain(error: StoreError) -> CommandError {
    match &error {
        StoreError::NotFound { path }
        | StoreError::Manifest { path, .. }
        | StoreError::Signature { path, .. }
            if path.contains("/manifests/") =>
        {
            RollbackError::LaterManifest(error).into()
        }
        StoreError::NotFound { path } | StoreError::Delta { path, .. }
            if path.contains("/deltas/") =>
        {
            RollbackError::LaterDelta(error).into()
        }
        _ => error.into(),
    }
}

pub fn run(args: RollbackArgs, output: &Output) -> Result<(), CommandError> {
    let Target { audience, .. } = &args.target;
    // A signature is needed only to merge deltas; the target's manifest was signed at its build.
    let store = args.trust.applied_to(args.target.open()?)?;
    let allow_unsigned = args.unsigned.allow_unsigned;
    let writer = args.sign.writer_or_plain(store, allow_unsigned)?;
    let store = writer.store();
    let report = runtime()?.block_on(async {
        let base = writer.base(audience).await?;
        let live = base.current().map(|current| current.generation);
        let live = live.ok_or_else(|| CommonError::not_published(audience))?;
        let to = match args.to {
            Some(generation) if generation == live => {
                return Err(RollbackError::LiveAlready {
                    audience: audience.clone(),
                    generation,
                }
                .into());
            }
            Some(generation) => generation,
            None => {
                let older = store.generation_before(audience, live).await?;
                older.ok_or_else(|| RollbackError::NoOlderGeneration {
                    audience: audience.clone(),
                    live,
                })?
            }
        };
        let manifest = match store.manifest_of(audience, to).await {
            Err(StoreError::NotFound { .. }) => {
                return Err(RollbackError::NoGeneration {
                    audience: audience.clone(),
                    generation: to,
                    kept: store.generations(audience).await?,
                }
                .into());
            }
            manifest => manifest?.0,
        };
        if manifest.is_expired(now_unix_seconds()) {
            return Err(CommonError::Expired {
                audience: audience.clone(),
                generation: to,
            }
            .into());
        }
        let signed = store.has_signature(audience, to).await?;
        if !signed && !allow_unsigned && store.has_signature(audience, live).await? {
            let (audience, generation) = (audience.clone(), to);
            return Err(RollbackError::Unsigned {
                audience,
                generation,
                live,
            }
            .into());
        }
        let publication = writer.publish(base).await?;
        interrupts::begin_publish();
        if args.lose_deltas {
            publication.roll_back_without_deltas(to).await?;
        } else {
            publication.roll_back(to).await.map_err(explain)?;
        }
        Ok::<_, CommandError>(RollbackReport {
            audience: audience.as_str().to_owned(),
            generation: to,
            previous_generation: live,
            signed,
        })
    })?;
    let headline = format!(
        "{audience}: generation {} is live, replacing {}",
        report.generation, report.previous_generation
    );
    output.report(&headline, &report)
}
