//! What our HTTP client sees of an answer before [`object_store`] does: headers and bodies that are lost behind it.
//!
//! * A 429 or 503 with `Retry-After` is waited for if that is soon, and otherwise becomes [`Busy`], which the caller can
//!   find in the error: object_store would ask again after a second, whatever the store said.
//! * A 200 to a request for a range becomes [`RangeIgnored`], so that the caller can ask for the whole instead.
//! * The body of an error is cut short: object_store reads all of it for its message, however long it goes on.
//!
//! Only requests that read are treated so; a put's answer goes through as it is.

use std::time::Duration;

use object_store::client::{
    HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};

/// What is waited for here, because it ends sooner than whoever asked would come back.
const SHORT_WAIT: Duration = Duration::from_secs(2);
/// Of an error's body: enough for what S3 has to say.
const MAX_ERROR_BYTES: usize = 1024;
/// For that much of it.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(2);

/// The store asks to be left alone for a while.
#[derive(Debug, thiserror::Error)]
#[error("answers {status} and asks to be left alone for {} s", after.as_secs())]
pub(super) struct Busy {
    status: u16,
    pub(super) after: Duration,
}

/// The whole object came where a part was asked for.
#[derive(Debug, thiserror::Error)]
#[error("the server does not know ranges")]
pub(super) struct RangeIgnored;

/// The client, with an eye on its answers.
#[derive(Debug)]
pub(super) struct Watched(pub(super) reqwest::Client);

#[async_trait::async_trait]
impl HttpService for Watched {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let reads = request.method().is_safe();
        let asks_for_range = reads && request.method() == "GET" && request.headers().contains_key("range");
        let response = HttpService::call(&self.0, request).await?;
        let status = response.status();
        if !reads {
            return Ok(response);
        }
        if asks_for_range && status.as_u16() == 200 {
            return Err(HttpError::new(HttpErrorKind::Unknown, RangeIgnored));
        }
        if matches!(status.as_u16(), 429 | 503)
            && let Some(after) = retry_after(&response)
        {
            if after > SHORT_WAIT {
                return Err(HttpError::new(HttpErrorKind::Unknown, Busy { status: status.as_u16(), after }));
            }
            tokio::time::sleep(after).await;
        }
        if status.is_client_error() || status.is_server_error() {
            let (parts, body) = response.into_parts();
            return Ok(HttpResponse::from_parts(parts, beginning(body).await.into()));
        }
        Ok(response)
    }
}

/// `Retry-After` in seconds. Its other form, a date, is rare and needs two clocks that agree: it is taken for none.
fn retry_after(response: &HttpResponse) -> Option<Duration> {
    let seconds = response.headers().get("retry-after")?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
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
pub(super) fn find<'e, E: std::error::Error + 'static>(
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
