//! Request bodies. The port's budget bounds the memory of all bodies.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use rtad_http::body::{BodyLimits, read};

use super::error::ApiError;

/// Limits of one body: room for 100,000 ids of the longest kind.
const LIMITS: BodyLimits = BodyLimits { max_bytes: 16 << 20, timeout: Duration::from_secs(30) };
/// Bytes of all bodies; parsing takes up to twice that.
pub(super) const MAX_BUFFERED: usize = 256 << 20;

/// Bodies up to this size are processed at once: a change of threads costs more.
const SMALL: usize = 32 << 10;

/// Reads a body and processes it; a large one on the blocking pool.
pub(super) async fn with_body<T: Send + 'static>(
    body: Body,
    work: impl FnOnce(Bytes) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let bytes = read(body, LIMITS, || Some(())).await?;
    if bytes.len() <= SMALL {
        return work(bytes);
    }
    let worked = tokio::task::spawn_blocking(move || work(bytes)).await;
    worked.unwrap_or(Err(ApiError::Internal))
}
