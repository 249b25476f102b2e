//! Port: a listener served by the current runtime, for ports without a thread per core.

use std::io;
use std::net::TcpListener as StdListener;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::connections::{Connections, RequestService};
use crate::listener::{Acceptor, refuse};
use crate::phase::Phase;

/// Limits of a port.
#[derive(Debug, Clone, Copy)]
pub struct PortLimits {
    /// Highest number of open connections; further ones get 503 at once.
    pub max_connections: usize,
    /// Whether a connection over the limit drains the others, so that the next one is accepted. For
    /// ports of probes: idle connections must not fail them.
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
    let service = Arc::new(service);
    let mut acceptor = Acceptor::new(listener, phase)?;
    let permits = Arc::new(Semaphore::new(limits.max_connections));
    let mut connections = Connections::new(Arc::clone(&service), limits.idle_timeout);
    let mut draining = JoinSet::new();

    loop {
        let accepted = tokio::select! {
            accepted = acceptor.accept() => accepted,
            _ = connections.tend() => continue,
        };
        let Some(stream) = accepted else { break };
        if let Ok(permit) = Arc::clone(&permits).try_acquire_owned() {
            connections.open(stream, permit);
            continue;
        }

        refuse(&stream);
        if limits.frees_idle && !connections.is_empty() {
            let next = Connections::new(Arc::clone(&service), limits.idle_timeout);
            draining.spawn(std::mem::replace(&mut connections, next).drain());
        }
        while draining.try_join_next().is_some() {}
    }

    draining.spawn(connections.drain());
    while draining.join_next().await.is_some() {}
    Ok(())
}
