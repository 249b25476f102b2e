//! TCP proxy before a server, which can drop answers, cut requests and stop forwarding.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// See the module's documentation. Its tasks end with the runtime of the test.
pub struct Proxy {
    address: SocketAddr,
    faults: Arc<Faults>,
    closed: watch::Sender<u64>,
}

struct Faults {
    /// Whether answers are read and dropped, after this number of forwarded ones.
    drops_answers: AtomicBool,
    forwarded_answers: AtomicUsize,
    /// Bytes of requests to forward before the connection is closed.
    request_bytes: AtomicUsize,
    connections: AtomicUsize,
    /// Number of the first connections that forward no answers.
    stalled: AtomicUsize,
}

impl Proxy {
    pub async fn before(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let faults = Arc::new(Faults {
            drops_answers: AtomicBool::new(false),
            forwarded_answers: AtomicUsize::new(0),
            request_bytes: AtomicUsize::new(usize::MAX),
            connections: AtomicUsize::new(0),
            stalled: AtomicUsize::new(0),
        });
        let (closed, on_close) = watch::channel(0);
        let shared = Arc::clone(&faults);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let number = shared.connections.fetch_add(1, SeqCst);
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
        Self {
            address,
            faults,
            closed,
        }
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// From now on answers are dropped, until [`Self::close`].
    pub fn drop_answers(&self) {
        self.drop_answers_after(0);
    }

    /// Answers are dropped as by [`Self::drop_answers`], after this number of further ones.
    pub fn drop_answers_after(&self, answers: usize) {
        self.faults.forwarded_answers.store(answers, SeqCst);
        self.faults.drops_answers.store(true, SeqCst);
    }

    /// The connections so far stay open, and forward no more answers.
    pub fn stall(&self) {
        self.faults.stalled.store(self.connections(), SeqCst);
    }

    /// Closes the next connection after this many bytes of requests; forwards no answer before.
    pub fn cut_request(&self, bytes: usize) {
        self.faults.request_bytes.store(bytes, SeqCst);
    }

    /// Closes all connections; new ones have no fault.
    pub fn close(&self) {
        // An answer on its way must not pass.
        self.stall();
        self.faults.drops_answers.store(false, SeqCst);
        self.closed.send_modify(|count| *count += 1);
    }

    /// Number of connections so far.
    pub fn connections(&self) -> usize {
        self.faults.connections.load(SeqCst)
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
            let left = faults.request_bytes.load(SeqCst);
            to_server.write_all(&buffer[..read.min(left)]).await?;
            if left <= read {
                faults.request_bytes.store(usize::MAX, SeqCst);
                return Ok(());
            } else if left != usize::MAX {
                faults.request_bytes.store(left - read, SeqCst);
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
            let is_cutting = faults.request_bytes.load(SeqCst) != usize::MAX;
            let is_stalled = number < faults.stalled.load(SeqCst);
            let one_less = |answers: usize| answers.checked_sub(1);
            let is_dropped = is_cutting
                || is_stalled
                || faults.drops_answers.load(SeqCst)
                    && faults
                        .forwarded_answers
                        .try_update(SeqCst, SeqCst, one_less)
                        .is_err();
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
