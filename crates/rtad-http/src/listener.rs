//! Listener: a bound socket, and an accept loop with a connection limit.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::time::{Duration, Instant};

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

/// Binds an address without listening. A port in use fails before any snapshot is loaded, and
/// clients get "connection refused" while snapshots load.
///
/// # Errors
///
/// The kernel's, such as an address in use.
pub fn bind(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Listens on a bound address.
///
/// # Errors
///
/// The kernel's.
pub fn listen(socket: Socket) -> io::Result<StdListener> {
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Accepts connections until the phase is closing. `admit` returns a permit, or `None` over the
/// limit; `assign` receives the connection with its permit.
///
/// # Errors
///
/// The kernel's, if the listener cannot be polled.
pub async fn accept<P>(
    listener: StdListener,
    mut phase: watch::Receiver<Phase>,
    admit: impl Fn() -> Option<P>,
    mut assign: impl FnMut(StdStream, P),
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let (mut failures, mut reported) = (0_u64, None::<Instant>);
    loop {
        let accepted = tokio::select! {
            () = closing(&mut phase) => {
                // Accept all connections in the kernel's queue: closing the listener resets them.
                // `unconstrained`, as the runtime's budget would end the loop early.
                for _ in 0..BACKLOG {
                    let Some(accepted) = unconstrained(listener.accept()).now_or_never() else {
                        break;
                    };
                    let Ok((stream, _)) = accepted else { continue };
                    if let (Some(permit), Ok(stream)) = (admit(), stream.into_std()) {
                        assign(stream, permit);
                    }
                }
                return Ok(());
            }
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => match admit() {
                Some(permit) => {
                    if let Ok(stream) = stream.into_std() {
                        assign(stream, permit);
                    }
                }
                None => {
                    let _ = stream.try_write(REFUSAL);
                }
            },
            Err(error) if is_connection_error(&error) => {}
            // The process has no file descriptors or memory left.
            Err(error) => {
                failures += 1;
                if reported.is_none_or(|reported| reported.elapsed() >= REPORT_INTERVAL) {
                    tracing::error!(%error, failures, "could not accept connections");
                    reported = Some(Instant::now());
                }
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
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
