//! A connection's stream that counts unanswered bytes, and closes without losing the last answer.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BufMut as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::io::poll_read_buf;

use crate::connection::Connection;
use crate::listener::REFUSAL;

/// Most unread bytes that are received after the last answer.
const MAX_LINGER_BYTES: usize = 1 << 20;
/// Most time for them.
const MAX_LINGER: Duration = Duration::from_secs(2);
/// A client that sends nothing for this long is waiting for its answer.
pub const SEND_PAUSE: Duration = Duration::from_millis(100);

/// The stream of a connection.
#[derive(Debug)]
pub struct MeteredStream {
    stream: TcpStream,
    connection: Arc<Connection>,
    /// The client does not read its answers.
    is_blocked: bool,
    /// The client has closed its side, or the connection is broken.
    has_ended: bool,
}

impl MeteredStream {
    pub const fn new(stream: TcpStream, connection: Arc<Connection>) -> Self {
        Self {
            stream,
            connection,
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

impl AsyncRead for MeteredStream {
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
        let (stream, largest) = (
            Pin::new(&mut this.stream),
            this.connection.account().largest_read(),
        );
        let read = ready!(poll_read_buf(stream, context, &mut buffer.limit(largest)));
        this.has_ended = !matches!(read, Ok(1..));
        if let Err(over_budget) = this.connection.account().add(read?) {
            if this.connection.answered_if_idle().is_some() {
                // A few bytes: the socket takes them, or the client does not read.
                let _ = this.stream.try_write(REFUSAL);
            }
            return Poll::Ready(Err(io::Error::other(over_budget)));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for MeteredStream {
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

    /// hyper flushes after the last byte of an answer was written.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.connection.settle_if_answered();
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
