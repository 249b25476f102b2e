//! Sockets: one acceptor, one thread with a runtime of its own per worker, limits that refuse at once, and
//! an end in two steps.
//!
//! The acceptor gives a new connection to the worker that has the fewest, so that a few busy connections do not share a core
//! while another idles. A connection stays with its worker: its requests never move between cores.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::FutureExt as _;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, unconstrained};

use super::connections::{Connections, Handler};
use super::turn;
use crate::telemetry::count_alone;

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
pub(super) async fn closing(phase: &mut watch::Receiver<Phase>) {
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
                // All of them: neither the runtime's budget nor an error about one ends it early.
                for _ in 0..BACKLOG {
                    let Some(accepted) = unconstrained(listener.accept()).now_or_never() else { break };
                    let Ok((stream, _)) = accepted else { continue };
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
    pub fn start<H: Handler>(count: usize, connections: &Connections<H>) -> io::Result<Self> {
        let mut workers = Vec::with_capacity(count);
        let mut threads = Vec::with_capacity(count);
        for index in 0..count {
            let (sender, receiver) = mpsc::unbounded_channel();
            let load = Arc::new(AtomicUsize::new(0));
            let (connections, ended) = (Arc::new(connections.clone()), Arc::clone(&load));
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .on_thread_park(turn::sleeps)
                .on_thread_unpark(turn::wakes)
                .build()?;
            let thread = std::thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
                count_alone(index);
                turn::wakes();
                runtime.block_on(work(receiver, connections, ended));
            })?;
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
async fn work<P: Send + 'static, H: Handler>(
    mut given: mpsc::UnboundedReceiver<(StdStream, P)>,
    connections: Arc<Connections<H>>,
    load: Arc<AtomicUsize>,
) {
    tokio::spawn(Arc::clone(&connections).watch());
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            next = given.recv() => match next {
                Some((stream, place)) => {
                    open.spawn(Arc::clone(&connections).serve(stream, place));
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
