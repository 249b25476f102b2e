//! Errors of the start.

use std::net::SocketAddr;

use rtad_cli::exit::{CommandFailure, ExitStatus};
use rtad_store::StoreError;

/// A failed start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The address cannot be bound.
    #[error("could not listen on {key} = {address}")]
    Listen {
        /// The config's key.
        key: &'static str,
        /// The address.
        address: SocketAddr,
        /// The kernel's reason.
        #[source]
        source: std::io::Error,
    },
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
