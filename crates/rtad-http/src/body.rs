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

use crate::budget::OverBudget;

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
    /// Not complete on arrival, and no permit or no memory to wait for the rest.
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
/// A body with a length over the limit is not read at all, so a client that sends `Expect:
/// 100-continue` is not asked for it.
///
/// # Errors
///
/// [`BodyError`].
pub async fn read<B, P>(
    mut body: B,
    limits: BodyLimits,
    wait: impl FnOnce() -> Option<P>,
) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes, Error: std::error::Error + 'static> + Unpin,
{
    let BodyLimits { max_bytes, timeout: within } = limits;
    if body.size_hint().lower() > max_bytes as u64 {
        return Err(BodyError::TooLarge(max_bytes));
    }
    {
        let mut collecting = pin!(collect(&mut body, max_bytes));
        if let Poll::Ready(read) = poll_once(collecting.as_mut()).await {
            return read;
        }
        if let Some(_permit) = wait() {
            return timeout(within, collecting).await.unwrap_or(Err(BodyError::Timeout));
        }
    }
    let _ = timeout(within, drop_rest(&mut body, max_bytes)).await;
    Err(BodyError::Overloaded)
}

/// Reads and drops the rest of a shed request, so that its connection stays usable: under overload
/// new connections are the largest cost.
async fn drop_rest<B: Body<Data = Bytes> + Unpin>(body: &mut B, max_bytes: usize) {
    let mut dropped = 0;
    while dropped < max_bytes
        && let Ok(Some(Ok(frame))) = timeout(SEND_PAUSE, body.frame()).await
    {
        dropped += frame.data_ref().map_or(0, Bytes::len);
    }
}

/// Polls a future once.
async fn poll_once<F: Future>(mut work: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    std::future::poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await
}

/// Reads all of a body. A body of one part is not copied.
async fn collect<B>(body: &mut B, max_bytes: usize) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes, Error: std::error::Error + 'static> + Unpin,
{
    let (mut first, mut all) = (Bytes::new(), BytesMut::new());
    while let Some(frame) = body.frame().await {
        // Trailers are ignored.
        let Ok(part) = frame.map_err(|error| error_of(&error))?.into_data() else { continue };
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

fn error_of(error: &(dyn std::error::Error + 'static)) -> BodyError {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    let is_over_budget = |error: &(dyn std::error::Error + 'static)| {
        let io = error.downcast_ref::<std::io::Error>();
        io.and_then(std::io::Error::get_ref).is_some_and(|inner| inner.is::<OverBudget>())
    };
    if causes.any(is_over_budget) { BodyError::Overloaded } else { BodyError::Broken }
}

/// Whether the body is `application/octet-stream`, by its `Content-Type`.
pub fn is_octet_stream(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
    essence.trim_ascii().eq_ignore_ascii_case(b"application/octet-stream")
}
