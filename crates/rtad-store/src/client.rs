//! What our HTTP client sees of an answer before [`object_store`] does: headers and bodies that are lost behind it.
//!
//! * A 429 or 503 with `Retry-After` is waited for if that is soon, and otherwise becomes [`Busy`], which the caller can
//!   find in the error: object_store would ask again after a second, whatever the store said.
//! * A 200 to a request for a range becomes [`RangeIgnored`], so that the caller can ask for the whole instead.
//! * The body of an error is cut short (`client/excerpt.rs`): object_store reads all of it for its message, however long
//!   it goes on, and messages end in logs.
//!
//! Waiting and ranges concern only requests that read; a put that goes well goes through as it is.

mod excerpt;

use std::time::{Duration, SystemTime};

use object_store::client::{
    HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};

/// What is waited for here, because it ends sooner than whoever asked would come back.
const SHORT_WAIT: Duration = Duration::from_secs(2);
/// Read of an error's body: what S3 has to say stands at its beginning.
const MAX_ERROR_BYTES: usize = 1024;
/// For that much of it.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(2);

/// The store asks to be left alone for a while.
#[derive(Debug, thiserror::Error)]
#[error("answers {status} and asks to be left alone for {} s", after.as_secs())]
pub(crate) struct Busy {
    status: u16,
    pub(crate) after: Duration,
}

/// The whole object came where a part was asked for.
#[derive(Debug, thiserror::Error)]
#[error("the server does not know ranges")]
pub(crate) struct RangeIgnored;

/// The client, with an eye on its answers.
#[derive(Debug)]
pub(crate) struct Watched(pub(crate) reqwest::Client);

#[async_trait::async_trait]
impl HttpService for Watched {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let reads = request.method().is_safe();
        let asks_for_range =
            reads && request.method() == "GET" && request.headers().contains_key("range");
        let response = HttpService::call(&self.0, request).await?;
        let status = response.status();
        if asks_for_range && status.as_u16() == 200 {
            return Err(HttpError::new(HttpErrorKind::Unknown, RangeIgnored));
        }
        if reads
            && matches!(status.as_u16(), 429 | 503)
            && let Some(after) = retry_after(&response)
        {
            if after > SHORT_WAIT {
                return Err(HttpError::new(
                    HttpErrorKind::Unknown,
                    Busy { status: status.as_u16(), after },
                ));
            }
            tokio::time::sleep(after).await;
        }
        if status.is_client_error() || status.is_server_error() {
            let (parts, body) = response.into_parts();
            return Ok(HttpResponse::from_parts(parts, excerpt::of(&beginning(body).await).into()));
        }
        Ok(response)
    }
}

/// `Retry-After`, in seconds or as a date. A date is counted from the answer's own `Date`, so that no two clocks need agree; from
/// ours if there is none.
fn retry_after(response: &HttpResponse) -> Option<Duration> {
    let field = |name: &str| Some(response.headers().get(name)?.to_str().ok()?.trim());
    let asked = field("retry-after")?;
    if let Ok(seconds) = asked.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = httpdate::parse_http_date(asked).ok()?;
    let now = field("date").and_then(|date| httpdate::parse_http_date(date).ok());
    // One that has passed asks for nothing more.
    Some(until.duration_since(now.unwrap_or_else(SystemTime::now)).unwrap_or_default())
}

/// What comes of a body soon, up to a limit. One that breaks off says as much as it said.
async fn beginning(body: HttpResponseBody) -> String {
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

/// The first of its kind among an error and its causes.
pub(crate) fn find<'e, E: std::error::Error + 'static>(
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

    fn asked(fields: &[(&'static str, &str)]) -> Option<Duration> {
        let mut response = HttpResponse::new(String::new().into());
        for (name, value) in fields {
            response.headers_mut().insert(*name, value.parse().unwrap());
        }
        retry_after(&response)
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_by_the_server_s_clock() {
        const HOUR: Option<Duration> = Some(Duration::from_secs(3600));
        let (now, later) = ("Sat, 01 Jan 2000 00:00:00 GMT", "Sat, 01 Jan 2000 01:00:00 GMT");
        assert_eq!(asked(&[("retry-after", " 3600 ")]), HOUR);
        assert_eq!(asked(&[("date", now), ("retry-after", later)]), HOUR);
        assert_eq!(asked(&[("date", later), ("retry-after", now)]), Some(Duration::ZERO));
        // By our own clock: past.
        assert_eq!(asked(&[("retry-after", later)]), Some(Duration::ZERO));
        assert_eq!(asked(&[("date", "today"), ("retry-after", later)]), Some(Duration::ZERO));
        let far = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(100_000));
        assert!(asked(&[("retry-after", &far)]) > HOUR);
        for neither in ["", "soon", "-1", "3600 s", "2000-01-01"] {
            assert_eq!(asked(&[("retry-after", neither)]), None, "{neither:?}");
        }
        assert_eq!(asked(&[]), None);
    }
}
