//! Errors of a build.

use std::io;

use rtad_cli::exit::{CommandFailure, ExitStatus};
use rtad_core::snapshot::{AudienceName, ManifestError};

/// A build that cannot begin or be published.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("the chunks give an invalid manifest; nothing was published")]
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
}

impl CommandFailure for BuildError {
    fn exit(&self) -> ExitStatus {
        match self {
            Self::InvalidManifest(_) => ExitStatus::Unexpected,
            _ => ExitStatus::Usage,
        }
    }
}
