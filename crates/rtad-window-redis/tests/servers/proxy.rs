//! TCP proxy before a server, which can drop answers, cut requests and stop forwarding.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// See the module's documentation. Its tasks end with the runtime of the test.
pub(crate) struct Proxy {
    address: SocketAddr,
    faults: Arc<Faults>,
    closed: watch::Sender<u64>,
}

struct Faults {
    /// Whether answers are read and dropped.
    drops_answers: AtomicBool,
    /// Bytes of requests to forward before the connection is closed.
    request_bytes: AtomicUsize,
    connections: AtomicUsize,
    /// Number of the first connections that forward no answers.
    stalled: AtomicUsize,
}

impl Proxy {
    pub(crate) async fn before(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let faults = Arc::new(Faults {
            drops_answers: AtomicBool::new(false),
            request_bytes: AtomicUsize::new(usize::MAX),
            connections: AtomicUsize::new(0),
            stalled: AtomicUsize::new(0),
        });
        let (closed, on_close) = watch::channel(0);
        let shared = Arc::clone(&faults);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let number = shared.connections.fetch_add(1, Ordering::SeqCst);
                let (faults, mut on_close) = (Arc::clone(&shared), on_close.clone());
                on_close.mark_unchanged();
                tokio::spawn(async move {
                    tokio::select! {
                        _ = forward(client, port, &faults, number) => {}
                        _ = on_close.changed() => {}
                    }
                });
            }
        });
        Self { address, faults, closed }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// From now on answers are dropped, until [`Self::close`].
    pub(crate) fn drop_answers(&self) {
        self.faults.drops_answers.store(true, Ordering::SeqCst);
    }

    /// The connections so far stay open, and forward no more answers.
    pub(crate) fn stall(&self) {
        self.faults.stalled.store(self.connections(), Ordering::SeqCst);
    }

    /// Closes the next connection after this many bytes of requests; forwards no answer before.
    pub(crate) fn cut_request(&self, bytes: usize) {
        self.faults.request_bytes.store(bytes, Ordering::SeqCst);
    }

    /// Closes all connections; new ones have no fault.
    pub(crate) fn close(&self) {
        self.faults.drops_answers.store(false, Ordering::SeqCst);
        self.closed.send_modify(|count| *count += 1);
    }

    /// Number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.faults.connections.load(Ordering::SeqCst)
    }
}

async fn forward(
    client: TcpStream,
    port: u16,
    faults: &Faults,
    number: usize,
) -> std::io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", port)).await?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let requests = async {
        let mut buffer = vec![0; 4096];
        loop {
            let read = from_client.read(&mut buffer).await?;
            if read == 0 {
                return Ok(());
            }
            let left = faults.request_bytes.load(Ordering::SeqCst);
            to_server.write_all(&buffer[..read.min(left)]).await?;
            if left <= read {
                faults.request_bytes.store(usize::MAX, Ordering::SeqCst);
                return Ok(());
            } else if left != usize::MAX {
                faults.request_bytes.store(left - read, Ordering::SeqCst);
            }
        }
    };
    let answers = async {
        let mut buffer = vec![0; 4096];
        loop {
            let read = from_server.read(&mut buffer).await?;
            if read == 0 {
                return Ok(());
            }
            let is_cutting = faults.request_bytes.load(Ordering::SeqCst) != usize::MAX;
            let is_stalled = number < faults.stalled.load(Ordering::SeqCst);
            let is_dropped =
                is_cutting || is_stalled || faults.drops_answers.load(Ordering::SeqCst);
            if !is_dropped {
                to_client.write_all(&buffer[..read]).await?;
            }
        }
    };
    tokio::select! {
        done = requests => done,
        done = answers => done,
    }
}
