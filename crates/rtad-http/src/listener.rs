//! Listener: a bound socket, and its connections until the phase is closing.

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::time::{Duration, Instant, SystemTime};

use futures_util::FutureExt as _;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::unconstrained;

use crate::phase::{Phase, closing};

/// Accept queue of the kernel. Platforms open many connections at once when answers become slow.
const BACKLOG: i32 = 4096;

/// Pause after an accept failed because descriptors or memory ran out.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
/// Interval between log lines about such failures.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Answer to a connection over the limit.
const REFUSAL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("could not listen on {setting} {address}")]
pub struct ListenError {
    /// The setting of the address, such as a flag.
    setting: &'static str,
    address: SocketAddr,
    /// The kernel's reason, such as an address in use, or a clock that HTTP cannot write.
    source: io::Error,
}

/// A bound address that does not listen yet: clients get "connection refused".
#[derive(Debug)]
pub struct BoundAddress {
    setting: &'static str,
    address: SocketAddr,
    socket: Socket,
}

impl BoundAddress {
    /// Binds the address of a setting. A port in use fails before any snapshot is loaded.
    ///
    /// # Errors
    ///
    /// [`ListenError`].
    pub fn bind(setting: &'static str, address: SocketAddr) -> Result<Self, ListenError> {
        let failed = |source| ListenError {
            setting,
            address,
            source,
        };
        let socket = bind(address).map_err(failed)?;
        let local = socket.local_addr().map_err(failed)?;

        Ok(Self {
            setting,
            address: local.as_socket().expect("an address of the internet"),
            socket,
        })
    }

    /// The address, with the port that the kernel chose.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Listens.
    ///
    /// # Errors
    ///
    /// [`ListenError`].
    pub fn listen(self) -> Result<StdListener, ListenError> {
        let Self {
            setting,
            address,
            socket,
        } = self;
        socket.listen(BACKLOG).map_err(|source| ListenError {
            setting,
            address,
            source,
        })?;
        Ok(socket.into())
    }
}

fn bind(address: SocketAddr) -> io::Result<Socket> {
    check_clock(SystemTime::now())?;
    let protocol = Some(Protocol::TCP);
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, protocol)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// hyper formats the date for each connection, sent or not, and panics outside these years.
fn check_clock(now: SystemTime) -> io::Result<()> {
    const YEAR_10000: Duration = Duration::from_secs(253_402_300_800);
    let since_1970 = now.duration_since(SystemTime::UNIX_EPOCH);
    if since_1970.is_ok_and(|time| time < YEAR_10000) {
        return Ok(());
    }
    let found = "this host's clock is wrong: expected a year from 1970 to 9999, found another";
    Err(io::Error::other(found))
}

/// Answers a connection over the limit. It is closed when it is dropped.
pub fn refuse(mut stream: &StdStream) {
    // A few bytes: the socket takes them, or the client does not read.
    let _ = stream.write(REFUSAL);
}

/// Accepts connections until the phase is closing.
#[derive(Debug)]
pub struct Acceptor {
    listener: TcpListener,
    phase: watch::Receiver<Phase>,
    /// Connections that may still be accepted in the closing phase.
    backlog: i32,
    failures: u64,
    reported: Option<Instant>,
}

impl Acceptor {
    /// An acceptor of the current runtime.
    ///
    /// # Errors
    ///
    /// The kernel's, if the listener cannot be polled.
    pub fn new(listener: StdListener, phase: watch::Receiver<Phase>) -> io::Result<Self> {
        Ok(Self {
            listener: TcpListener::from_std(listener)?,
            phase,
            backlog: BACKLOG,
            failures: 0,
            reported: None,
        })
    }

    /// The next connection; `None` in the closing phase, after those in the kernel's queue. Cancel
    /// safe.
    pub async fn accept(&mut self) -> Option<StdStream> {
        loop {
            let accepted = tokio::select! {
                () = closing(&mut self.phase) => return self.accept_queued(),
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    if let Ok(stream) = stream.into_std() {
                        return Some(stream);
                    }
                }
                Err(error) if is_connection_error(&error) => {}
                // The process has no file descriptors or memory left.
                Err(error) => {
                    self.report(&error);
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }

    /// The next connection of the kernel's queue: closing the listener resets those in it.
    fn accept_queued(&mut self) -> Option<StdStream> {
        while self.backlog > 0 {
            self.backlog -= 1;
            // `unconstrained`, as the runtime's budget would end the loop early.
            let accepted = unconstrained(self.listener.accept()).now_or_never()?;
            if let Ok((stream, _)) = accepted
                && let Ok(stream) = stream.into_std()
            {
                return Some(stream);
            }
        }
        None
    }

    fn report(&mut self, error: &io::Error) {
        self.failures += 1;
        let reported = self.reported;
        if reported.is_none_or(|reported| reported.elapsed() >= REPORT_INTERVAL) {
            let failures = self.failures;
            tracing::error!(%error, failures, "could not accept connections");
            self.reported = Some(Instant::now());
        }
    }
}

fn is_connection_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_that_http_cannot_write_is_refused() {
        check_clock(SystemTime::now()).unwrap();
        let seconds = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        check_clock(seconds(253_402_300_799)).unwrap();
        let error = check_clock(seconds(253_402_300_800)).unwrap_err();
        assert!(error.to_string().contains("from 1970 to 9999"), "{error}");
        check_clock(SystemTime::UNIX_EPOCH - Duration::from_secs(1)).unwrap_err();
    }
}
