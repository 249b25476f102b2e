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
        let reads = request.method().is_safe();
        let list = listing::is_list(&request)
            .then(|| request.uri().query().unwrap_or_default().to_owned());
        let method = request.method().to_string();
        let response = HttpService::call(&self.0, request).await?;
        let status = response.status();
        if reads && status.as_u16() == 405 {
            return Err(HttpError::new(
                HttpErrorKind::Unknown,
                MethodRefused { method },
            ));
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
