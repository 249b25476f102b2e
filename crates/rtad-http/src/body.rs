//! Request bodies: whole, within a size and within a time.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Body;
use tokio::time::timeout;

/// Bytes of an unwanted body that are still read and dropped: closing the connection on a client
/// that is still sending would reset it, and take the answer along.
const MAX_DISCARDED: usize = 1 << 20;
/// A client that has sent nothing for so long waits for its answer.
const PAUSE: Duration = Duration::from_millis(100);

/// Why a body was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyError {
    /// It is larger than the limit, in bytes.
    TooLarge(usize),
    /// It did not arrive in time.
    Timeout,
    /// It broke off, or is not valid HTTP.
    Broken,
    /// It had still to come, and there was no permit to wait for it.
    Overloaded,
}

/// Limits of a body.
#[derive(Debug, Clone, Copy)]
pub struct BodyLimits {
    /// Its size in bytes.
    pub max_bytes: usize,
    /// Time for all of it to arrive.
    pub timeout: Duration,
}

/// Reads a body. One that came with its head, as nearly all do, costs no copy and no timer; one
/// that has still to come needs a permit, which `wait` gives or not.
///
/// # Errors
///
/// [`BodyError`]. An oversized or unwanted body is read on and dropped, up to 1 MiB of it.
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
        match at_once(collecting.as_mut()).await {
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

/// Takes a body that has arrived already; `None` if some of it has still to come. The rest is
/// dropped as it comes, so that the connection can go on: new connections cost most under overload.
pub async fn take_or_discard<B: Body<Data = Bytes> + Unpin>(
    mut body: B,
    limits: BodyLimits,
) -> Option<Bytes> {
    if let Poll::Ready(read) = at_once(pin!(collect(&mut body, limits.max_bytes))).await {
        return read.ok();
    }
    discard(body, limits.timeout).await;
    None
}

/// Reads and drops an unwanted body, up to 1 MiB of it, so that its connection can go on.
pub async fn discard<B: Body<Data = Bytes> + Unpin>(mut body: B, within: Duration) {
    let _ = timeout(within, drop_rest(&mut body)).await;
}

/// Polls work once.
async fn at_once<F: Future>(mut work: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    std::future::poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await
}

/// All of a body. Its first part is handed on as it came; further ones are appended to a copy.
async fn collect<B: Body<Data = Bytes> + Unpin>(
    body: &mut B,
    max_bytes: usize,
) -> Result<Bytes, BodyError> {
    let (mut first, mut all) = (Bytes::new(), BytesMut::new());
    while let Some(frame) = body.frame().await {
        // Trailers carry nothing for us.
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
        && let Ok(Some(Ok(frame))) = timeout(PAUSE, body.frame()).await
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
