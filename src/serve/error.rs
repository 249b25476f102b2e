//! Errors of the start.

use rtad_cli::exit::{CommandFailure, ExitStatus};
use rtad_http::listener::ListenError;
use rtad_store::StoreError;

/// A failed start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// An address cannot be bound.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The kernel gave no thread, or no event queue.
    #[error("could not start threads")]
    Threads(#[source] std::io::Error),
    /// The directory of the decision log cannot be used.
    #[error("could not start the decision log")]
    Log(#[source] std::io::Error),
    /// The store cannot be used at all.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl CommandFailure for StartError {
    fn exit(&self) -> ExitStatus {
        ExitStatus::Unexpected
    }
}
