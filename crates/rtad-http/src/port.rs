//! Port: a listener served by the current runtime, for ports without a thread per core.

use std::io;
use std::net::TcpListener as StdListener;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::connections::{Connections, RequestService};
use crate::listener::accept;
use crate::phase::Phase;

/// Limits of a port.
#[derive(Debug, Clone, Copy)]
pub struct PortLimits {
    /// Highest number of open connections; further ones get 503 at once.
    pub max_connections: usize,
    /// Whether a connection over the limit closes those without a whole request, so that the next
    /// one is accepted. For ports of probes: idle connections must not fail them.
    pub frees_idle: bool,
    /// A connection without a request for this long is closed; also limits slow heads.
    pub idle_timeout: Duration,
}

/// Serves a port until the phase is closing and the last connection has ended.
///
/// # Errors
///
/// The kernel's, if the listener cannot be polled.
pub async fn serve(
    listener: StdListener,
    service: impl RequestService,
    limits: PortLimits,
    phase: watch::Receiver<Phase>,
) -> io::Result<()> {
    let connections = Connections::new(service, limits.idle_timeout, phase.clone());
    let connections = Arc::new(connections);
    let watch = tokio::spawn(Arc::clone(&connections).watch());
    let permits = Arc::new(Semaphore::new(limits.max_connections));
    let admit = || {
        let permit = Arc::clone(&permits).try_acquire_owned().ok();
        if permit.is_none() && limits.frees_idle {
            connections.end_after_request();
        }
        permit
    };
    let mut open = JoinSet::new();
    let assign = |stream, permit| {
        while open.try_join_next().is_some() {}
        open.spawn(Arc::clone(&connections).serve(stream, permit));
    };
    let accepted = accept(listener, phase, admit, assign).await;
    while open.join_next().await.is_some() {}
    watch.abort();
    accepted
}
