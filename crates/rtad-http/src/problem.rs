//! Problem documents: `application/problem+json` (RFC 9457) with a stable `code`.

use std::borrow::Cow;

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, Response, StatusCode};
use axum::response::IntoResponse;
use bytes::Bytes;
use serde::Serialize;

use crate::json::json_of;

/// An error answer. A 503 has `Retry-After: 1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// HTTP status.
    pub status: StatusCode,
    /// Stable code for programs.
    pub code: &'static str,
    /// The kind of error, for people.
    pub title: &'static str,
    /// The found value and the accepted ones. Never a device id.
    pub detail: Cow<'static, str>,
}

impl Problem {
    /// The answer, with a body of the server's type.
    pub fn into_answer<B: From<Bytes>>(self) -> Response<B> {
        #[derive(Serialize)]
        struct Document<'a> {
            title: &'a str,
            status: u16,
            code: &'a str,
            detail: &'a str,
        }
        let Self {
            status,
            code,
            title,
            detail,
        } = &self;
        let document = Document {
            title,
            status: status.as_u16(),
            code,
            detail,
        };
        let mut response = json_of(*status, &document);
        let headers = response.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        if *status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> axum::response::Response {
        self.into_answer()
    }
}
