//! Phase of a port: serving or closing.

use tokio::sync::watch;

/// The state of a port's shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Connections are accepted and kept.
    Serving,
    /// No connections are accepted; idle ones are closed, busy ones after their request.
    Closing,
}

/// Waits until the phase is [`Phase::Closing`]; forever if the sender was dropped.
pub async fn closing(phase: &mut watch::Receiver<Phase>) {
    if phase
        .wait_for(|phase| *phase >= Phase::Closing)
        .await
        .is_err()
    {
        std::future::pending().await
    }
}

/// A phase that never changes, for a port served until the process ends.
pub fn always_serving() -> watch::Receiver<Phase> {
    watch::channel(Phase::Serving).1
}
