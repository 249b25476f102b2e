//! Connections of one runtime: requests, idle timeout and shutdown.
//!
//! The idle timeout runs until a request has arrived with its whole head, so it also limits slow
//! heads. Each runtime inspects its connections four times per timeout.

use std::convert::Infallible;
use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::net::TcpStream as StdStream;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use socket2::TcpKeepalive;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tower_service::Service;

use crate::phase::{Phase, closing};
use crate::timing::{ReadyAt, RequestTiming, TimestampWaker};

/// During shutdown, time for the first request of a connection that was just accepted.
const FIRST_REQUEST: Duration = Duration::from_millis(100);

/// Inspections of all connections per idle timeout.
const INSPECTIONS: u32 = 4;

/// Size limit of a request's head, in bytes.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// A request with its timing.
#[derive(Debug)]
pub struct TimedRequest {
    /// The request.
    pub request: Request<Incoming>,
    /// Start and queueing delay.
    pub timing: RequestTiming,
}

/// A tower service that answers the requests of a connection.
///
/// It is cloned for each request and called without `poll_ready`: it must always be ready, like an
/// [`axum::Router`].
pub trait RequestService:
    Service<TimedRequest, Response = Response<Self::Body>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + Sync
    + 'static
{
    /// The body of the answers.
    type Body: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;
}

impl<S, B> RequestService for S
where
    S: Service<TimedRequest, Response = Response<B>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    type Body = B;
}

/// Adapts a service of plain requests, such as an [`axum::Router`].
#[derive(Debug, Clone)]
pub struct Untimed<S>(pub S);

impl<S: Service<Request<Incoming>>> Service<TimedRequest> for Untimed<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, TimedRequest { request, .. }: TimedRequest) -> S::Future {
        self.0.call(request)
    }
}

/// State of one connection. Only the task that serves it writes the counters.
#[derive(Debug, Default)]
struct Connection {
    started: AtomicU64,
    answered: AtomicU64,
    order: AtomicU8,
    waker: AtomicWaker,
    ready_at: Arc<ReadyAt>,
}

/// Shutdown orders to a connection, the stronger one last.
const END_AFTER_REQUEST: u8 = 1;
const END: u8 = 2;

impl Connection {
    fn give_order(&self, order: u8) {
        if self.order.fetch_max(order, Ordering::Relaxed) < order {
            self.waker.wake();
        }
    }

    fn has_order(&self, order: u8) -> bool {
        self.order.load(Ordering::Relaxed) >= order
    }

