//! Problem documents: `application/problem+json` (RFC 9457) with a stable `code`.

use std::borrow::Cow;

use axum::http::header::{CONTENT_TYPE, HeaderName, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Serialize, Serializer};

use crate::answer::json_of;

/// An error answer. A 503 has `Retry-After: 1`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The kind of error, for people.
    title: &'static str,
    #[serde(serialize_with = "number")]
    status: StatusCode,
    code: &'static str,
    /// The found value and the accepted ones. Never a device id.
    detail: Cow<'static, str>,
    #[serde(skip)]
    header: Option<(HeaderName, HeaderValue)>,
}

impl Problem {
    /// A problem with a title for people, and a detail with the accepted values.
    pub fn new(
        status: StatusCode,
        code: &'static str,
        title: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            title,
            status,
            code,
            detail: detail.into(),
            header: None,
        }
    }

    /// Adds a header of the answer.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.header = Some((name, value));
        self
    }

    /// HTTP status.
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// The found value and the accepted ones.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Stable code for programs.
    pub const fn code(&self) -> &'static str {
        self.code
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = json_of(self.status, &self);
        let headers = response.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if let Some((name, value)) = self.header {
            headers.insert(name, value);
        }
        response
    }
}

fn number<S: Serializer>(status: &StatusCode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u16(status.as_u16())
}
