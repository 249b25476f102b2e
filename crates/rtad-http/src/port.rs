//! Port: a listener served by the current runtime, for ports without a thread per core.

use std::io;
use std::net::TcpListener as StdListener;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::budget::ByteBudget;
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
    /// Bytes of unanswered requests of all connections, beyond
    /// [`FREE_BYTES`](crate::budget::FREE_BYTES) each.
    pub max_buffered: usize,
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
    let budget = ByteBudget::new(limits.max_buffered);
    let connections = Connections::new(service, limits.idle_timeout, budget, phase.clone());
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

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};
    use std::time::Instant;

    use axum::Router;
    use axum::routing::get;

    use super::*;
    use crate::connections::Untimed;
    use crate::phase::always_serving;

    const REQUEST: &str = "GET / HTTP/1.1\r\nHost: rtad\r\n\r\n";

    fn started(frees_idle: bool) -> SocketAddr {
        let listener = StdListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let idle_timeout = Duration::from_secs(75);
        let limits =
            PortLimits { max_connections: 3, frees_idle, idle_timeout, max_buffered: 1 << 20 };
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let router = Untimed(Router::new().route("/", get(async || "yes")));
            runtime.unwrap().block_on(serve(listener, router, limits, always_serving()))
        });
        address
    }

    /// A connection that has sent this.
    fn sent(address: SocketAddr, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    }

    fn is_answered(address: SocketAddr) -> bool {
        let (mut stream, mut start) = (sent(address, REQUEST), [0; 15]);
        stream.read_exact(&mut start).is_ok() && start.starts_with(b"HTTP/1.1 200 OK")
    }

    #[test]
    fn idle_connections_make_room_for_probes() {
        for (frees_idle, expected) in [(true, true), (false, false)] {
            let address = started(frees_idle);
            let mut idle = sent(address, REQUEST);
            idle.read_exact(&mut [0; 15]).unwrap();
            let _held = [idle, sent(address, ""), sent(address, &REQUEST[..20])];
            assert!(!is_answered(address), "the port is full");
            let begun = Instant::now();
            let in_time = || begun.elapsed() < Duration::from_secs(3);
            while in_time() && !is_answered(address) {
                std::thread::sleep(Duration::from_millis(50));
            }
            assert_eq!(in_time(), expected);
        }
    }
}
