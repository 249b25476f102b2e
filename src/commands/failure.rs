//! Errors of a command, and their exit codes.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use rtad::config::ConfigError;
use rtad::offline::OfflineError;
use rtad::replay::ReplayError;
use rtad::serve::StartError;
use rtad_core::error_chain::error_chain;
use rtad_core::filter::SizingError;
use rtad_store::StoreError;

/// An error of a command.
#[derive(Debug, thiserror::Error)]
pub enum CommandFailure {
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Offline(#[from] OfflineError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Demo(#[from] DemoError),
    #[error(transparent)]
    Init(#[from] InitError),
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// More changes than are accepted.
    #[error("{0}")]
    Changed(String),
    #[error("could not start")]
    Io(#[from] std::io::Error),
}

/// An error while writing a first config.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    #[error("{}: exists already; give another name, or remove it", .0.display())]
    Exists(PathBuf),
    #[error("no answer from the terminal")]
    Unanswered(#[source] std::io::Error),
    #[error("could not write {}", file.display())]
    Write {
        file: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

/// An error while preparing the demo.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    #[error("could not create the demo directory {}", dir.display())]
    Directory {
        dir: PathBuf,
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
    pub fn report(&self) -> ExitCode {
        let mut stderr = std::io::stderr().lock();
        for line in error_chain(self).lines() {
            let _ = writeln!(stderr, "error: {line}");
        }
        ExitCode::from(match self {
            Self::Usage(_) | Self::Config(_) => 2,
            Self::Offline(error) => error.exit_code(),
            Self::Changed(_) => 3,
            Self::Start(_) | Self::Demo(_) | Self::Init(_) | Self::Io(_) | Self::Replay(_) => 1,
        })
    }
}
