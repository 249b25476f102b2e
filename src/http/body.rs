//! A request's body: whole, within a size and within a time.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Body;
use tokio::time::timeout;

use super::error::ApiError;

/// So much of a body that is too large is still read, and dropped: to close the connection on a client that is still sending would
/// reset it, and take the answer along.
const DROPPED: usize = 1 << 20;
/// A client that has sent nothing for so long waits for its answer.
const PAUSE: Duration = Duration::from_millis(100);

/// Reads a body of at most `limit` bytes. A body that came with its head, as nearly all do, costs no copy and no timer; one that has
/// still to come holds a place meanwhile, which `wait` gives or not.
///
/// # Errors
///
/// Too large, too slow, broken off, or without a place.
pub(super) async fn read<B: Body<Data = Bytes> + Unpin, P>(
    mut body: B,
    limit: usize,
    within: Duration,
    wait: impl FnOnce() -> Option<P>,
) -> Result<Bytes, ApiError> {
    let read = if body.size_hint().lower() > limit as u64 {
        Err(too_large(limit))
    } else {
        let mut collecting = pin!(collect(&mut body, limit));
        match at_once(collecting.as_mut()).await {
            Poll::Ready(read) => read,
            Poll::Pending => match wait() {
                Some(_place) => timeout(within, collecting).await.unwrap_or(Err(ApiError::BodyTimeout)),
                None => Err(ApiError::Overloaded),
            },
        }
    };
    if matches!(read, Err(ApiError::TooLarge(_) | ApiError::Overloaded)) {
        discard(body, within).await;
    }
    read
}

/// Takes a body that is there already; `None` if some of it has still to come. That is dropped as it comes, so that the connection
/// can go on: under overload new connections are the last thing that is wanted.
pub(super) async fn take_or_drop<B: Body<Data = Bytes> + Unpin>(
    mut body: B,
    limit: usize,
    within: Duration,
) -> Option<Bytes> {
    if let Poll::Ready(read) = at_once(pin!(collect(&mut body, limit))).await {
        return read.ok();
    }
    discard(body, within).await;
    None
}

/// Reads a body that nobody wants, so that its connection can go on.
pub(super) async fn discard<B: Body<Data = Bytes> + Unpin>(mut body: B, within: Duration) {
    let _ = timeout(within, drop_rest(&mut body)).await;
}

/// How far work comes without waiting.
async fn at_once<F: Future>(mut work: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    std::future::poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await
}

/// All of a body. Its first part is handed on as it came; only where there are more are they put together.
async fn collect<B: Body<Data = Bytes> + Unpin>(body: &mut B, limit: usize) -> Result<Bytes, ApiError> {
    let (mut first, mut all) = (Bytes::new(), BytesMut::new());
    while let Some(frame) = body.frame().await {
        let broken = |_| ApiError::BadBody("the body broke off or is not valid HTTP".to_owned());
        // Trailers say nothing to us.
        let Ok(part) = frame.map_err(broken)?.into_data() else { continue };
        if part.len() > limit - first.len().max(all.len()) {
            return Err(too_large(limit));
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
    while dropped < DROPPED
        && let Ok(Some(Ok(frame))) = timeout(PAUSE, body.frame()).await
    {
        dropped += frame.data_ref().map_or(0, Bytes::len);
    }
}

fn too_large(limit: usize) -> ApiError {
    ApiError::TooLarge(format!("the body is over {limit} bytes"))
}
