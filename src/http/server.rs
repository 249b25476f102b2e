//! Sockets and connections: one acceptor, one thread with a runtime of its own per worker, limits that refuse at once, and
//! an end in two steps.
//!
//! The acceptor gives a new connection to the worker that has the fewest, so that a few busy connections do not share a core
//! while another idles. A connection stays with its worker: its requests never move between cores.
//!
//! hyper's header time-out, which `axum::serve` never arms, starts when a connection begins to wait for a request, so it is
//! the keep-alive idle time-out too.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use futures_util::FutureExt as _;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// Connections that the kernel holds for us until they are accepted. Platforms open many at once when they see us slow.
const BACKLOG: i32 = 4096;

/// Told to a connection over the limit, so that its end is no mystery.
const REFUSAL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// Takes an address without listening on it: a port that another process listens on fails at once, before any snapshot is
/// loaded, and clients are refused rather than kept waiting while they load.
///
/// # Errors
///
/// The kernel's, such as an address in use.
pub fn bind(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Begins to listen on a bound address.
///
/// # Errors
///
/// The kernel's.
pub fn listen(socket: Socket) -> io::Result<StdListener> {
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// How far the end has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Connections are accepted and kept.
    Serving,
    /// No more are accepted; idle ones are closed, busy ones after their request.
    Closing,
}

/// Waits until the end has begun; for ever, if there is nobody left to begin it.
async fn closing(phase: &mut watch::Receiver<Phase>) {
    if phase.wait_for(|phase| *phase >= Phase::Closing).await.is_err() {
        std::future::pending().await
    }
}

/// Accepts until the phase says otherwise. `admit` gives a connection its place, or nothing if it is one too many; `hand_out`
/// takes it on.
pub async fn accept<P>(
    listener: StdListener,
    mut phase: watch::Receiver<Phase>,
    admit: impl Fn() -> Option<P>,
    mut hand_out: impl FnMut(StdStream, P),
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let accepted = tokio::select! {
            () = closing(&mut phase) => {
                // Those that the kernel has already shaken hands with: closing the listener would reset them.
                while let Some(Ok((stream, _))) = listener.accept().now_or_never() {
                    if let (Some(place), Ok(stream)) = (admit(), stream.into_std()) {
                        hand_out(stream, place);
                    }
                }
                return Ok(());
            }
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => match admit() {
                Some(place) => {
                    if let Ok(stream) = stream.into_std() {
                        hand_out(stream, place);
                    }
                }
                None => {
                    let _ = stream.try_write(REFUSAL);
                }
            },
            Err(error) if is_about_one_connection(&error) => {}
            // Out of file descriptors or memory: nothing to do but let some be freed.
            Err(error) => {
                tracing::error!(%error, "could not accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

fn is_about_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// Serves the connections it is given.
#[derive(Debug, Clone)]
pub struct Connections {
    router: Router,
    idle_timeout: Duration,
    phase: watch::Receiver<Phase>,
}

impl Connections {
    /// Serves `router` to them; closes those that are idle for `idle_timeout`, and all when the phase says so.
    pub const fn new(router: Router, idle_timeout: Duration, phase: watch::Receiver<Phase>) -> Self {
        Self { router, idle_timeout, phase }
    }

    /// Serves one connection to its end.
    pub async fn serve<P>(mut self, stream: StdStream, place: P) {
        let Ok(stream) = self.prepare(stream) else { return };
        let service = TowerToHyperService::new(self.router);
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.idle_timeout)
            .max_buf_size(64 << 10)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        // How a connection ends is its client's business: a reset or a time-out is no event of ours.
        // It goes first: the request of a connection accepted last may be in its socket already.
        tokio::select! {
            biased;
            _ = connection.as_mut() => {}
            () = closing(&mut self.phase) => {
                connection.as_mut().graceful_shutdown();
                let _ = connection.await;
            }
        }
        drop(place);
    }

    fn prepare(&self, stream: StdStream) -> io::Result<TcpStream> {
        stream.set_nodelay(true)?;
        let socket = socket2::SockRef::from(&stream);
        // A peer that vanished, or that never reads its answers, must not keep its place for ever.
        // A kernel that refuses leaves such a peer to hyper's time-out, which sees all but the stuck answer.
        #[cfg(target_os = "linux")]
        let _ = socket.set_tcp_user_timeout(Some(self.idle_timeout));
        let _ = socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(self.idle_timeout));
        stream.set_nonblocking(true)?;
        TcpStream::from_std(stream)
    }
}

/// Threads that answer decisions.
#[derive(Debug)]
pub struct Workers<P> {
    workers: Vec<Worker<P>>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Worker<P> {
    connections: mpsc::UnboundedSender<(StdStream, P)>,
    /// Connections handed out and not yet ended.
    load: Arc<AtomicUsize>,
}

impl<P: Send + 'static> Workers<P> {
    /// Starts `count` threads.
    ///
    /// # Errors
    ///
    /// The kernel's, when it gives no thread or no event queue.
    pub fn start(count: usize, connections: &Connections) -> io::Result<Self> {
        let mut workers = Vec::with_capacity(count);
        let mut threads = Vec::with_capacity(count);
        for index in 0..count {
            let (sender, receiver) = mpsc::unbounded_channel();
            let load = Arc::new(AtomicUsize::new(0));
            let (connections, ended) = (connections.clone(), Arc::clone(&load));
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let thread = std::thread::Builder::new()
                .name(format!("worker-{index}"))
                .spawn(move || runtime.block_on(work(receiver, connections, ended)))?;
            workers.push(Worker { connections: sender, load });
            threads.push(thread);
        }
        Ok(Self { workers, threads })
    }

    /// Gives a connection to the worker that has the fewest.
    pub fn hand_out(&self, stream: StdStream, place: P) {
        let idlest = self.workers.iter().min_by_key(|worker| worker.load.load(Ordering::Relaxed));
        let Some(worker) = idlest else { return };
        worker.load.fetch_add(1, Ordering::Relaxed);
        // Fails only when the worker is gone, and then so is the process, nearly.
        let _ = worker.connections.send((stream, place));
    }

    /// Lets the workers end once their last connection has; blocks until then.
    pub fn join(self) {
        drop(self.workers);
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

/// A worker's life: serves what it is given, ends when no more can come and none is left.
async fn work<P: Send + 'static>(
    mut given: mpsc::UnboundedReceiver<(StdStream, P)>,
    connections: Connections,
    load: Arc<AtomicUsize>,
) {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            next = given.recv() => match next {
                Some((stream, place)) => {
                    open.spawn(connections.clone().serve(stream, place));
                }
                None => break,
            },
            Some(_) = open.join_next() => {
                load.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
    while open.join_next().await.is_some() {}
}
