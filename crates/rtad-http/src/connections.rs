//! Connections of one runtime: requests, idle timeout and shutdown.
//!
//! The idle timeout runs until a request has arrived with its whole head, so it also limits slow
//! heads. Each runtime inspects its connections four times per timeout.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::TcpStream as StdStream;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use socket2::TcpKeepalive;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tower_service::Service;

use crate::connection::{Connection, END, END_AFTER_REQUEST};
use crate::phase::{Phase, closing};
use crate::stream::ClientStream;

/// Inspections of all connections per idle timeout.
const INSPECTIONS: u32 = 4;

/// Size limit of a request's head, and of a read, in bytes. Each connection may keep a buffer of
/// this size, so larger reads, which bodies of batches would profit from, are given up.
const MAX_BUFFER_BYTES: usize = 16 << 10;

/// A service that answers the requests of a connection.
pub trait RequestService: Send + Sync + 'static {
    /// The body of the answers.
    type Body: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;

    /// Answers a request.
    fn answer(
        &self,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}

/// Adapts a tower service, such as an [`axum::Router`]. It is called without
/// `poll_ready`, so it must always be ready.
#[derive(Debug, Clone)]
pub struct RouterService<S>(pub S);

impl<S, B> RequestService for RouterService<S>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    type Body = B;

    async fn answer(&self, request: Request<Incoming>) -> Response<B> {
        let Ok(answer) = self.0.clone().call(request).await;
        answer
    }
}

/// A connection in the idle watch: the requests answered at the last inspection, and the number of
/// consecutive inspections that found it idle.
#[derive(Debug)]
struct Watched {
    connection: Weak<Connection>,
    answered: u64,
    idle_inspections: u32,
}

/// Serves the connections of one runtime.
#[derive(Debug)]
pub struct Connections<S> {
    service: S,
    idle_timeout: Duration,
    phase: watch::Receiver<Phase>,
    open: Mutex<Vec<Watched>>,
}

impl<S> Connections<S> {
    /// Answers requests by `service`. Closes connections that are idle for `idle_timeout` to 1.25
    /// times `idle_timeout`, and all connections in the closing phase.
    pub fn new(service: S, idle_timeout: Duration, phase: watch::Receiver<Phase>) -> Self {
        Self {
            service,
            idle_timeout,
            phase,
            open: Mutex::default(),
        }
    }

    /// Closes idle connections, and all of them in the closing phase. Runs in its own task until
    /// the runtime ends. One timer for all connections: hyper would set one per request.
    pub async fn watch(self: Arc<Self>) {
        let (mut phase, mut is_closing) = (self.phase.clone(), false);
        loop {
            tokio::select! {
                () = closing(&mut phase), if !is_closing => is_closing = true,
                () = tokio::time::sleep(self.idle_timeout / INSPECTIONS) => {}
            }
            self.open
                .lock()
                .retain_mut(|watched| inspect(watched, is_closing));
        }
    }

    /// Closes all connections, each after the request that it is answering or has sent.
    pub(crate) fn end_after_request(&self) {
        for connection in self
            .open
            .lock()
            .iter()
            .filter_map(|watched| watched.connection.upgrade())
        {
            connection.give_order(END_AFTER_REQUEST);
        }
    }

    /// Adds a connection to the watch. Removes ended ones before the list grows.
    fn add(&self, watched: Watched) {
        let mut open = self.open.lock();
        if open.len() == open.capacity() {
            open.retain(|watched| watched.connection.strong_count() > 0);
            let additional = open.len().max(16);
            open.reserve(additional);
        }
        open.push(watched);
    }

    fn prepare(&self, stream: StdStream) -> io::Result<TcpStream> {
        stream.set_nodelay(true)?;
        let socket = socket2::SockRef::from(&stream);
        // Releases the permit of a peer that vanished or does not read its answers. Best effort:
        // the idle timeout also closes such a connection, unless an answer is stuck.
        #[cfg(target_os = "linux")]
        let _ = socket.set_tcp_user_timeout(Some(self.idle_timeout));
        let _ = socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(self.idle_timeout));
        stream.set_nonblocking(true)?;
        TcpStream::from_std(stream)
    }
}

