//! Errors of a command, and their exit codes.

use std::io::Write as _;
use std::process::ExitCode;

use rtad::config::ConfigError;
use rtad::replay::ReplayError;
use rtad::serve::StartError;
use rtad_core::error_chain::error_chain;
use rtad_core::filter::SizingError;
use rtad_store::StoreError;

/// An error of a command.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandFailure {
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Demo(#[from] DemoError),
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// More changes than are accepted.
    #[error("{0}")]
    Changed(String),
    #[error("could not start")]
    Io(#[from] std::io::Error),
}

/// An error while preparing the demo.
#[derive(Debug, thiserror::Error)]
pub(super) enum DemoError {
    #[error("could not create the demo directory {}", dir.display())]
    Directory {
        dir: std::path::PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Sizing(#[from] SizingError),
}

impl CommandFailure {
    /// Prints the error and its causes; returns the exit code.
    pub(super) fn report(&self) -> ExitCode {
        let mut stderr = std::io::stderr().lock();
        for line in error_chain(self).lines() {
            let _ = writeln!(stderr, "error: {line}");
        }
        ExitCode::from(match self {
            Self::Usage(_) | Self::Config(_) => 2,
            Self::Changed(_) => 3,
            Self::Start(_) | Self::Demo(_) | Self::Io(_) | Self::Replay(_) => 1,
        })
    }
}
