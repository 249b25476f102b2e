//! Connections of one runtime: requests, idle timeout and drain.
//!
//! The idle timeout runs until a request has arrived with its whole head, so it also limits slow
//! heads. All connections are inspected four times per timeout: hyper would set a timer per
//! request.
//!
//! hyper's graceful shutdown ends a connection after the request that it has begun to answer. It
//! would reset one whose first request is still in its socket, and wait for the rest of a head. So
//! a drain waits before the shutdown, and closes the connections that are left after it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::TcpStream as StdStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use socket2::TcpKeepalive;
use tokio::net::TcpStream;
use tokio::task::{AbortHandle, Id, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tower_service::Service;

use crate::stream::{ClientStream, MAX_LINGER};

/// Inspections of all connections per idle timeout.
const INSPECTIONS: u32 = 4;

/// Size limit of a request's head, and of a read, in bytes. Each connection may keep a buffer of
/// this size, so larger reads, which bodies of batches would profit from, are given up.
const MAX_BUFFER_BYTES: usize = 16 << 10;

/// Time in a drain for requests that are in the sockets of connections just accepted.
const FIRST_REQUEST: Duration = Duration::from_millis(100);
/// Time in a drain for heads that have begun to arrive. Longer than a last answer lingers.
const REST_OF_HEAD: Duration = Duration::from_secs(3);
const _: () = assert!(REST_OF_HEAD.as_secs() > MAX_LINGER.as_secs());

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

/// Adapts a tower service, such as an [`axum::Router`]. It is called without `poll_ready`, so it
/// must always be ready.
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

/// Requests begun and answered on a connection, in one number: it is odd while one is being
/// answered. Only the task of the connection writes it.
#[derive(Debug, Default)]
struct Progress(AtomicU64);

impl Progress {
    /// Counts the start or the answer of a request. There is one writer, so no locked instruction
    /// is needed.
    fn advance(&self) {
        self.0
            .store(self.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// The number while no request is being answered.
    fn if_idle(&self) -> Option<u64> {
        let progress = self.0.load(Ordering::Relaxed);
        progress.is_multiple_of(2).then_some(progress)
    }
}

/// An open connection: its progress at the last inspection, and the number of consecutive
/// inspections that found it idle.
#[derive(Debug)]
struct Watched {
    task: AbortHandle,
    progress: Arc<Progress>,
    seen: Option<u64>,
    idle_inspections: u32,
}

impl Watched {
    /// Closes the connection if it was idle for the whole timeout.
    fn inspect(&mut self) {
        let progress = self.progress.if_idle();
        if progress.is_some() && progress == self.seen {
            self.idle_inspections += 1;
        } else {
            self.idle_inspections = 0;
        }
        self.seen = progress;

        if self.idle_inspections >= INSPECTIONS {
            self.task.abort();
        }
    }
}

/// The connections of one runtime.
#[derive(Debug)]
pub struct Connections<S> {
    service: Arc<S>,
    idle_timeout: Duration,
    tasks: JoinSet<()>,
    watched: HashMap<Id, Watched>,
    next_inspection: Instant,
    graceful: GracefulShutdown,
}

impl<S: RequestService> Connections<S> {
    /// Answers requests by `service`. Closes connections that are idle for `idle_timeout` to 1.25
    /// times `idle_timeout`, while [`tend`](Self::tend) is called.
    pub fn new(service: Arc<S>, idle_timeout: Duration) -> Self {
        Self {
            service,
            idle_timeout,
            tasks: JoinSet::new(),
            watched: HashMap::new(),
            next_inspection: Instant::now() + idle_timeout / INSPECTIONS,
            graceful: GracefulShutdown::new(),
        }
    }

    /// Whether no connection is open.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Serves a connection in a task, then drops `permit`.
    pub fn open<P: Send + 'static>(&mut self, stream: StdStream, permit: P) {
        let progress = Arc::new(Progress::default());
        let served = serve(
            Arc::clone(&self.service),
            stream,
            self.idle_timeout,
            Arc::clone(&progress),
            self.graceful.watcher(),
        );

        let task = self.tasks.spawn(async move {
            served.await;
            drop(permit);
        });

        let watched = Watched {
            task,
            progress,
            seen: None,
            idle_inspections: 0,
        };

        self.watched.insert(watched.task.id(), watched);
    }

    /// Waits for the end of a connection or the next inspection, which closes idle ones. Returns
    /// the number of connections that have ended. Cancel safe.
    pub async fn tend(&mut self) -> usize {
        tokio::select! {
            Some(ended) = self.tasks.join_next_with_id() => {
                let id = match ended {
                    Ok((id, ())) => id,
                    Err(error) => error.id(),
                };
                self.watched.remove(&id);
                1
            }
            () = sleep_until(self.next_inspection) => {
                self.watched.values_mut().for_each(Watched::inspect);
                self.next_inspection = Instant::now() + self.idle_timeout / INSPECTIONS;
                0
            }
        }
    }

    /// Closes all connections, each after the request that it is answering or that has arrived.
    pub async fn drain(mut self) {
        if self.is_empty() {
            return;
        }

        sleep(FIRST_REQUEST).await;
        let ended = self.graceful.shutdown();
        if timeout(REST_OF_HEAD, ended).await.is_ok() {
            return;
        }

        // An incomplete head would hold the drain until the idle timeout.
        for watched in self.watched.values() {
            if watched.progress.if_idle().is_some() {
                watched.task.abort();
            }
        }
        while self.tasks.join_next().await.is_some() {}
    }
}

fn prepare(stream: StdStream, idle_timeout: Duration) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(&stream);
    // Releases the permit of a peer that vanished or does not read its answers. Best effort: the
    // idle timeout also closes such a connection.
    #[cfg(target_os = "linux")]
    let _ = socket.set_tcp_user_timeout(Some(idle_timeout));
    let _ = socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(idle_timeout));
    stream.set_nonblocking(true)?;
    TcpStream::from_std(stream)
}

