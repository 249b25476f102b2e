//! Request bodies: reading with a size limit and a timeout.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Body;
use tokio::time::timeout;

/// Bytes of a rejected body that are read and dropped. Closing the connection while the client is
/// sending would reset it before the client reads the answer.
const MAX_DISCARDED: usize = 1 << 20;
/// A client that sends nothing for this long is waiting for its answer.
const SEND_PAUSE: Duration = Duration::from_millis(100);

/// Reason why a body was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyError {
    /// Larger than the limit, in bytes.
    TooLarge(usize),
    /// Timed out.
    Timeout,
    /// Truncated, or invalid HTTP.
    Broken,
    /// Not complete on arrival, and no permit to wait for the rest.
    Overloaded,
}

/// Limits of a body.
#[derive(Debug, Clone, Copy)]
pub struct BodyLimits {
    /// Size in bytes.
    pub max_bytes: usize,
    /// Timeout for the whole body.
    pub timeout: Duration,
}

/// Reads a body. A body that arrived with its head, as nearly all do, costs no copy and no timer.
/// Waiting for the rest of any other needs a permit from `wait`.
///
/// # Errors
///
/// [`BodyError`]. The rest of a rejected body is read and dropped, up to 1 MiB.
pub async fn read<B: Body<Data = Bytes> + Unpin, P>(
    mut body: B,
    limits: BodyLimits,
    wait: impl FnOnce() -> Option<P>,
) -> Result<Bytes, BodyError> {
    let BodyLimits { max_bytes, timeout: within } = limits;
    let read = if body.size_hint().lower() > max_bytes as u64 {
        Err(BodyError::TooLarge(max_bytes))
    } else {
        let mut collecting = pin!(collect(&mut body, max_bytes));
        match poll_once(collecting.as_mut()).await {
            Poll::Ready(read) => read,
            Poll::Pending => match wait() {
                Some(_permit) => {
                    timeout(within, collecting).await.unwrap_or(Err(BodyError::Timeout))
                }
                None => Err(BodyError::Overloaded),
            },
        }
    };
    if matches!(read, Err(BodyError::TooLarge(_) | BodyError::Overloaded)) {
        discard(body, within).await;
    }
    read
}

/// Returns a body that has arrived completely; otherwise drops it and returns `None`. Keeps the
/// connection usable: new connections are the largest cost under overload.
pub async fn take_or_discard<B: Body<Data = Bytes> + Unpin>(
    mut body: B,
    limits: BodyLimits,
) -> Option<Bytes> {
    if let Poll::Ready(read) = poll_once(pin!(collect(&mut body, limits.max_bytes))).await {
        return read.ok();
    }
    discard(body, limits.timeout).await;
    None
}

/// Reads and drops up to 1 MiB of a body, so that its connection stays usable.
pub async fn discard<B: Body<Data = Bytes> + Unpin>(mut body: B, within: Duration) {
    let _ = timeout(within, drop_rest(&mut body)).await;
}

/// Polls a future once.
async fn poll_once<F: Future>(mut work: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    std::future::poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await
}

/// Reads all of a body. A body of one part is not copied.
async fn collect<B: Body<Data = Bytes> + Unpin>(
    body: &mut B,
    max_bytes: usize,
) -> Result<Bytes, BodyError> {
    let (mut first, mut all) = (Bytes::new(), BytesMut::new());
    while let Some(frame) = body.frame().await {
        // Trailers are ignored.
        let Ok(part) = frame.map_err(|_| BodyError::Broken)?.into_data() else { continue };
        if part.len() > max_bytes - first.len().max(all.len()) {
            return Err(BodyError::TooLarge(max_bytes));
        }
        if first.is_empty() {
            first = part;
        } else {
            if all.is_empty() {
                all.extend_from_slice(&first);
            }
            all.extend_from_slice(&part);
        }
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}

async fn drop_rest<B: Body<Data = Bytes> + Unpin>(body: &mut B) {
    let mut dropped = 0;
    while dropped < MAX_DISCARDED
        && let Ok(Some(Ok(frame))) = timeout(SEND_PAUSE, body.frame()).await
    {
        dropped += frame.data_ref().map_or(0, Bytes::len);
    }
}

/// Whether the body is `application/octet-stream`, by its `Content-Type`.
pub fn is_octet_stream(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
    essence.trim_ascii().eq_ignore_ascii_case(b"application/octet-stream")
}
