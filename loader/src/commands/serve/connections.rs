//! Sockets and connections: limits that refuse at once, a time-out for heads and idle connections, and an end in two steps.
//!
//! As the service does it, on one runtime. hyper's header time-out, which `axum::serve` never arms, starts when a connection
//! begins to wait for a request, so it is the keep-alive idle time-out too.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

const IDLE_TIMEOUT: Duration = Duration::from_secs(75);
/// Told to a connection over the limit, so that its end is no mystery.
const REFUSAL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// Serves a port until `closing` says `true`, and then until its last connection has ended.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    max_connections: usize,
    mut closing: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(max_connections));
    let mut open = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = said(&mut closing) => break,
            accepted = listener.accept() => accepted,
        };
        while open.try_join_next().is_some() {}
        match (accepted, Arc::clone(&places).try_acquire_owned()) {
            (Ok((stream, _)), Ok(place)) => {
                let (router, closing) = (router.clone(), closing.clone());
                open.spawn(async move {
                    connection(stream, router, closing).await;
                    drop(place);
                });
            }
            (Ok((stream, _)), Err(_)) => {
                let _ = stream.try_write(REFUSAL);
            }
            // Out of file descriptors or memory, or a client that was gone at once: nothing to do but let some be freed.
            (Err(error), _) => {
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(listener);
    while open.join_next().await.is_some() {}
}

async fn said(closing: &mut watch::Receiver<bool>) {
    if closing.wait_for(|closing| *closing).await.is_err() {
        std::future::pending().await
    }
}

async fn connection(stream: TcpStream, router: Router, mut closing: watch::Receiver<bool>) {
    let _ = stream.set_nodelay(true);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIMEOUT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    // How a connection ends is its client's business.
    tokio::select! {
        biased;
        _ = connection.as_mut() => {}
        () = said(&mut closing) => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}
