//! A connection's stream that reads no requests while answers are not read, and closes without
//! losing the last answer.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Most unread bytes that are received after the last answer.
const MAX_LINGER_BYTES: usize = 1 << 20;
/// Most time for them.
const MAX_LINGER: Duration = Duration::from_secs(2);
/// A client that sends nothing for this long is waiting for its answer.
pub const SEND_PAUSE: Duration = Duration::from_millis(100);

/// The stream of a connection.
#[derive(Debug)]
pub struct ClientStream {
    stream: TcpStream,
    /// The client does not read its answers.
    is_blocked: bool,
    /// The client has closed its side, or the connection is broken.
    has_ended: bool,
}

impl ClientStream {
    pub const fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            is_blocked: false,
            has_ended: false,
        }
    }

    /// Closes the connection. Closing with unread data would reset it, and the client might lose
    /// the answer: first receives the rest of a request that was answered early.
    pub async fn close(mut self) {
        if self.has_ended || self.stream.shutdown().await.is_err() {
            return;
        }
        let drain = async {
            let (mut rest, mut received) = (vec![0; 4096], 0);
            while received < MAX_LINGER_BYTES
                && let Ok(Ok(count)) = timeout(SEND_PAUSE, self.stream.read(&mut rest)).await
                && count > 0
            {
                received += count;
            }
        };
        let _ = timeout(MAX_LINGER, drain).await;
    }
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
        let read = Pin::new(&mut this.stream).poll_read(context, buffer);
        this.has_ended = match &read {
            Poll::Ready(Ok(())) => buffer.filled().len() == before,
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        };
        read
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        if std::mem::replace(&mut this.is_blocked, written.is_pending()) && !this.is_blocked {
            context.waker().wake_by_ref();
        }
        written
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
