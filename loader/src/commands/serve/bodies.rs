//! Request bodies, with a limit on the memory of all bodies.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use hyper::body::Body as _;
use rtad_http::body::{BodyLimits, read};
use tokio::sync::Semaphore;

use super::error::ApiError;

/// Limits of one body: room for 100,000 ids of the longest kind.
const LIMITS: BodyLimits = BodyLimits { max_bytes: 16 << 20, timeout: Duration::from_secs(30) };
/// Memory of all bodies: 256 MiB; parsing takes up to twice that.
const MAX_BODIES_KIB: usize = 256 << 10;

pub(super) struct Bodies(Semaphore);

impl Default for Bodies {
    fn default() -> Self {
        Self(Semaphore::new(MAX_BODIES_KIB))
    }
}

impl Bodies {
    /// Reads a body and processes it on the blocking pool, within the memory limit.
    pub(super) async fn with<T: Send + 'static>(
        &self,
        body: Body,
        work: impl FnOnce(Bytes) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        // Without a length the maximum is assumed.
        let most = body.size_hint().upper().unwrap_or(u64::MAX).min(LIMITS.max_bytes as u64);
        let kib = u32::try_from(most.div_ceil(1024)).unwrap_or(u32::MAX);
        let permit = self.0.try_acquire_many(kib).map_err(|_| ApiError::Overloaded)?;
        let bytes = read(body, LIMITS, || Some(())).await?;
        let worked = tokio::task::spawn_blocking(move || work(bytes)).await;
        drop(permit);
        worked.unwrap_or(Err(ApiError::Internal))
    }
}
