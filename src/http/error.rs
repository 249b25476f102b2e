//! Errors of the JSON routes, as RFC 9457 problem documents with a stable `code`.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use rtad_core::device::{IdKind, Unusable};
use rtad_http::body::BodyError;
use rtad_http::problem::Problem;

/// An error of the JSON routes. The details name what is accepted; none quotes an id.
#[derive(Debug)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub(super) enum ApiError {
    /// The id in the path is not one.
    BadId(IdKind, Unusable),
    /// The body is not what the route takes.
    BadBody(String),
    /// No such audience.
    UnknownAudience(Vec<String>),
    /// No such strategy.
    UnknownStrategy(Vec<String>),
    /// No such platform.
    UnknownPlatform(Vec<String>),
    /// No such id kind.
    UnknownKind,
    /// No such route; of the port's there are these.
    NotFound(&'static str),
    /// A page of another origin has a browser ask.
    CrossSite,
    /// The route exists, but not for this method.
    MethodNotAllowed,
    /// The body did not arrive in time.
    BodyTimeout,
    /// The body, or a list in it, is too large.
    TooLarge(String),
    /// The audience has no snapshot, or one that is too old.
    NotLoaded,
    /// More requests than are answered at a time.
    Overloaded,
    /// An error in rtad itself.
    Internal,
}

impl ApiError {
    fn parts(self) -> (StatusCode, &'static str, &'static str, String) {
        let list = |names: Vec<String>| format!("accepted: {}", names.join(", "));
        match self {
            Self::BadId(kind, Unusable::Blank) => (
                StatusCode::BAD_REQUEST,
                "bad_id",
                "Not a device id",
                format!("this {kind} stands for \"no id\""),
            ),
            Self::BadId(kind, Unusable::Malformed) => (
                StatusCode::BAD_REQUEST,
                "bad_id",
                "Not a device id",
                format!("kind {kind} accepts {}", kind.accepted()),
            ),
            Self::BadBody(detail) => (StatusCode::BAD_REQUEST, "bad_body", "Body not understood", detail),
            Self::UnknownAudience(names) => (StatusCode::NOT_FOUND, "unknown_audience", "No such audience", list(names)),
            Self::UnknownStrategy(names) => (StatusCode::NOT_FOUND, "unknown_strategy", "No such strategy", list(names)),
            Self::UnknownPlatform(names) if names.is_empty() => (
                StatusCode::NOT_FOUND,
                "unknown_platform",
                "No such platform",
                "accepted: none, as the config has no [[platform]]".to_owned(),
            ),
            Self::UnknownPlatform(names) => {
                (StatusCode::NOT_FOUND, "unknown_platform", "No such platform", list(names))
            }
            Self::UnknownKind => {
                let kinds = IdKind::ALL.map(|kind| kind.to_string()).to_vec();
                (StatusCode::NOT_FOUND, "unknown_kind", "No such id kind", list(kinds))
            }
            Self::NotFound(routes) => {
                (StatusCode::NOT_FOUND, "not_found", "No such route", format!("accepted: {routes}"))
            }
            Self::CrossSite => (
                StatusCode::FORBIDDEN,
                "cross_site",
                "Asked by another site",
                "a browser sent this for a page of another origin; the console, and whatever is no browser, may ask"
                    .to_owned(),
            ),
            Self::MethodNotAllowed => (
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                "Wrong method",
                "the Allow header names those that this route takes".to_owned(),
            ),
            Self::BodyTimeout => (
                StatusCode::REQUEST_TIMEOUT,
                "timeout",
                "Body too slow",
                "the body did not arrive within 5 s, or server.idle_timeout if that is less".to_owned(),
            ),
            Self::TooLarge(detail) => (StatusCode::PAYLOAD_TOO_LARGE, "too_large", "Too large", detail),
            Self::NotLoaded => (
                StatusCode::SERVICE_UNAVAILABLE,
                "not_loaded",
                "Audience not loaded",
                "it has no verified snapshot yet, or one that is older than its max_age or has expired; see /v1/status of the admin port"
                    .to_owned(),
            ),
            Self::Overloaded => (
                StatusCode::SERVICE_UNAVAILABLE,
                "overloaded",
                "Overloaded",
                "server.max_in_flight requests wait for their bodies, or this one has waited for longer than server.max_wait"
                    .to_owned(),
            ),
            Self::Internal => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal",
                "Internal error",
                "internal error; its source location is in the log".to_owned(),
            ),
        }
    }
}

impl From<BodyError> for ApiError {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge(limit) => Self::TooLarge(format!("the body is over {limit} bytes")),
            BodyError::Timeout => Self::BodyTimeout,
            BodyError::Broken => {
                Self::BadBody("the body broke off or is not valid HTTP".to_owned())
            }
            BodyError::Overloaded => Self::Overloaded,
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, code, title, detail) = self.parts();
        Problem { status, code, title, detail: detail.into() }.into_response()
    }
}

#[cfg(test)]
mod tests {
    use documented::DocumentedFieldsOpt as _;
    use testkit::reference::{assert_every_variant, assert_listed};

    use super::*;

    #[test]
    fn error_reference_lists_every_code() {
        let errors = [
            ApiError::BadId(IdKind::Md5, Unusable::Blank),
            ApiError::BadBody(String::new()),
            ApiError::UnknownAudience(Vec::new()),
            ApiError::UnknownStrategy(Vec::new()),
            ApiError::UnknownPlatform(Vec::new()),
            ApiError::UnknownKind,
            ApiError::NotFound(""),
            ApiError::CrossSite,
            ApiError::MethodNotAllowed,
            ApiError::BodyTimeout,
            ApiError::TooLarge(String::new()),
            ApiError::NotLoaded,
            ApiError::Overloaded,
            ApiError::Internal,
        ];
        assert_every_variant(ApiError::FIELD_NAMES, &errors);
        let of_error = |error: ApiError| {
            let (status, code, ..) = error.parts();
            [status.as_str().to_owned(), code.to_owned()]
        };
        let of_reload = ["422", "bad_config"].map(str::to_owned);
        let rows = errors.into_iter().map(of_error).chain([of_reload]);
        assert_listed("errors.md", "Service codes", rows);
    }
}