/// Serves one connection until it ends.
async fn serve<S: RequestService>(
    service: Arc<S>,
    stream: StdStream,
    idle_timeout: Duration,
    progress: Arc<Progress>,
    watcher: Watcher,
) {
    let Ok(stream) = prepare(stream, idle_timeout) else {
        return;
    };
    let answer = service_fn(|request: Request<Incoming>| {
        progress.advance();
        let progress = &progress;
        service.answer(request).map(|answer| {
            progress.advance();
            Ok::<_, Infallible>(answer)
        })
    });

    let http = http1::Builder::new()
        .max_buf_size(MAX_BUFFER_BYTES)
        // Answers are small: one copy costs less than a vectored write of two buffers.
        .writev(false)
        // No client needs the date.
        .auto_date_header(false)
        // The inspections bound the head.
        .header_read_timeout(None)
        // A client that has sent its request may close its side and await the answer.
        .half_close(true)
        .serve_connection(TokioIo::new(ClientStream::new(stream)), answer);
    // Resets and timeouts are caused by clients and not logged.
    let _ = watcher.watch(http).await;
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

    fn connections(idle_timeout: Duration) -> Connections<RouterService<Router>> {
        let slow = async || {
            sleep(Duration::from_secs(1)).await;
            "slow"
        };
        let router = Router::new()
            .route("/", get(async || "yes"))
            .route("/slow", get(slow));
        Connections::new(Arc::new(RouterService(router)), idle_timeout)
    }

    fn read(mut client: StdStream) -> String {
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    #[tokio::test]
    async fn request_sent_before_drain_is_answered() {
        for has_request in [true, false] {
            let mut connections = connections(Duration::from_secs(75));
            let (mut client, server) = pair();
            if has_request {
                client.write_all(REQUEST).unwrap();
            }
            connections.open(server, ());
            connections.drain().await;
            let answer = read(client);
            let is_answered = answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("yes");
            assert_eq!(is_answered, has_request, "{answer}");
        }
    }

    #[tokio::test]
    async fn incomplete_head_does_not_hold_a_drain() {
        let mut connections = connections(Duration::from_secs(75));
        let (mut client, server) = pair();
        client.write_all(&REQUEST[..20]).unwrap();
        connections.open(server, ());
        timeout(Duration::from_secs(30), connections.drain())
            .await
            .unwrap();
        assert_eq!(read(client), "");
    }

    #[tokio::test]
    async fn idle_connections_are_closed_and_busy_ones_answered() {
        let mut connections = connections(Duration::from_millis(100));
        let (idle, server) = pair();
        connections.open(server, ());
        let (mut busy, server) = pair();
        let request = b"GET /slow HTTP/1.1\r\nHost: rtad\r\nConnection: close\r\n\r\n";
        busy.write_all(request).unwrap();
        connections.open(server, ());

        let started = Instant::now();
        while !connections.is_empty() {
            connections.tend().await;
        }
        assert!(started.elapsed() >= Duration::from_secs(1));
        assert!(connections.watched.is_empty());
        assert_eq!(read(idle), "");
        assert!(read(busy).ends_with("slow"));
    }
}
