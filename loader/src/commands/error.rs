//! Errors that several commands have.

use indicatif::HumanCount;

use rtad_cli::command_error::CommandError;
use rtad_cli::exit::{CommandFailure, ExitStatus};
use rtad_core::filter::SizingError;
use rtad_core::snapshot::{AudienceName, Current};
use rtad_store::Store;

/// An error that several commands have.
#[derive(Debug, thiserror::Error)]
pub enum CommonError {
    #[error("--filter, --fpr")]
    Fpr(#[source] SizingError),
    #[error(
        "no usable id in {} rows; nothing was published; \
         --allow-empty publishes an audience without devices",
        HumanCount(*rows)
    )]
    Empty { rows: u64 },
    #[error("audience {audience}: no generation is published")]
    NotPublished { audience: AudienceName },
    #[error("audience {audience}: generation {generation} is not kept; {kept}")]
    NotKept {
        audience: AudienceName,
        generation: u64,
        kept: String,
    },
    #[error(
        "audience {audience}: generation {generation} has expired, so no pod would load it; \
build a new one, or roll back to one that has not expired"
    )]
    Expired {
        audience: AudienceName,
        generation: u64,
    },
    #[error(
        "audience {audience}: generation {generation} is from window {window}, whose writer would \
         replace the change; nothing was written; use another name, or delete the audience first, \
         by DELETE /v1/audiences/{audience} of a writer whose config does not name it; only remove \
         --tombstone and append --lift-tombstone change it"
    )]
    FollowsWindow {
        audience: AudienceName,
        generation: u64,
        window: AudienceName,
    },
}

impl CommonError {
    /// Refuses a change of an audience that follows a window. An unreadable manifest stops nothing:
    /// a build repairs it.
    pub async fn refuse_followed(
        store: &Store,
        audience: &AudienceName,
        current: &Current,
    ) -> Result<(), CommandError> {
        let Ok(manifest) = store.manifest(audience, &current.live_entry()).await else {
            return Ok(());
        };
        let Some(window) = manifest.from_window() else {
            return Ok(());
        };
        Err(Self::FollowsWindow {
            audience: audience.clone(),
            generation: current.generation,
            window: window.clone(),
        }
        .into())
    }

    /// The error of a generation that a record does not name.
    pub fn not_kept(audience: &AudienceName, current: &Current, generation: u64) -> Self {
        let kept = current.generations();
        let numbers: Vec<_> = kept.iter().map(|it| it.generation.to_string()).collect();
        let kept = match &*numbers.join(", ") {
            "" => "none is".to_owned(),
            numbers => format!("kept are {numbers}"),
        };
        Self::NotKept {
            audience: audience.clone(),
            generation,
            kept,
        }
    }

    /// The error of an audience without a live generation.
    pub fn not_published(audience: &AudienceName) -> CommandError {
        Self::NotPublished {
            audience: audience.clone(),
        }
        .into()
    }
}

impl CommandFailure for CommonError {
    fn exit(&self) -> ExitStatus {
        match self {
            Self::Fpr(_) | Self::FollowsWindow { .. } => ExitStatus::Usage,
            Self::Empty { .. } => ExitStatus::BadInput,
            Self::NotPublished { .. } | Self::NotKept { .. } => ExitStatus::Store,
            Self::Expired { .. } => ExitStatus::VerificationFailed,
        }
    }
}
