//! Failure of a command: any of its errors, boxed; and the errors that several commands have.

use std::io;
use std::ops::Deref;
use std::path::Path;

use rtad_core::filter::SizingError;
use rtad_core::snapshot::AudienceName;

use crate::exit::{CommandFailure, ExitStatus};

/// A failed command.
#[derive(Debug)]
pub(crate) struct CommandError(Box<dyn CommandFailure>);

impl<E: CommandFailure> From<E> for CommandError {
    fn from(error: E) -> Self {
        Self(Box::new(error))
    }
}

impl CommandError {
    /// The error of writing to stdout.
    pub(super) fn output(error: io::Error) -> Self {
        CommonError::Output(error).into()
    }

    /// The error of starting the runtime, or of what it needs.
    pub(super) fn runtime(error: io::Error) -> Self {
        CommonError::Runtime(error).into()
    }

    /// The error of an audience without a live generation.
    pub(super) fn not_published(audience: &AudienceName) -> Self {
        CommonError::NotPublished { audience: audience.clone() }.into()
    }

    /// The error of writing the file of a flag.
    pub(super) fn write_file(flag: &'static str, path: &Path, source: io::Error) -> Self {
        CommonError::WriteFile { flag, path: path.display().to_string(), source }.into()
    }
}

impl Deref for CommandError {
    type Target = dyn CommandFailure;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

/// An error that several commands have.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommonError {
    #[error("{flag} {path}: could not write it")]
    WriteFile {
        flag: &'static str,
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("could not write to stdout")]
    Output(#[source] io::Error),
    #[error("could not start")]
    Runtime(#[source] io::Error),
    #[error("--fpr")]
    Fpr(#[source] SizingError),
    #[error(
        "no usable id in {rows} rows; nothing was published; \
         --allow-empty publishes an audience without devices"
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

impl CommandFailure for CommonError {
    fn exit(&self) -> ExitStatus {
        match self {
            // The reader closed the pipe, as in `rtad-loader synth … | head`.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitStatus::Ok,
            Self::WriteFile { .. } | Self::Output(_) | Self::Runtime(_) => ExitStatus::Unexpected,
            Self::Fpr(_) => ExitStatus::Usage,
            Self::Empty { .. } => ExitStatus::BadInput,
            Self::NotPublished { .. } => ExitStatus::Store,
            Self::Expired { .. } => ExitStatus::VerificationFailed,
        }
    }
}
