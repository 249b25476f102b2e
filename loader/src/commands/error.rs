//! Errors that several commands have.

use indicatif::HumanCount;

use rtad_cli::command_error::CommandError;
use rtad_cli::exit::{CommandFailure, ExitStatus};
use rtad_core::filter::SizingError;
use rtad_core::snapshot::AudienceName;

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
    #[error(
        "audience {audience}: generation {generation} has expired, so no pod would load it; \
build a new one, or roll back to one that has not expired"
    )]
    Expired {
        audience: AudienceName,
        generation: u64,
    },
}

impl CommonError {
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
            Self::Fpr(_) => ExitStatus::Usage,
            Self::Empty { .. } => ExitStatus::BadInput,
            Self::NotPublished { .. } => ExitStatus::Store,
            Self::Expired { .. } => ExitStatus::VerificationFailed,
        }
    }
}
