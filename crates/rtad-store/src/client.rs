//! HTTP client below [`object_store`]: handles response headers and bodies that it would hide.
//!
//! * A page that is no list, or lacks its continuation, is an error (`client/listing.rs`). So is a
//!   405, which object_store would report as a missing object.
//! * Error bodies are cut to a short excerpt (`client/excerpt.rs`): object_store would read all of
//!   them into its message, which ends in logs.
//!
//! All but the last apply to reads only.

mod excerpt;
mod listing;

use std::time::Duration;

use object_store::client::{
    HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};

/// Bytes read of an error's body: S3 puts its code and message first.
const MAX_ERROR_BYTES: usize = 1024;
/// Time for reading an error's body.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(2);

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
        let method = request.method().clone();
        let is_list = listing::is_list(&request);
        let response = HttpService::call(&self.0, request).await?;

        let status = response.status();
        if status.as_u16() == 405 && method.is_safe() {
            let method = method.to_string();
            return Err(unknown(MethodRefused { method }));
        }
        let (parts, body) = response.into_parts();
        if status.is_client_error() || status.is_server_error() {
            let excerpt = excerpt::of(&read_beginning(body).await);
            return Ok(HttpResponse::from_parts(parts, excerpt.into()));
        }
        if !is_list || !status.is_success() {
            return Ok(HttpResponse::from_parts(parts, body));
        }

        let page = body.bytes().await?;
        listing::check(&page).map_err(unknown)?;
        Ok(HttpResponse::from_parts(parts, page.into()))
    }
}

/// An error that is not retried.
fn unknown(error: impl std::error::Error + Send + Sync + 'static) -> HttpError {
    HttpError::new(HttpErrorKind::Unknown, error)
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
