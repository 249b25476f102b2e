//! Errors as RFC 9457 problem documents with a stable `code`.

use axum::http::header::WWW_AUTHENTICATE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use rtad_core::device::IdKind;
use rtad_core::snapshot::State;
use rtad_http::body::BodyError;
use rtad_http::problem::Problem;
use rtad_store::StoreError;

use super::batch::Op;

/// A refused request; nothing of it was acknowledged. Details name the accepted values and quote no
/// id.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub(super) enum ApiError {
    /// No token, or a wrong one.
    Unauthorized,
    /// A body that the route does not accept.
    BadBody(String),
    /// An invalid audience name in the path.
    BadAudience,
    /// No such operation.
    UnknownOp,
    /// No such id kind.
    UnknownKind,
    /// Nothing was ever published under the name.
    UnknownAudience,
    /// No such route.
    NotFound,
    /// Another method than those of the route.
    MethodNotAllowed,
    /// The body did not arrive in time.
    BodyTimeout,
    /// The audience to create exists.
    Exists,
    /// The audience is disabled.
    Disabled,
    /// The audience was deleted.
    Deleted,
    /// A build or a gc has the audience.
    Busy,
    /// The body, or a list in it, is too large.
    TooLarge(String),
    /// The queue is full.
    Overloaded,
    /// Other processes replaced `CURRENT` at every try.
    Contended,
    /// The store failed.
    Store,
    /// A build is due before further deltas.
    DeltasFull,
    /// The answer took too long.
    NoAnswer,
    /// The process is draining.
    Draining,
    /// An internal error.
    Internal,
}

impl ApiError {
    /// The problem's `code`, and the label in metrics.
    pub(super) const fn code(&self) -> &'static str {
        self.words().1
    }

    const fn words(&self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "unauthorized", "No valid token"),
            Self::BadBody(_) => (StatusCode::BAD_REQUEST, "bad_body", "Body not understood"),
            Self::BadAudience => {
                (StatusCode::BAD_REQUEST, "bad_audience", "Not an audience's name")
            }
            Self::UnknownOp => (StatusCode::BAD_REQUEST, "unknown_op", "No such operation"),
            Self::UnknownKind => (StatusCode::NOT_FOUND, "unknown_kind", "No such id kind"),
            Self::UnknownAudience => {
                (StatusCode::NOT_FOUND, "unknown_audience", "No such audience")
            }
            Self::NotFound => (StatusCode::NOT_FOUND, "not_found", "No such route"),
            Self::MethodNotAllowed => {
                (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "Wrong method")
            }
            Self::BodyTimeout => (StatusCode::REQUEST_TIMEOUT, "timeout", "Body too slow"),
            Self::Exists => (StatusCode::CONFLICT, "exists", "Audience exists"),
            Self::Disabled => (StatusCode::CONFLICT, "disabled", "Audience disabled"),
            Self::Busy => (StatusCode::CONFLICT, "busy", "Audience busy"),
            Self::Deleted => (StatusCode::GONE, "deleted", "Audience deleted"),
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "too_large", "Too large"),
            Self::Overloaded => (StatusCode::SERVICE_UNAVAILABLE, "overloaded", "Overloaded"),
            Self::Contended => {
                (StatusCode::SERVICE_UNAVAILABLE, "contended", "Other writers were faster")
            }
            Self::Store => (StatusCode::SERVICE_UNAVAILABLE, "store", "Store failed"),
            Self::DeltasFull => (StatusCode::SERVICE_UNAVAILABLE, "deltas_full", "A build is due"),
            Self::NoAnswer => (StatusCode::SERVICE_UNAVAILABLE, "no_answer", "No answer in time"),
            Self::Draining => (StatusCode::SERVICE_UNAVAILABLE, "draining", "Stopping"),
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal", "Internal error"),
        }
    }

    fn detail(self) -> String {
        match self {
            Self::BadBody(detail) | Self::TooLarge(detail) => detail,
            Self::UnknownOp => format!("accepted: {}", Op::ALL.map(Op::as_str).join(", ")),
            Self::UnknownKind => {
                format!("accepted: {}", IdKind::ALL.map(IdKind::as_str).join(", "))
            }
            Self::Unauthorized => {
                "accepted: Authorization: Bearer TOKEN, with a token of --token-file".to_owned()
            }
            Self::BadAudience => {
                "accepted: 1 to 64 of a-z, 0-9, _ and -, starting with a letter or digit".to_owned()
            }
            Self::UnknownAudience => {
                "nothing was published under this name; PUT /v1/audiences/{audience} creates it empty"
                    .to_owned()
            }
            Self::NotFound => {
                "accepted: /v1/audiences, /v1/audiences/{audience}, and below it /devices, /disable, \
                 /enable, /expire"
                    .to_owned()
            }
            Self::MethodNotAllowed => "the Allow header names those that this route takes".to_owned(),
            Self::BodyTimeout => "the body did not arrive within 30 s".to_owned(),
            Self::Exists => "it is as it was; DELETE it first to begin anew".to_owned(),
            Self::Disabled => "nothing was changed; POST /v1/audiences/{audience}/enable".to_owned(),
            Self::Deleted => "PUT /v1/audiences/{audience} creates it anew, without what it had".to_owned(),
            Self::Busy => {
                "a build, a gc or a deletion is at work on it; try again when it is done".to_owned()
            }
            Self::Overloaded => "too much is waiting to be written; nothing was acknowledged".to_owned(),
            Self::Contended => "other writers replaced CURRENT each time; nothing was changed".to_owned(),
            Self::Store => {
                "the store did not take it, the log says why; not acknowledged, it may be sent again"
                    .to_owned()
            }
            Self::DeltasFull => {
                "the deltas hold as much as they may; run `rtad-loader build` first".to_owned()
            }
            Self::NoAnswer => {
                "not acknowledged, though it may yet be written; it may be sent again".to_owned()
            }
            Self::Draining => "this process is stopping; nothing was changed".to_owned(),
            Self::Internal => "internal error; its source location is in the log".to_owned(),
        }
    }

    /// Error of a write to an audience that is not live.
    pub(super) const fn of_state(state: State) -> Self {
        match state {
            State::Deleted => Self::Deleted,
            _ => Self::Disabled,
        }
    }
}

