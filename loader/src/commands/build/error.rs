//! Errors of a build, and the failure whose completed work is kept.

use std::error::Error;
use std::fmt;
use std::io;

use rtad_cli::command_error::CommandError;
use rtad_cli::exit::{CommandFailure, ExitStatus};
use rtad_core::snapshot::{AudienceName, ManifestError};

/// A build that cannot begin, continue or be published.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error(
        "the chunks give an invalid manifest; nothing was published; a build without --resume \
         starts over"
    )]
    InvalidManifest(#[source] ManifestError),
    #[error(
        "audience {audience} has ribbon filters, to which no key can be added: run a full build, \
         which includes the deltas, or stay with deltas until then; block512 can be compacted"
    )]
    CompactRibbon { audience: AudienceName },
    #[error(
        "--expires: audience {audience}: expected an end after the live generation was built, at \
         {created} by a clock that is ahead of this one, found {end}; give a longer time, or run a \
         full build"
    )]
    ExpiresEarly {
        audience: AudienceName,
        created: String,
        end: String,
    },
    #[error("--memory: more than the system has")]
    NoMemory { source: io::Error },
    #[error(
        "spill directory {dir}: holds the files of an interrupted build; continue it with \
         --resume, or remove the files to start over"
    )]
    Interrupted { dir: String },
    #[error(
        "spill directory {dir}: belongs to another build: {what}; remove its files to start \
        over"
    )]
    OtherBuild { dir: String, what: String },
}

impl CommandFailure for BuildError {
    fn exit(&self) -> ExitStatus {
        match self {
            Self::InvalidManifest(_) => ExitStatus::Unexpected,
            _ => ExitStatus::Usage,
        }
    }

    fn is_resumable(&self) -> bool {
        matches!(self, Self::NoMemory { .. })
    }
}

/// A failed build that `--resume` continues.
#[derive(Debug)]
pub struct Resumable {
    pub(super) dir: String,
    pub(super) cause: CommandError,
}

impl fmt::Display for Resumable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dir = &self.dir;
        write!(
            f,
            "completed work is kept in {dir}; the same command with --resume continues it"
        )
    }
}

impl Error for Resumable {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.cause)
    }
}

impl CommandFailure for Resumable {
    fn exit(&self) -> ExitStatus {
        self.cause.exit()
    }
}
