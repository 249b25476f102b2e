//! HTTP client below [`object_store`]: handles response headers and bodies that it would hide.
//!
//! * A short `Retry-After` on a 429 or 503 is waited for. A longer one becomes [`Busy`] in the
//!   error: object_store would retry after a second.
//! * A 200 to a range request becomes [`RangeIgnored`], so that the caller can request the whole
//!   object.
//! * A page that is no list, or lacks its continuation, is an error (`client/listing.rs`). So is a
//!   405, which object_store would report as a missing object.
//! * Error bodies are cut to a short excerpt (`client/excerpt.rs`): object_store would read all of
//!   them into its message, which ends in logs.
//!
//! All but the last apply to reads only.

mod excerpt;
mod listing;

use std::time::{Duration, SystemTime};

use object_store::client::{
    HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};

/// Longest `Retry-After` that is waited for here.
const SHORT_WAIT: Duration = Duration::from_secs(2);
/// Bytes read of an error's body: S3 puts its code and message first.
const MAX_ERROR_BYTES: usize = 1024;
/// Time for reading an error's body.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(2);

/// The store is overloaded, and answered with `Retry-After`.
#[derive(Debug, thiserror::Error)]
#[error("answered {status} with Retry-After: {} s", after.as_secs())]
pub struct Busy {
    status: u16,
    pub(crate) after: Duration,
}

/// The answer to a range request was the whole object.
#[derive(Debug, thiserror::Error)]
#[error("the server does not support ranges")]
pub struct RangeIgnored;

/// The server does not support a method, such as HEAD.
#[derive(Debug, thiserror::Error)]
#[error("the server refuses {method} with 405; it must support GET and HEAD")]
struct MethodRefused {
    method: String,
}

/// An HTTP client that inspects responses.
#[derive(Debug)]
pub struct InspectingClient(pub reqwest::Client);

#[async_trait::async_trait]
impl HttpService for InspectingClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let reads = request.method().is_safe();
        let wants_range =
            reads && request.method() == "GET" && request.headers().contains_key("range");
        let list = listing::is_list(&request)
            .then(|| request.uri().query().unwrap_or_default().to_owned());
        let method = request.method().to_string();
        let response = HttpService::call(&self.0, request).await?;
        let status = response.status();
        if wants_range && status.as_u16() == 200 {
            return Err(HttpError::new(HttpErrorKind::Unknown, RangeIgnored));
        }
        if reads && status.as_u16() == 405 {
            return Err(HttpError::new(
                HttpErrorKind::Unknown,
                MethodRefused { method },
            ));
        }
        if reads
            && matches!(status.as_u16(), 429 | 503)
            && let Some(after) = retry_after(&response)
        {
            if after > SHORT_WAIT {
                return Err(HttpError::new(
                    HttpErrorKind::Unknown,
                    Busy {
                        status: status.as_u16(),
                        after,
                    },
                ));
            }
            tokio::time::sleep(after).await;
        }
        if status.is_client_error() || status.is_server_error() {
            let (parts, body) = response.into_parts();
            return Ok(HttpResponse::from_parts(
                parts,
                excerpt::of(&read_beginning(body).await).into(),
            ));
        }
        let Some(query) = list.filter(|_| status.is_success()) else {
            return Ok(response);
        };
        let (parts, body) = response.into_parts();
        let page = body.bytes().await?;
        listing::check(&query, &page)
            .map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
        Ok(HttpResponse::from_parts(parts, page.into()))
    }
}

/// `Retry-After`, in seconds or as a date. A date is relative to the response's own `Date`, so that
/// the clocks need not agree; to the local clock if there is none.
fn retry_after(response: &HttpResponse) -> Option<Duration> {
    let field = |name: &str| Some(response.headers().get(name)?.to_str().ok()?.trim());
    let value = field("retry-after")?;
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = httpdate::parse_http_date(value).ok()?;
    let now = field("date").and_then(|date| httpdate::parse_http_date(date).ok());
    // A past date means no wait.
    Some(
        until
            .duration_since(now.unwrap_or_else(SystemTime::now))
            .unwrap_or_default(),
    )
}

/// The first bytes of a body, within a size and a time. An aborted body gives its bytes so far.
async fn read_beginning(body: HttpResponseBody) -> String {
    use futures_util::StreamExt as _;

    let mut bytes = Vec::new();
    let mut pieces = body.bytes_stream();
    let read = async {
        while let Some(Ok(piece)) = pieces.next().await {
            let left = MAX_ERROR_BYTES - bytes.len();
            bytes.extend_from_slice(&piece[..piece.len().min(left)]);
            if bytes.len() == MAX_ERROR_BYTES {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(ERROR_BODY_TIMEOUT, read).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The first error of type `E` in an error's chain.
pub fn find<'e, E: std::error::Error + 'static>(
    error: &'e (dyn std::error::Error + 'static),
) -> Option<&'e E> {
    let mut next = Some(error);
    while let Some(cause) = next {
        if let Some(found) = cause.downcast_ref() {
            return Some(found);
        }
        next = cause.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(fields: &[(&'static str, &str)]) -> Option<Duration> {
        let mut response = HttpResponse::new(String::new().into());
        for (name, value) in fields {
            response.headers_mut().insert(*name, value.parse().unwrap());
        }
        retry_after(&response)
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_by_the_server_clock() {
        const HOUR: Option<Duration> = Some(Duration::from_secs(3600));
        let (now, later) = (
            "Sat, 01 Jan 2000 00:00:00 GMT",
            "Sat, 01 Jan 2000 01:00:00 GMT",
        );
        assert_eq!(parsed(&[("retry-after", " 3600 ")]), HOUR);
        assert_eq!(parsed(&[("date", now), ("retry-after", later)]), HOUR);
        assert_eq!(
            parsed(&[("date", later), ("retry-after", now)]),
            Some(Duration::ZERO)
        );
        // The local clock is past it.
        assert_eq!(parsed(&[("retry-after", later)]), Some(Duration::ZERO));
        assert_eq!(
            parsed(&[("date", "today"), ("retry-after", later)]),
            Some(Duration::ZERO)
        );
        let far = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(100_000));
        assert!(parsed(&[("retry-after", &far)]) > HOUR);
        for invalid in ["", "soon", "-1", "3600 s", "2000-01-01"] {
            assert_eq!(parsed(&[("retry-after", invalid)]), None, "{invalid:?}");
        }
        assert_eq!(parsed(&[]), None);
    }
}
