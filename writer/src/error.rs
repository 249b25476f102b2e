//! Errors of the writer: RFC 9457 problem documents with a stable `code`.

use axum::http::header::{ACCEPT_ENCODING, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use rtad_core::device::IdKind;
use rtad_core::snapshot::State;
use rtad_http::body::BodyError;
use rtad_http::json::NotJson;
use rtad_http::problem::Problem;
use rtad_store::StoreError;
use rtad_store::write::MAX_TOMBSTONES;

use super::op::Op;

/// Error of a request; nothing was acknowledged. Details name the accepted values and quote no ids.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub enum ApiError {
    /// No token, or a wrong one.
    Unauthorized,
    /// The token has not the scope.
    MissingScope(String),
    /// The host is a public name, or a browser sent the request for a page of another origin.
    CrossSite,
    /// The body is invalid for the route.
    BadBody(String),
    /// The body is compressed.
    BadEncoding,
    /// The audience name in the path is invalid.
    BadAudience,
    /// The operation does not exist.
    UnknownOp,
    /// The id kind does not exist.
    UnknownKind,
    /// The audience was never published.
    UnknownAudience,
    /// No such route.
    NotFound,
    /// Another method than those of the route.
    MethodNotAllowed,
    /// The body did not arrive in time.
    BodyTimeout,
    /// No such window.
    UnknownWindow,
    /// The window takes no click callbacks.
    NoCallback,
    /// The id kind does not exist for windows.
    UnknownWindowKind,
    /// The idempotency key was used for another request.
    RequestKeyReused,
    /// Values for an audience whose generation has none.
    NoValues,
    /// The audience follows a window.
    Owned,
    /// An event of the request found no room in the window.
    WindowFull,
    /// The window's backend is out of memory.
    BackendFull,
    /// The window's log cannot be written, or its owner has no lease, or another owner has claimed
    /// the window.
    NotDurable,
    /// The window's backend failed.
    Backend,
    /// The audience to create exists.
    Exists,
    /// The audience is disabled and rejects writes.
    Disabled,
    /// The audience was deleted.
    Deleted,
    /// A build or a gc holds the audience.
    Busy,
    /// The body, or a list in it, is too large.
    TooLarge(String),
    /// The queue of waiting writes or events is full.
    Overloaded,
    /// All attempts conflicted with other writers.
    Contended,
    /// The store failed.
    Store,
    /// The deltas are at their limit; a build is due.
    DeltasFull,
    /// The tombstones are at their limit.
    TombstonesFull,
    /// The write did not finish in time.
    NoAnswer,
    /// The process is stopping.
    Draining,
    /// An internal error.
    Internal,
}

