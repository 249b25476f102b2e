//! Errors of the writer: RFC 9457 problem documents with a stable `code`.

use axum::http::header::WWW_AUTHENTICATE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use rtad_core::device::IdKind;
use rtad_core::snapshot::State;
use rtad_http::problem::Problem;
use rtad_http::request_error::RequestError;
use rtad_store::StoreError;
use rtad_store::write::MAX_TOMBSTONES;

use super::op::Op;

/// Error of a request; nothing was acknowledged. Details name the accepted values and quote no ids.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(test, derive(strum::EnumIter))]
pub enum ApiError {
    /// An error that every service has.
    Request(RequestError),
    /// The token has not the scope.
    MissingScope(String),
    /// The audience name in the path is invalid.
    BadAudience,
    /// The operation does not exist.
    UnknownOp,
    /// The id kind does not exist.
    UnknownKind,
    /// The audience was never published.
    UnknownAudience,
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
    /// This process does not own the window.
    NotOwner,
    /// The window's events cannot be made durable.
    NotDurable,
    /// The audience to create exists.
    Exists,
    /// The audience is disabled and rejects writes.
    Disabled,
    /// The audience was deleted.
    Deleted,
    /// A build or a gc holds the audience.
    Busy,
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
}

impl From<RequestError> for ApiError {
    fn from(error: RequestError) -> Self {
        Self::Request(error)
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

impl ApiError {
    /// The error of a write to an audience that is not live.
    pub const fn not_live(state: State) -> Self {
        match state {
            State::Deleted => Self::Deleted,
            _ => Self::Disabled,
        }
    }

    /// The problem's `code`, also a label in metrics.
    pub fn code(&self) -> &'static str {
        self.problem().code()
    }

    fn problem(&self) -> Problem {
        match self {
            Self::Request(error) => error.problem(),
            Self::MissingScope(scope) => missing_scope(scope),
            Self::BadAudience => Problem::new(
                StatusCode::BAD_REQUEST,
                "bad_audience",
                "Not an audience's name",
                "accepted: 1 to 64 of a-z, 0-9, _ and -, starting with a letter or digit",
            ),
            Self::UnknownOp => Problem::new(
                StatusCode::BAD_REQUEST,
                "unknown_op",
                "No such operation",
                format!("accepted: {}", Op::ALL.map(Op::as_str).join(", ")),
            ),
            Self::UnknownKind => Problem::new(
                StatusCode::NOT_FOUND,
                "unknown_kind",
                "No such id kind",
                format!("accepted: {}", IdKind::ALL.map(IdKind::as_str).join(", ")),
            ),
            Self::UnknownAudience => Problem::new(
                StatusCode::NOT_FOUND,
                "unknown_audience",
                "No such audience",
                "nothing was published under this name; PUT /v1/audiences/{audience} creates it \
                 empty",
            ),
            Self::UnknownWindow => Problem::new(
                StatusCode::NOT_FOUND,
                "unknown_window",
                "No such window",
                "accepted: the names of [[window]] in the file of --config; GET /v1/windows lists \
                 them",
            ),
            Self::NoCallback => Problem::new(
                StatusCode::NOT_FOUND,
                "no_callback",
                "No click callbacks",
                "the window has no [window.callback] in the file of --config; POST counts events",
            ),
            Self::UnknownWindowKind => Problem::new(
                StatusCode::NOT_FOUND,
                "unknown_kind",
                "No such id kind",
                format!(
                    "accepted: {}, text",
                    IdKind::ALL.map(IdKind::as_str).join(", ")
                ),
            ),
            Self::RequestKeyReused => Problem::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "idempotency_key_reused",
                "Key of another request",
                "the Idempotency-Key was used for a request with another body within ten \
                 minutes; nothing was counted",
            ),
            Self::NoValues => Problem::new(
                StatusCode::CONFLICT,
                "no_values",
                "Audience without values",
                "nothing was changed; values need a generation of `rtad-loader build --value`",
            ),
            Self::Owned => Problem::new(
                StatusCode::CONFLICT,
                "owned",
                "Audience follows a window",
                "nothing was changed; the audience follows a window: send events to the window, \
                 or forget them there; tombstones are accepted",
            ),
            Self::NotOwner => Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "not_owner",
                "Standby",
                "this process does not own the window; nothing was counted: retry at the process \
                 that does, whose /readyz is 200",
            ),
            Self::NotDurable => Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "not_durable",
                "Event not written",
                "the window's log cannot be written, or the store does not answer, or another \
                 process has taken the window over, see the log; nothing was acknowledged: retry \
                 with the same Idempotency-Key",
            ),
            Self::Exists => Problem::new(
                StatusCode::CONFLICT,
                "exists",
                "Audience exists",
                "nothing was changed; DELETE the audience first to start over",
            ),
            Self::Disabled => Problem::new(
                StatusCode::CONFLICT,
                "disabled",
                "Audience disabled",
                "nothing was changed; POST /v1/audiences/{audience}/enable",
            ),
            Self::Deleted => Problem::new(
                StatusCode::GONE,
                "deleted",
                "Audience deleted",
                "PUT /v1/audiences/{audience} creates it again, empty",
            ),
            Self::Busy => Problem::new(
                StatusCode::CONFLICT,
                "busy",
                "Audience busy",
                "a build or a deletion is running on it; retry when it has finished",
            ),
            Self::Contended => Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "contended",
                "Other writers were faster",
                "other writers created the next record each time; nothing was changed",
            ),
            Self::Store => Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "store",
                "Store failed",
                "the store failed, see the log; the write was not acknowledged and may be retried",
            ),
            Self::DeltasFull => Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "deltas_full",
                "A build is due",
                "the deltas are at their limit; run `rtad-loader build` first",
            ),
            Self::TombstonesFull => Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "tombstones_full",
                "Too many tombstones",
                format!(
                    "an audience has at most {MAX_TOMBSTONES} tombstones, and no build lowers their \
                 number; lift those of devices that no export contains any more"
                ),
            ),
            Self::NoAnswer => Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "no_answer",
                "No answer in time",
                "not acknowledged, but still possibly written; it may be retried",
            ),
            Self::Draining => Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "draining",
                "Stopping",
                "this process is stopping; nothing was changed",
            ),
        }
    }
}

fn missing_scope(scope: &str) -> Problem {
    let challenge =
        format!("Bearer realm=\"rtad\", error=\"insufficient_scope\", scope=\"{scope}\"");
    Problem::new(
        StatusCode::FORBIDDEN,
        "missing_scope",
        "Scope missing",
        format!("the token has not the scope {scope}; accepted: a token with it"),
    )
    .with_header(
        WWW_AUTHENTICATE,
        HeaderValue::try_from(challenge).expect("names of scopes are visible ASCII"),
    )
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        self.problem().into_response()
    }
}

#[cfg(test)]
mod tests {
    use strum::IntoEnumIterator as _;
    use testkit::reference::assert_listed;

    use super::*;

    #[test]
    fn error_reference_lists_every_code() {
        let of_request = RequestError::iter().map(ApiError::Request);
        let rows = ApiError::iter().chain(of_request).map(|error| {
            let problem = error.problem();
            [problem.status().as_str(), problem.code()].map(str::to_owned)
        });
        assert_listed("errors.md", "Writer codes", rows);
    }
}