impl From<&StoreError> for ApiError {
    fn from(error: &StoreError) -> Self {
        match error {
            StoreError::TooManyDeltas { .. } => Self::DeltasFull,
            StoreError::NotLive { state, .. } => Self::of_state(*state),
            _ => Self::Store,
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
        let is_unauthorized = self == Self::Unauthorized;
        let (status, code, title) = self.words();
        let detail = self.detail().into();
        let mut response = Problem { status, code, title, detail }.into_response();
        if is_unauthorized {
            let bearer = HeaderValue::from_static("Bearer realm=\"rtad-loader\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, bearer);
        }
        response
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
            ApiError::Unauthorized,
            ApiError::BadBody(String::new()),
            ApiError::BadAudience,
            ApiError::UnknownOp,
            ApiError::UnknownKind,
            ApiError::UnknownAudience,
            ApiError::NotFound,
            ApiError::MethodNotAllowed,
            ApiError::BodyTimeout,
            ApiError::Exists,
            ApiError::Disabled,
            ApiError::Deleted,
            ApiError::Busy,
            ApiError::TooLarge(String::new()),
            ApiError::Overloaded,
            ApiError::Contended,
            ApiError::Store,
            ApiError::DeltasFull,
            ApiError::NoAnswer,
            ApiError::Draining,
            ApiError::Internal,
        ];
        assert_every_variant(ApiError::FIELD_NAMES, &errors);
        let rows = errors.map(|error| {
            let (status, code, _) = error.words();
            [status.as_str().to_owned(), code.to_owned()]
        });
        assert_listed("errors.md", "Write service codes", rows);
    }
}