    /// Polls the connection until it has ended (true), or until `stop` holds.
    async fn serve_until(&self, mut http: Pin<&mut impl Future>, stop: impl Fn() -> bool) -> bool {
        let mut waker: Option<(Waker, Waker)> = None;
        let mut known_order = 0;
        poll_fn(|context| {
            let task = context.waker();
            let order = self.order.load(Ordering::Relaxed);
            // A task nearly always keeps one waker; an order consumes the registered one.
            let is_known = waker.as_ref().is_some_and(|(of, _)| of.will_wake(task));
            if !is_known || order != known_order {
                self.waker.register(task);
                known_order = order;
            }
            if !is_known {
                let ready_at = Arc::clone(&self.ready_at);
                let timestamp = TimestampWaker { task: task.clone(), ready_at };
                waker = Some((task.clone(), Arc::new(timestamp).into()));
            }
            let waker = waker.as_ref().map_or(task, |(_, waker)| waker);
            // Poll before `stop`: a request that has arrived is answered.
            let polled = http.as_mut().poll(&mut Context::from_waker(waker));
            self.ready_at.reset();
            match polled {
                Poll::Ready(_) => Poll::Ready(true),
                Poll::Pending if stop() => Poll::Ready(false),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    /// Increments a counter. It has one writer, so no locked instruction is needed.
    fn count(counter: &AtomicU64) {
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Requests answered so far; `None` while one is being answered.
    fn answered_if_idle(&self) -> Option<u64> {
        let answered = self.answered.load(Ordering::Relaxed);
        (self.started.load(Ordering::Relaxed) == answered).then_some(answered)
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
        Self { service, idle_timeout, phase, open: Mutex::default() }
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
            self.open().retain_mut(|watched| inspect(watched, is_closing));
        }
    }

    /// Adds a connection to the watch. Removes ended ones before the list grows.
    fn add(&self, watched: Watched) {
        let mut open = self.open();
        if open.len() == open.capacity() {
            open.retain(|watched| watched.connection.strong_count() > 0);
            let additional = open.len().max(16);
            open.reserve(additional);
        }
        open.push(watched);
    }

    fn open(&self) -> MutexGuard<'_, Vec<Watched>> {
        self.open.lock().expect("no panic while locked")
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
    let Some(connection) = watched.connection.upgrade() else { return false };
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
        let Ok(stream) = self.prepare(stream) else { return };
        let connection = Arc::new(Connection::default());
        // Differs from any real count, so the first inspection counts as activity.
        let answered = u64::MAX;
        let weak = Arc::downgrade(&connection);
        self.add(Watched { connection: weak, answered, idle_inspections: 0 });
        if *self.phase.borrow() >= Phase::Closing {
            // Accepted after `watch` gave the order to all others.
            connection.give_order(END_AFTER_REQUEST);
        }
        let service = service_fn(|request| {
            Connection::count(&connection.started);
            let timing = connection.ready_at.start();
            let answer = self.service.clone().call(TimedRequest { request, timing });
            let connection = &connection;
            async move {
                let answer = answer.await;
                Connection::count(&connection.answered);
                answer
            }
        });
        let http = http1::Builder::new()
            .max_buf_size(MAX_HEAD_BYTES)
            // Answers are small: one copy costs less than a vectored write of two buffers.
            .writev(false)
            // No client needs the date.
            .auto_date_header(false)
            // The idle watch bounds the head.
            .header_read_timeout(None)
            .serve_connection(TokioIo::new(stream), service);
        let mut http = std::pin::pin!(http);
        // Resets and timeouts are caused by clients and not logged.
        let ended = || connection.has_order(END_AFTER_REQUEST);
        if connection.serve_until(http.as_mut(), ended).await {
            return;
        }
        if connection.has_order(END) && connection.answered_if_idle().is_some() {
            return;
        }
        // The first request of a connection that was just accepted may be in its socket: closing
        // now would reset it.
        let has_request = || connection.started.load(Ordering::Relaxed) > 0;
        let first = connection.serve_until(http.as_mut(), has_request);
        if let Ok(true) = timeout(FIRST_REQUEST, first).await {
            return;
        }
        http.as_mut().graceful_shutdown();
        let is_over = || connection.has_order(END) && connection.answered_if_idle().is_some();
        connection.serve_until(http.as_mut(), is_over).await;
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

    fn connections(phase: watch::Receiver<Phase>) -> Arc<Connections<Untimed<Router>>> {
        let router = Router::new().route("/", get(async || "yes"));
        Arc::new(Connections::new(Untimed(router), Duration::from_secs(75), phase))
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
    async fn stronger_order_arrives_after_a_weaker_one() {
        let connection = Arc::new(Connection::default());
        let served = tokio::spawn({
            let connection = Arc::clone(&connection);
            async move {
                let http = std::pin::pin!(std::future::pending::<()>());
                connection.serve_until(http, || connection.has_order(END)).await
            }
        });
        for order in [END_AFTER_REQUEST, END_AFTER_REQUEST, END] {
            tokio::task::yield_now().await;
            connection.give_order(order);
        }
        assert!(!timeout(Duration::from_secs(10), served).await.unwrap().unwrap());
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
        assert!(connections.open().capacity() < 64, "{}", connections.open().capacity());
    }
}
