//! Errors that several commands have.

use std::io;
use std::path::Path;

use indicatif::HumanCount;

use rtad_cli::command_error::CommandError;
use rtad_cli::exit::{CommandFailure, ExitStatus};
use rtad_core::filter::SizingError;
use rtad_core::snapshot::AudienceName;

/// An error that several commands have.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommonError {
    #[error("{flag} {path}: could not write it")]
    WriteFile {
        flag: &'static str,
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("--fpr")]
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
    Expired { audience: AudienceName, generation: u64 },
}

impl CommonError {
    /// The error of an audience without a live generation.
    pub(super) fn not_published(audience: &AudienceName) -> CommandError {
        Self::NotPublished { audience: audience.clone() }.into()
    }

    /// The error of writing the file of a flag.
    pub(super) fn write_file(flag: &'static str, path: &Path, source: io::Error) -> CommandError {
        Self::WriteFile { flag, path: path.display().to_string(), source }.into()
    }
}

impl CommandFailure for CommonError {
    fn exit(&self) -> ExitStatus {
        match self {
            Self::WriteFile { .. } => ExitStatus::Unexpected,
            Self::Fpr(_) => ExitStatus::Usage,
            Self::Empty { .. } => ExitStatus::BadInput,
            Self::NotPublished { .. } => ExitStatus::Store,
            Self::Expired { .. } => ExitStatus::VerificationFailed,
        }
    }
}
