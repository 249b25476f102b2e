//! A request's body: whole, within a size and within a time.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Collected, LengthLimitError, Limited};
use hyper::body::Body as _;

use super::error::ApiError;

type Collecting = Result<Collected<Bytes>, Box<dyn std::error::Error + Send + Sync>>;

/// Reads a body of at most `limit` bytes. A body that came with its head, as nearly all do, costs no copy and no timer.
///
/// # Errors
///
/// Too large, too slow, or broken off.
pub(super) async fn read(body: Body, limit: usize, within: Duration) -> Result<Bytes, ApiError> {
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large(limit));
    }
    let mut collecting = pin!(Limited::new(body, limit).collect());
    let at_once = std::future::poll_fn(|context| Poll::Ready(collecting.as_mut().poll(context))).await;
    let collected = match at_once {
        Poll::Ready(collected) => collected,
        Poll::Pending => tokio::time::timeout(within, collecting).await.map_err(|_| ApiError::BodyTimeout)?,
    };
    whole(collected, limit)
}

/// Takes a body that is there already; `None` if some of it has still to come.
pub(super) async fn take_if_here(body: Body, limit: usize) -> Option<Bytes> {
    let mut collecting = pin!(Limited::new(body, limit).collect());
    let at_once = std::future::poll_fn(|context| Poll::Ready(collecting.as_mut().poll(context))).await;
    match at_once {
        Poll::Ready(collected) => whole(collected, limit).ok(),
        Poll::Pending => None,
    }
}

fn whole(collected: Collecting, limit: usize) -> Result<Bytes, ApiError> {
    match collected {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large(limit)),
        Err(_) => Err(ApiError::BadBody("the body broke off or is not valid HTTP".to_owned())),
    }
}

fn too_large(limit: usize) -> ApiError {
    ApiError::TooLarge(format!("the body is over {limit} bytes"))
}
