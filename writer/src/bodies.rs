//! Request bodies. One room bounds the memory of those that arrive in parts.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use rtad_http::body::{BodyLimits, ReadBody, read};
use rtad_http::query::parameter;
use rtad_http::request_error::RequestError;
use rtad_http::room::{BodyRoom, Share};

use super::error::ApiError;

/// Limits of one body: room for 100,000 ids of the longest kind.
const LIMITS: BodyLimits = BodyLimits {
    max_bytes: 16 << 20,
    timeout: Duration::from_secs(30),
};
/// Bytes of all bodies that arrive in parts; parsing takes up to twice that.
pub const MAX_BUFFERED: usize = 256 << 20;

/// Bodies up to this size are processed at once: a change of threads costs more.
const SMALL: usize = 32 << 10;

/// End of the year 9999 in seconds since 1970.
pub const LAST_UNIX_SECONDS: u64 = 253_402_300_799;

/// Refuses a time after the year 9999: it is in milliseconds.
pub fn check_unix_seconds(seconds: u64) -> Result<u64, RequestError> {
    if seconds <= LAST_UNIX_SECONDS {
        return Ok(seconds);
    }
    Err(RequestError::BadBody(format!(
        "at_unix_seconds: expected seconds since 1970, at most {LAST_UNIX_SECONDS}, found more; \
         divide milliseconds by 1,000"
    )))
}

/// Refuses a parameter of binary bodies beside a JSON body, which would win.
pub fn refuse_parameter(query: Option<&str>, name: &str) -> Result<(), RequestError> {
    match parameter(query, name) {
        None => Ok(()),
        Some(_) => Err(RequestError::BadBody(format!(
            "query: {name}: accepted beside a binary body only; put it into the JSON body"
        ))),
    }
}

/// Reads a body and processes it; a large one on the blocking pool.
pub async fn with_body<T: Send + 'static>(
    room: &BodyRoom,
    body: Body,
    work: impl FnOnce(Bytes) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    // The permit stays until the body is processed.
    let ReadBody {
        bytes,
        permit: _permit,
    } = read(body, LIMITS, |length| room.take(length, Share::Whole)).await?;
    if bytes.len() <= SMALL {
        return work(bytes);
    }
    let worked = tokio::task::spawn_blocking(move || work(bytes)).await;
    worked.unwrap_or(Err(RequestError::Internal.into()))
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
pub const fn is_zero(count: &u64) -> bool {
    *count == 0
}
