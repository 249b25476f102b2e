//! Workers: one thread and one runtime per core.
//!
//! A new connection goes to the worker with the fewest connections and stays there. Requests never
//! move between cores, and a few busy connections spread over all cores.

use std::io;
use std::net::TcpStream as StdStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use tokio::sync::mpsc;

use crate::connections::{Connections, RequestService};

/// The worker threads of a port. A connection is sent with its permit `P`, which it holds.
#[derive(Debug)]
pub struct Workers<P> {
    workers: Vec<Worker<P>>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Worker<P> {
    connections: mpsc::UnboundedSender<(StdStream, P)>,
    /// Open connections.
    load: Arc<AtomicUsize>,
}

impl<P: Send + 'static> Workers<P> {
    /// Starts `count` threads. Each calls `connections` with its index, so that counters, routers
    /// and reference counts are per worker: no other core writes their cache lines.
    ///
    /// # Errors
    ///
    /// The kernel's, if it cannot create a thread or an event queue.
    pub fn start<S: RequestService>(
        count: usize,
        connections: impl Fn(usize) -> Connections<S> + Clone + Send + 'static,
    ) -> io::Result<Self> {
        let mut workers = Vec::with_capacity(count);
        let mut threads = Vec::with_capacity(count);
        for index in 0..count {
            let (sender, receiver) = mpsc::unbounded_channel();
            let load = Arc::new(AtomicUsize::new(0));
            let connections = connections.clone();
            let ended = Arc::clone(&load);
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            let thread = std::thread::Builder::new().name(format!("worker-{index}"));
            let thread = thread.spawn(move || {
                runtime.block_on(work(receiver, connections(index), ended));
            })?;
            workers.push(Worker {
                connections: sender,
                load,
            });
            threads.push(thread);
        }

        Ok(Self { workers, threads })
    }

    /// Assigns a connection to the worker with the fewest.
    pub fn assign(&self, stream: StdStream, permit: P) {
        let least = self
            .workers
            .iter()
            .min_by_key(|worker| worker.load.load(Ordering::Relaxed));
        let Some(worker) = least else { return };
        worker.load.fetch_add(1, Ordering::Relaxed);
        // Fails only if the worker has ended, during shutdown.
        let _ = worker.connections.send((stream, permit));
    }

    /// Blocks until each worker has ended after its last connection.
    pub fn join(self) {
        drop(self.workers);
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

/// Serves the connections received, until the channel is closed and the last connection has ended.
async fn work<P: Send + 'static, S: RequestService>(
    mut assigned: mpsc::UnboundedReceiver<(StdStream, P)>,
    mut connections: Connections<S>,
    load: Arc<AtomicUsize>,
) {
    loop {
        tokio::select! {
            next = assigned.recv() => match next {
                Some((stream, permit)) => connections.open(stream, permit),
                None => break,
            },
            ended = connections.tend() => {
                load.fetch_sub(ended, Ordering::Relaxed);
            }
        }
    }
    connections.drain().await;
}
