//! A connection's stream that reads no requests while answers are not read, and closes without
//! losing the last answer.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Most unread bytes that are received after the last answer.
const MAX_LINGER_BYTES: usize = 1 << 20;
/// Most time for them.
pub const MAX_LINGER: Duration = Duration::from_secs(2);
/// A client that sends nothing for this long is waiting for its answer.
pub const SEND_PAUSE: Duration = Duration::from_millis(100);

/// The stream of a connection.
pub struct ClientStream {
    /// `None` after its sending side was closed.
    stream: Option<TcpStream>,
    lingering: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// The client does not read its answers.
    is_blocked: bool,
    /// The client has closed its side, or the connection is broken.
    has_ended: bool,
}

impl ClientStream {
    pub const fn new(stream: TcpStream) -> Self {
        Self {
            stream: Some(stream),
            lingering: None,
            is_blocked: false,
            has_ended: false,
        }
    }

    fn open(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        match &mut self.stream {
            Some(stream) => Ok(Pin::new(stream)),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

/// Receives the rest of a request that was answered early. Closing with unread data would reset the
/// connection, and the client might lose the answer.
async fn linger(mut stream: TcpStream) {
    let drain = async {
        let mut rest = vec![0; 4096];
        let mut received = 0;
        while received < MAX_LINGER_BYTES
            && let Ok(Ok(count)) = timeout(SEND_PAUSE, stream.read(&mut rest)).await
            && count > 0
        {
            received += count;
        }
    };
    let _ = timeout(MAX_LINGER, drain).await;
}

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.is_blocked {
            // Else pipelined requests would fill the memory with answers. `poll_write` wakes.
            return Poll::Pending;
        }

        let before = buffer.filled().len();
        let read = ready!(this.open()?.poll_read(context, buffer));
        this.has_ended = read.is_err() || buffer.filled().len() == before;
        Poll::Ready(read)
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = this.open()?.poll_write(context, bytes);
        if std::mem::replace(&mut this.is_blocked, written.is_pending()) && !this.is_blocked {
            context.waker().wake_by_ref();
        }
        written
    }

    /// A socket has no buffer of its own.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Closes the sending side, and lingers.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Some(stream) = &mut this.stream {
            ready!(Pin::new(stream).poll_shutdown(context))?;
        }
        if let Some(stream) = this.stream.take()
            && !this.has_ended
        {
            this.lingering = Some(Box::pin(linger(stream)));
        }

        match &mut this.lingering {
            Some(lingering) => lingering.as_mut().poll(context).map(Ok),
            None => Poll::Ready(Ok(())),
        }
    }
}
