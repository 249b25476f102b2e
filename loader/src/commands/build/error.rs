//! Errors of a build.

use std::io;

use rtad_cli::exit::{CommandFailure, ExitStatus};
use rtad_core::snapshot::ManifestError;

/// A build that cannot begin or be published.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("the chunks give an invalid manifest; nothing was published")]
    InvalidManifest(#[source] ManifestError),
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
