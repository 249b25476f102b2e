//! `rollback` command: makes an older generation live again.

use clap::Args;
use serde::Serialize;

use rtad_cli::command_error::CommandError;
use rtad_cli::exit::{CommandFailure, ExitStatus};
use rtad_cli::{SignArgs, TrustArgs};
use rtad_core::clock::now_unix_seconds;
use rtad_core::snapshot::AudienceName;
use rtad_store::StoreError;

use super::context::{Output, Target, runtime};
use super::error::CommonError;
use crate::interrupts;

/// Make a kept generation live again; by default the one that was live before the live generation
/// was published. `list` shows those that are kept.
///
/// If a generation is staged, it is dropped instead: its pods go back to the live one. With --to,
/// it is dropped, too. After a rollback, a further one needs --to, so that a retry is safe.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct RollbackArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    trust: TrustArgs,
    #[command(flatten)]
    sign: SignArgs,
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
        "audience {audience}: the staged generation {dropped} was dropped before, and none is staged \
         now; to roll back the live generation {live}, name the other one with --to"
    )]
    DroppedAlready {
        audience: AudienceName,
        dropped: u64,
        live: u64,
    },
    #[error(
        "audience {audience}: generation {from} was rolled back before, and generation {live} is live; \
         to roll back further, name the generation with --to"
    )]
    RolledBackAlready {
        audience: AudienceName,
        from: u64,
        live: u64,
    },
    #[error(
        "audience {audience}: no generation is kept that was live before {live}; --to makes \
         another one live"
    )]
    NoOlderGeneration { audience: AudienceName, live: u64 },
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
            Self::LiveAlready { .. }
            | Self::DroppedAlready { .. }
            | Self::RolledBackAlready { .. } => ExitStatus::Usage,
            Self::NoOlderGeneration { .. } | Self::LaterManifest(_) | Self::LaterDelta(_) => {
                ExitStatus::Store
            }
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
        StoreError::NotFound { path } | StoreError::Manifest { path, .. }
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
    let store = args.trust.applied_to(args.target.open()?)?;
    let writer = args.sign.writer(store, &args.trust)?;
    let store = writer.store();
    let report = runtime()?.block_on(async {
        let base = writer.base(audience).await?;
        let Some(current) = base.current().cloned() else {
            return Err(CommonError::not_published(audience));
        };
        let live = current.generation;
        if let (None, Some(staged)) = (args.to, current.staged) {
            interrupts::begin_publish();
            writer.drop_stage(&base).await?;
            return Ok(RollbackReport {
                audience: audience.as_str().to_owned(),
                generation: live,
                previous_generation: staged.entry.generation,
                signed: writer.signs(),
            });
        }
        // Neither may be repeated by a retry, as after a lost answer: that would change the live
        // generation once more.
        if let (None, Some(from)) = (args.to, current.rolled_back_from) {
            let audience = audience.clone();
            let error = if current.entry(from).is_some() {
                RollbackError::RolledBackAlready {
                    audience,
                    from,
                    live,
                }
            } else {
                RollbackError::DroppedAlready {
                    audience,
                    dropped: from,
                    live,
                }
            };
            return Err(error.into());
        }
        let to = match args.to {
            Some(generation) if generation == live => {
                return Err(RollbackError::LiveAlready {
                    audience: audience.clone(),
                    generation,
                }
                .into());
            }
            Some(generation) => args.target.entry(&current, generation)?,
            None => {
                let older = store.generation_before(audience, &current, live).await?;
                older.ok_or_else(|| RollbackError::NoOlderGeneration {
                    audience: audience.clone(),
                    live,
                })?
            }
        };
        let generation = to.generation;
        let manifest = store.manifest(audience, &to).await?;
        if manifest.is_expired(now_unix_seconds()) {
            return Err(CommonError::Expired {
                audience: audience.clone(),
                generation,
            }
            .into());
        }

        let publication = writer.publish(base).await?;
        interrupts::begin_publish();
        if args.lose_deltas {
            publication.roll_back_without_deltas(generation).await?;
        } else {
            publication.roll_back(generation).await.map_err(explain)?;
        }
        Ok::<_, CommandError>(RollbackReport {
            audience: audience.as_str().to_owned(),
            generation,
            previous_generation: live,
            signed: writer.signs(),
        })
    })?;
    let headline = format!(
        "{audience}: generation {} is live, replacing {}",
        report.generation, report.previous_generation
    );
    output.report(&headline, &report)
}
