//! Errors of requests that every service answers alike.

use std::time::Duration;

use axum::http::header::{ACCEPT_ENCODING, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use crate::problem::Problem;

/// An error of a request. Details quote nothing from it.
#[derive(Debug, Clone, Default, PartialEq, Eq, strum::EnumIter)]
pub enum RequestError {
    /// The request carries no accepted token; names the setting of tokens.
    Unauthorized(&'static str),
    /// The host is a public name, or a browser sent the request for a page of another origin; names
    /// the setting of accepted hosts.
    CrossSite(&'static str),
    /// The body is not valid for the route.
    BadBody(String),
    /// The body is compressed.
    BadEncoding,
    /// No such route; lists the port's routes.
    NotFound(&'static str),
    /// The route does not accept this method. The router adds `Allow`.
    MethodNotAllowed,
    /// The body did not arrive within this time.
    BodyTimeout(Duration),
    /// The body, or a list in it, is too large.
    TooLarge(String),
    /// Too many requests wait, or too many bytes of them.
    Overloaded,
    /// A defect.
    #[default]
    Internal,
}

impl RequestError {
    /// The error's answer.
    pub fn problem(&self) -> Problem {
        match self {
            Self::Unauthorized(tokens) => Problem::new(
                StatusCode::UNAUTHORIZED,
                "unauthorized",
                "No valid token",
                format!("accepted: Authorization: Bearer TOKEN, with a token of {tokens}"),
            )
            .with_header(
                WWW_AUTHENTICATE,
                HeaderValue::from_static("Bearer realm=\"rtad\""),
            ),
            Self::CrossSite(hosts) => Problem::new(
                StatusCode::FORBIDDEN,
                "cross_site",
                "Cross-site request",
                format!(
                    "the Host is a public name, or a browser sent this request for a page of \
                     another origin; accepted: an address, a private name or a name of {hosts} as \
                     Host, and pages of this port"
                ),
            ),
            Self::BadBody(detail) => Problem::new(
                StatusCode::BAD_REQUEST,
                "bad_body",
                "Body not understood",
                detail.clone(),
            ),
            Self::BadEncoding => Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "bad_encoding",
                "Body compressed",
                "accepted: bodies without Content-Encoding, which are not compressed",
            )
            .with_header(ACCEPT_ENCODING, HeaderValue::from_static("identity")),
            Self::NotFound(routes) => Problem::new(
                StatusCode::NOT_FOUND,
                "not_found",
                "No such route",
                format!("accepted: {routes}"),
            ),
            Self::MethodNotAllowed => Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                "Wrong method",
                "the Allow header lists the accepted methods",
            ),
            Self::BodyTimeout(timeout) => Problem::new(
                StatusCode::REQUEST_TIMEOUT,
                "timeout",
                "Body too slow",
                format!("the body did not arrive within {timeout:?}"),
            ),
            Self::TooLarge(detail) => Problem::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "too_large",
                "Too large",
                detail.clone(),
            ),
            Self::Overloaded => Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "overloaded",
                "Overloaded",
                "too many requests wait, or too many bytes of them; nothing was acknowledged",
            ),
            Self::Internal => Problem::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal",
                "Internal error",
                "internal error; its source location is in the log",
            ),
        }
    }
}

impl IntoResponse for RequestError {
    fn into_response(self) -> Response {
        self.problem().into_response()
    }
}