/// Inspects a connection; false if it has ended.
fn inspect(watched: &mut Watched, is_closing: bool) -> bool {
    let Some(connection) = watched.connection.upgrade() else {
        return false;
    };
    match connection.answered_if_idle() {
        Some(answered) if answered == watched.answered => watched.idle_inspections += 1,
        answered => {
            watched.idle_inspections = 0;
            watched.answered = answered.unwrap_or(u64::MAX);
        }
    }
    if watched.idle_inspections >= INSPECTIONS {
        connection.give_order(END);
    } else if is_closing {
        connection.give_order(END_AFTER_REQUEST);
    }
    true
}

impl<S: RequestService> Connections<S> {
    /// Serves one connection until it ends, then drops `permit`.
    pub async fn serve<P>(self: Arc<Self>, stream: StdStream, permit: P) {
        let Ok(stream) = self.prepare(stream) else {
            return;
        };
        let connection = Arc::new(Connection::default());
        // Differs from any real count, so the first inspection counts as activity.
        let answered = u64::MAX;
        let weak = Arc::downgrade(&connection);
        self.add(Watched {
            connection: weak,
            answered,
            idle_inspections: 0,
        });
        if *self.phase.borrow() >= Phase::Closing {
            // Accepted after `watch` gave the order to all others.
            connection.give_order(END_AFTER_REQUEST);
        }
        let service = service_fn(|request: Request<Incoming>| {
            Connection::count(&connection.started);
            let connection = &connection;
            self.service.answer(request).map(|answer| {
                Connection::count(&connection.answered);
                Ok::<_, Infallible>(answer)
            })
        });
        let stream = ClientStream::new(stream);
        let mut http = http1::Builder::new()
            .max_buf_size(MAX_BUFFER_BYTES)
            // Answers are small: one copy costs less than a vectored write of two buffers.
            .writev(false)
            // No client needs the date.
            .auto_date_header(false)
            // The idle watch bounds the head.
            .header_read_timeout(None)
            // A client that has sent its request may close its side and await the answer.
            .half_close(true)
            .serve_connection(TokioIo::new(stream), service);
        connection.drive(&mut http).await;
        http.into_parts().io.into_inner().close().await;
        drop(permit);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener as StdListener;

    use axum::Router;
    use axum::routing::get;

    use super::*;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: rtad\r\n\r\n";

    fn pair() -> (StdStream, StdStream) {
        let listener = StdListener::bind("127.0.0.1:0").unwrap();
        let client = StdStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    fn connections(phase: watch::Receiver<Phase>) -> Arc<Connections<RouterService<Router>>> {
        let router = Router::new().route("/", get(async || "yes"));
        Arc::new(Connections::new(
            RouterService(router),
            Duration::from_secs(75),
            phase,
        ))
    }

    #[tokio::test]
    async fn request_sent_before_shutdown_is_answered() {
        let (_phase, phases) = watch::channel(Phase::Closing);
        let connections = connections(phases);
        for has_request in [true, false] {
            let (mut client, server) = pair();
            if has_request {
                client.write_all(REQUEST).unwrap();
            }
            Arc::clone(&connections).serve(server, ()).await;
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            let is_answered = answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("yes");
            assert_eq!(is_answered, has_request, "{answer}");
        }
    }

    #[tokio::test]
    async fn incomplete_head_does_not_hold_a_shutdown() {
        let (_phase, phases) = watch::channel(Phase::Closing);
        let (mut client, server) = pair();
        client.write_all(&REQUEST[..20]).unwrap();
        let served = connections(phases).serve(server, ());
        tokio::time::timeout(Duration::from_secs(30), served)
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn ended_connections_are_removed_from_the_watch() {
        let (_phase, phases) = watch::channel(Phase::Serving);
        let connections = connections(phases);
        for _ in 0..200 {
            let (client, server) = pair();
            drop(client);
            Arc::clone(&connections).serve(server, ()).await;
        }
        assert!(
            connections.open.lock().capacity() < 64,
            "{}",
            connections.open.lock().capacity()
        );
    }
}
