//! Connections as one runtime serves them: their requests, when they are idle, how they end.
//!
//! The idle time-out runs while a connection waits for a request, until that has come with its whole head: so it bounds a slow head
//! too. Each runtime looks at its connections every quarter of it.

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

use super::server::{Phase, closing};
use super::turn::{Noted, Noting, Turn};

/// One connection, as its runtime sees it. Only the task that serves it counts.
#[derive(Debug, Default)]
struct Connection {
    begun: AtomicU64,
    ended: AtomicU64,
    ordered: AtomicU8,
    waker: AtomicWaker,
    noted: Arc<Noted>,
}

/// What a connection was told to do, if anything.
const END_AFTER_REQUEST: u8 = 1;
const END: u8 = 2;

impl Connection {
    fn order(&self, order: u8) {
        if self.ordered.fetch_max(order, Ordering::Relaxed) < order {
            self.waker.wake();
        }
    }

    fn is_told(&self, order: u8) -> bool {
        self.ordered.load(Ordering::Relaxed) >= order
    }

    /// Serves until it has ended, which is true, or until `told`.
    async fn serve_until(&self, mut http: Pin<&mut impl Future>, told: impl Fn() -> bool) -> bool {
        let mut noting: Option<(Waker, Waker)> = None;
        let mut heard = 0;
        poll_fn(|context| {
            let task = context.waker();
            let ordered = self.ordered.load(Ordering::Relaxed);
            // A task has one waker for life, nearly; an order takes the one that it calls.
            let is_known = noting.as_ref().is_some_and(|(of, _)| of.will_wake(task));
            if !is_known || ordered != heard {
                self.waker.register(task);
                heard = ordered;
            }
            if !is_known {
                let noted = Arc::clone(&self.noted);
                noting = Some((task.clone(), Arc::new(Noting { task: task.clone(), noted }).into()));
            }
            let waker = noting.as_ref().map_or(task, |(_, waker)| waker);
            // It goes first: what has come is answered.
            let polled = http.as_mut().poll(&mut Context::from_waker(waker));
            self.noted.forget();
            match polled {
                Poll::Ready(_) => Poll::Ready(true),
                Poll::Pending if told() => Poll::Ready(false),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    /// Counts a request. There is one that does, so that no locked instruction is needed.
    fn count(counter: &AtomicU64) {
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Requests answered; `None` while one is being answered.
    fn idle_since(&self) -> Option<u64> {
        let ended = self.ended.load(Ordering::Relaxed);
        (self.begun.load(Ordering::Relaxed) == ended).then_some(ended)
    }
}

/// A connection as its runtime knows it: how many requests it had answered when it was last looked at, and for how many looks it
/// has been idle since.
#[derive(Debug)]
struct Watched {
    connection: Weak<Connection>,
    answered: u64,
    idle_looks: u32,
}

/// A process that ends waits so long for the first request of a connection that it has accepted.
const FIRST_REQUEST: Duration = Duration::from_millis(100);

/// So often within the idle time-out connections are looked at.
const LOOKS: u32 = 4;

/// Answers requests.
pub trait Handler: Clone + Send + Sync + 'static {
    /// What its answers carry.
    type Body: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;

    /// Answers one request.
    fn answer(
        &self,
        request: Request<Incoming>,
        turn: Turn,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}

/// Serves the connections it is given, in one runtime. A clone serves another's.
#[derive(Debug)]
pub struct Connections<H> {
    handler: H,
    idle_timeout: Duration,
    phase: watch::Receiver<Phase>,
    open: Arc<Mutex<Vec<Watched>>>,
}

impl<H: Clone> Clone for Connections<H> {
    fn clone(&self) -> Self {
        Self::new(self.handler.clone(), self.idle_timeout, self.phase.clone())
    }
}

impl<H> Connections<H> {
    /// Has their requests answered by `handler`; closes those that are idle for `idle_timeout`, or a quarter longer, and all
    /// when the phase says so.
    pub fn new(handler: H, idle_timeout: Duration, phase: watch::Receiver<Phase>) -> Self {
        Self { handler, idle_timeout, phase, open: Arc::default() }
    }

    /// Ends connections that are idle, and all of them once the phase says so; runs beside them for as long as there may be any.
    ///
    /// One timer for all: hyper's own is set anew for each request.
    pub async fn watch(self: Arc<Self>) {
        let (mut phase, mut is_closing) = (self.phase.clone(), false);
        loop {
            tokio::select! {
                () = closing(&mut phase), if !is_closing => is_closing = true,
                () = tokio::time::sleep(self.idle_timeout / LOOKS) => {}
            }
            self.open().retain_mut(|watched| {
                let Some(connection) = watched.connection.upgrade() else { return false };
                match connection.idle_since() {
                    Some(answered) if answered == watched.answered => watched.idle_looks += 1,
                    answered => {
                        watched.idle_looks = 0;
                        watched.answered = answered.unwrap_or(u64::MAX);
                    }
                }
                if watched.idle_looks >= LOOKS {
                    connection.order(END);
                } else if is_closing {
                    connection.order(END_AFTER_REQUEST);
                }
                true
            });
        }
    }

    /// Has one watched. Those that have ended make room first: until the next look there may be many.
    fn add(&self, watched: Watched) {
        let mut open = self.open();
        if open.len() == open.capacity() {
            open.retain(|watched| watched.connection.strong_count() > 0);
            let as_many_again = open.len().max(16);
            open.reserve(as_many_again);
        }
        open.push(watched);
    }

    fn open(&self) -> MutexGuard<'_, Vec<Watched>> {
        self.open.lock().expect("nothing panics under this lock")
    }

    fn prepare(&self, stream: StdStream) -> io::Result<TcpStream> {
        stream.set_nodelay(true)?;
        let socket = socket2::SockRef::from(&stream);
        // A peer that vanished, or that never reads its answers, must not keep its place for ever.
        // A kernel that refuses leaves such a peer to the idle time-out, which sees all but the stuck answer.
        #[cfg(target_os = "linux")]
        let _ = socket.set_tcp_user_timeout(Some(self.idle_timeout));
        let _ = socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(self.idle_timeout));
        stream.set_nonblocking(true)?;
        TcpStream::from_std(stream)
    }
}

impl<H: Handler> Connections<H> {
    /// Serves one connection to its end.
    pub async fn serve<P>(self: Arc<Self>, stream: StdStream, place: P) {
        let Ok(stream) = self.prepare(stream) else { return };
        let connection = Arc::new(Connection::default());
        // Never so many: the first look finds that it has changed.
        self.add(Watched { connection: Arc::downgrade(&connection), answered: u64::MAX, idle_looks: 0 });
        if *self.phase.borrow() >= Phase::Closing {
            // It comes after the others were told.
            connection.order(END_AFTER_REQUEST);
        }
        let service = service_fn(|request| {
            Connection::count(&connection.begun);
            let turn = connection.noted.begin();
            let (handler, connection) = (&self.handler, &connection);
            async move {
                let response = handler.answer(request, turn).await;
                Connection::count(&connection.ended);
                Ok::<_, Infallible>(response)
            }
        });
        let http = http1::Builder::new()
            .max_buf_size(64 << 10)
            // An answer is small: to copy it behind its head is less than to have the kernel collect two pieces.
            .writev(false)
            // No client of ours needs to know what time it is.
            .auto_date_header(false)
            // See `watch`.
            .header_read_timeout(None)
            .serve_connection(TokioIo::new(stream), service);
        let mut http = std::pin::pin!(http);
        // How a connection ends is its client's business: a reset or a time-out is no event of ours.
        if connection.serve_until(http.as_mut(), || connection.is_told(END_AFTER_REQUEST)).await {
            return;
        }
        if connection.is_told(END) && connection.idle_since().is_some() {
            return;
        }
        // The first request of one that was just accepted is on its way, or in its socket: closing would reset it.
        let is_asked = || connection.begun.load(Ordering::Relaxed) > 0;
        if let Ok(true) = timeout(FIRST_REQUEST, connection.serve_until(http.as_mut(), is_asked)).await {
            return;
        }
        http.as_mut().graceful_shutdown();
        let is_over = || connection.is_told(END) && connection.idle_since().is_some();
        connection.serve_until(http.as_mut(), is_over).await;
        drop(place);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener as StdListener;

    use bytes::Bytes;
    use http_body_util::Full;

    use super::*;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: rtad\r\n\r\n";

    fn pair() -> (StdStream, StdStream) {
        let listener = StdListener::bind("127.0.0.1:0").unwrap();
        let client = StdStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[derive(Debug, Clone)]
    struct Yes;

    impl Handler for Yes {
        type Body = Full<Bytes>;

        async fn answer(&self, _: Request<Incoming>, _: Turn) -> Response<Full<Bytes>> {
            Response::new(Full::new(Bytes::from_static(b"yes")))
        }
    }

    fn connections(phase: watch::Receiver<Phase>) -> Arc<Connections<Yes>> {
        Arc::new(Connections::new(Yes, Duration::from_secs(75), phase))
    }

    /// It waits in the socket of a connection that is accepted when all are told to end.
    #[tokio::test]
    async fn a_request_that_came_before_the_end_is_answered() {
        let (_phase, phases) = watch::channel(Phase::Closing);
        let connections = connections(phases);
        for asks in [true, false] {
            let (mut client, server) = pair();
            if asks {
                client.write_all(REQUEST).unwrap();
            }
            Arc::clone(&connections).serve(server, ()).await;
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            assert_eq!(
                answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("yes"),
                asks,
                "{answer}"
            );
        }
    }

    #[tokio::test]
    async fn an_order_is_heard_after_a_lesser_one() {
        let connection = Arc::new(Connection::default());
        let served = tokio::spawn({
            let connection = Arc::clone(&connection);
            async move {
                let http = std::pin::pin!(std::future::pending::<()>());
                connection.serve_until(http, || connection.is_told(END)).await
            }
        });
        for order in [END_AFTER_REQUEST, END_AFTER_REQUEST, END] {
            tokio::task::yield_now().await;
            connection.order(order);
        }
        assert!(!timeout(Duration::from_secs(10), served).await.unwrap().unwrap());
    }

    #[tokio::test]
    async fn connections_that_have_ended_take_no_memory() {
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
