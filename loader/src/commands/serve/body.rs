//! A request's body: whole, within a size and within a time, and not more of them at once than memory has room for.

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::error::ApiError;

/// 100,000 ids of the longest kind, and some.
pub(super) const MAX_BODY: usize = 16 << 20;
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Of all bodies at once: 256 MiB, of which parsing makes up to twice that.
const MAX_BODIES_KIB: usize = 256 << 10;
/// So much of a body that is too large is still read, and dropped: to close the connection on a client that is still sending
/// would reset it, and take the answer along.
const DROPPED: usize = 1 << 20;
/// A client that has sent nothing for so long waits for its answer.
const PAUSE: Duration = Duration::from_millis(100);

/// The room that bodies share.
pub(super) struct Bodies(Semaphore);

impl Default for Bodies {
    fn default() -> Self {
        Self(Semaphore::new(MAX_BODIES_KIB))
    }
}

impl Bodies {
    /// Reads a body and does some work with it, elsewhere, while it counts as one that is there.
    pub(super) async fn with<T: Send + 'static>(
        &self,
        body: Body,
        work: impl FnOnce(Bytes) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let hint = body.size_hint();
        // Of one that does not say how long it is, the longest is assumed.
        let most = hint.upper().unwrap_or(u64::MAX).min(MAX_BODY as u64);
        let kib = u32::try_from(most.div_ceil(1024)).unwrap_or(u32::MAX);
        let room = self.0.try_acquire_many(kib).map_err(|_| ApiError::Overloaded)?;
        let bytes = read(body).await?;
        let worked = tokio::task::spawn_blocking(move || work(bytes)).await;
        drop(room);
        worked.unwrap_or(Err(ApiError::Internal))
    }
}

async fn read(mut body: Body) -> Result<Bytes, ApiError> {
    let read = if body.size_hint().lower() > MAX_BODY as u64 {
        Err(too_large())
    } else {
        timeout(BODY_TIMEOUT, collect(&mut body)).await.unwrap_or(Err(ApiError::BodyTimeout))
    };
    if matches!(read, Err(ApiError::TooLarge(_))) {
        drop_rest(&mut body).await;
    }
    read
}

async fn collect(body: &mut Body) -> Result<Bytes, ApiError> {
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let broken = |_| ApiError::BadBody("the body broke off or is not valid HTTP".to_owned());
        // Trailers say nothing to us.
        let Ok(part) = frame.map_err(broken)?.into_data() else { continue };
        if all.len() + part.len() > MAX_BODY {
            return Err(too_large());
        }
        all.extend_from_slice(&part);
    }
    Ok(all.freeze())
}

async fn drop_rest(body: &mut Body) {
    let mut dropped = 0;
    while dropped < DROPPED
        && let Ok(Some(Ok(frame))) = timeout(PAUSE, body.frame()).await
    {
        dropped += frame.data_ref().map_or(0, Bytes::len);
    }
}

fn too_large() -> ApiError {
    ApiError::TooLarge(format!("the body is over {MAX_BODY} bytes"))
}