impl ApiError {
    /// The problem's `code`, also a label in metrics.
    pub const fn code(&self) -> &'static str {
        self.words().1
    }

    const fn words(&self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "unauthorized", "No valid token"),
            Self::MissingScope(_) => (StatusCode::FORBIDDEN, "missing_scope", "Scope missing"),
            Self::CrossSite => (StatusCode::FORBIDDEN, "cross_site", "Cross-site request"),
            Self::BadBody(_) => (StatusCode::BAD_REQUEST, "bad_body", "Body not understood"),
            Self::BadEncoding => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "bad_encoding",
                "Body compressed",
            ),
            Self::BadAudience => (
                StatusCode::BAD_REQUEST,
                "bad_audience",
                "Not an audience's name",
            ),
            Self::UnknownOp => (StatusCode::BAD_REQUEST, "unknown_op", "No such operation"),
            Self::UnknownKind => (StatusCode::NOT_FOUND, "unknown_kind", "No such id kind"),
            Self::UnknownAudience => (
                StatusCode::NOT_FOUND,
                "unknown_audience",
                "No such audience",
            ),
            Self::UnknownWindow => (StatusCode::NOT_FOUND, "unknown_window", "No such window"),
            Self::NoCallback => (StatusCode::NOT_FOUND, "no_callback", "No click callbacks"),
            Self::UnknownWindowKind => (StatusCode::NOT_FOUND, "unknown_kind", "No such id kind"),
            Self::RequestKeyReused => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "idempotency_key_reused",
                "Key of another request",
            ),
            Self::Owned => (StatusCode::CONFLICT, "owned", "Audience follows a window"),
            Self::NoValues => (StatusCode::CONFLICT, "no_values", "Audience without values"),
            Self::WindowFull | Self::BackendFull => (
                StatusCode::SERVICE_UNAVAILABLE,
                "window_full",
                "Window full",
            ),
            Self::Backend => (StatusCode::SERVICE_UNAVAILABLE, "backend", "Backend failed"),
            Self::NotDurable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "not_durable",
                "Event not written",
            ),
            Self::NotFound => (StatusCode::NOT_FOUND, "not_found", "No such route"),
            Self::MethodNotAllowed => (
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                "Wrong method",
            ),
            Self::BodyTimeout => (StatusCode::REQUEST_TIMEOUT, "timeout", "Body too slow"),
            Self::Exists => (StatusCode::CONFLICT, "exists", "Audience exists"),
            Self::Disabled => (StatusCode::CONFLICT, "disabled", "Audience disabled"),
            Self::Busy => (StatusCode::CONFLICT, "busy", "Audience busy"),
            Self::Deleted => (StatusCode::GONE, "deleted", "Audience deleted"),
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "too_large", "Too large"),
            Self::Overloaded => (StatusCode::SERVICE_UNAVAILABLE, "overloaded", "Overloaded"),
            Self::Contended => (
                StatusCode::SERVICE_UNAVAILABLE,
                "contended",
                "Other writers were faster",
            ),
            Self::Store => (StatusCode::SERVICE_UNAVAILABLE, "store", "Store failed"),
            Self::DeltasFull => (
                StatusCode::SERVICE_UNAVAILABLE,
                "deltas_full",
                "A build is due",
            ),
            Self::TombstonesFull => (
                StatusCode::SERVICE_UNAVAILABLE,
                "tombstones_full",
                "Too many tombstones",
            ),
            Self::NoAnswer => (
                StatusCode::SERVICE_UNAVAILABLE,
                "no_answer",
                "No answer in time",
            ),
            Self::Draining => (StatusCode::SERVICE_UNAVAILABLE, "draining", "Stopping"),
            Self::Internal => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal",
                "Internal error",
            ),
        }
    }

    fn detail(self) -> String {
        match self {
            Self::BadBody(detail) | Self::TooLarge(detail) => detail,
            Self::BadEncoding => {
                "accepted: bodies without Content-Encoding, which are not compressed".to_owned()
            }
            Self::UnknownOp => format!("accepted: {}", Op::ALL.map(Op::as_str).join(", ")),
            Self::UnknownKind => {
                format!("accepted: {}", IdKind::ALL.map(IdKind::as_str).join(", "))
            }
            Self::UnknownWindow => {
                "accepted: the names of [[window]] in the file of --config; GET /v1/windows lists \
                 them"
                    .to_owned()
            }
            Self::NoCallback => {
                "the window has no [window.callback] in the file of --config; POST counts events"
                    .to_owned()
            }
            Self::UnknownWindowKind => {
                let kinds = IdKind::ALL.map(IdKind::as_str).join(", ");
                format!("accepted: {kinds}, text")
            }
            Self::RequestKeyReused => {
                "the Idempotency-Key was used for a request with another body within the window's \
                 answers_time; nothing was counted"
                    .to_owned()
            }
            Self::Owned => {
                "nothing was changed; the audience follows a window: send events to the window, \
                 or forget them there; tombstones are accepted"
                    .to_owned()
            }
            Self::NoValues => {
                "nothing was changed; values need a generation of `rtad-loader build --value`"
                    .to_owned()
            }
            Self::WindowFull => {
                "an event found no room in the window, and no event of the request was counted: \
                 move to a larger window under another name"
                    .to_owned()
            }
            Self::BackendFull => {
                "the server that holds the window is out of memory: raise its maxmemory; some \
                 events may have been counted: retry with the same Idempotency-Key"
                    .to_owned()
            }
            Self::Backend => {
                "the server that holds the window failed, see the log; some events may have been \
                 counted: retry with the same Idempotency-Key"
                    .to_owned()
            }
            Self::NotDurable => {
                "the window's log cannot be written, or this owner has no lease, or another owner \
                 has claimed the window, see the log; nothing was acknowledged: retry with the \
                 same Idempotency-Key"
                    .to_owned()
            }
            Self::Unauthorized => {
                "accepted: Authorization: Bearer TOKEN, with a token of --token-file or of a \
                 [[token]] of --config"
                    .to_owned()
            }
            Self::MissingScope(scope) => {
                format!("the token has not the scope {scope}; accepted: a token with it")
            }
            Self::CrossSite => {
                "the Host is a public name, or a browser sent this request for a page of another \
                 origin; accepted: an address, a private name, or on the admin port a name of \
                 --admin-host as Host, and clients that are not browsers"
                    .to_owned()
            }
            Self::BadAudience => {
                "accepted: 1 to 64 of a-z, 0-9, _ and -, starting with a letter or digit".to_owned()
            }
            Self::UnknownAudience => {
                "nothing was published under this name; PUT /v1/audiences/{audience} creates it \
                 empty"
                    .to_owned()
            }
            Self::NotFound => {
                "accepted: /v1/audiences, /v1/audiences/{audience}, and below it /devices, \
                 /disable, /enable, /expire; /v1/windows, and below it /{window}/events, \
                 /{window}/check, /{window}/forget"
                    .to_owned()
            }
            Self::MethodNotAllowed => "the Allow header lists the accepted methods".to_owned(),
            Self::BodyTimeout => "the body did not arrive within 30 s".to_owned(),
            Self::Exists => {
                "nothing was changed; DELETE the audience first to start over".to_owned()
            }
            Self::Disabled => {
                "nothing was changed; POST /v1/audiences/{audience}/enable".to_owned()
            }
            Self::Deleted => "PUT /v1/audiences/{audience} creates it again, empty".to_owned(),
            Self::Busy => {
                "a build, a gc or a deletion is running on it; retry when it has finished"
                    .to_owned()
            }
            Self::Overloaded => {
                "too many writes or events are waiting; nothing was acknowledged".to_owned()
            }
            Self::Contended => {
                "other writers replaced CURRENT each time; nothing was changed".to_owned()
            }
            Self::Store => {
                "the store failed, see the log; the write was not acknowledged and may be retried"
                    .to_owned()
            }
            Self::DeltasFull => {
                "the deltas are at their limit; run `rtad-loader build` first".to_owned()
            }
            Self::TombstonesFull => format!(
                "an audience has at most {MAX_TOMBSTONES} tombstones, and no build lowers their \
                 number; lift those of devices that no export contains any more"
            ),
            Self::NoAnswer => {
                "not acknowledged, but still possibly written; it may be retried".to_owned()
            }
            Self::Draining => "this process is stopping; nothing was changed".to_owned(),
            Self::Internal => "internal error; its source location is in the log".to_owned(),
        }
    }

    /// The error of a write to an audience that is not live.
    pub const fn not_live(state: State) -> Self {
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
            StoreError::TooManyTombstones { .. } => Self::TombstonesFull,
            StoreError::NotLive { state, .. } => Self::not_live(*state),
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

impl From<NotJson> for ApiError {
    fn from(error: NotJson) -> Self {
        match error {
            NotJson::Compressed => Self::BadEncoding,
            NotJson::Invalid(detail) => Self::BadBody(detail),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let header = match &self {
            Self::BadEncoding => Some((ACCEPT_ENCODING, "identity".to_owned())),
            Self::Unauthorized => {
                Some((WWW_AUTHENTICATE, "Bearer realm=\"rtad-writer\"".to_owned()))
            }
            Self::MissingScope(scope) => Some((
                WWW_AUTHENTICATE,
                format!(
                    "Bearer realm=\"rtad-writer\", error=\"insufficient_scope\", scope=\"{scope}\""
                ),
            )),
            _ => None,
        };
        let (status, code, title) = self.words();
        let detail = self.detail().into();
        let mut response = Problem {
            status,
            code,
            title,
            detail,
        }
        .into_response();
        if let Some((name, value)) = header
            && let Ok(value) = HeaderValue::try_from(value)
        {
            response.headers_mut().insert(name, value);
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
            ApiError::MissingScope(String::new()),
            ApiError::CrossSite,
            ApiError::BadBody(String::new()),
            ApiError::BadEncoding,
            ApiError::BadAudience,
            ApiError::UnknownOp,
            ApiError::UnknownKind,
            ApiError::UnknownAudience,
            ApiError::NotFound,
            ApiError::MethodNotAllowed,
            ApiError::BodyTimeout,
            ApiError::UnknownWindow,
            ApiError::NoCallback,
            ApiError::UnknownWindowKind,
            ApiError::RequestKeyReused,
            ApiError::NoValues,
            ApiError::Owned,
            ApiError::WindowFull,
            ApiError::BackendFull,
            ApiError::NotDurable,
            ApiError::Backend,
            ApiError::Exists,
            ApiError::Disabled,
            ApiError::Deleted,
            ApiError::Busy,
            ApiError::TooLarge(String::new()),
            ApiError::Overloaded,
            ApiError::Contended,
            ApiError::Store,
            ApiError::DeltasFull,
            ApiError::TombstonesFull,
            ApiError::NoAnswer,
            ApiError::Draining,
            ApiError::Internal,
        ];
        assert_every_variant(ApiError::FIELD_NAMES, &errors);
        let rows = errors.map(|error| {
            let (status, code, _) = error.words();
            [status.as_str().to_owned(), code.to_owned()]
        });
        assert_listed("errors.md", "Writer codes", rows);
    }
}
