//! Errors of the JSON routes, as RFC 9457 problem documents with a stable `code`.

use axum::http::header::{ACCEPT_ENCODING, ALLOW, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Response, StatusCode};
use axum::response::IntoResponse;
use bytes::Bytes;
use rtad_core::device::{IdKind, Unusable};
use rtad_http::body::BodyError;
use rtad_http::json::NotJson;
use rtad_http::problem::Problem;

use crate::catalog::Catalog;

/// An error of the JSON routes. Details list accepted values and never quote an id.
#[derive(Debug)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub(super) enum ApiError {
    /// The id in the path is blank or malformed.
    BadId(IdKind, Unusable),
    /// The body is not valid for the route.
    BadBody(String),
    /// The body is compressed.
    BadEncoding,
    /// Unknown audience; lists the known ones.
    UnknownAudience(Vec<String>),
    /// Unknown strategy; lists the known ones.
    UnknownStrategy(Vec<String>),
    /// Unknown platform; lists the known ones.
    UnknownPlatform(Vec<String>),
    /// Unknown id kind.
    UnknownKind,
    /// Unknown route; lists the port's routes.
    NotFound(&'static str),
    /// The request carries no accepted token.
    Unauthorized,
    /// A browser sent the request for a page of another origin.
    CrossSite,
    /// The route does not accept this method; lists those for `Allow`, unless a router adds them.
    MethodNotAllowed(Option<&'static str>),
    /// The body did not arrive in time.
    BodyTimeout,
    /// The body, or a list in it, is too large.
    TooLarge(String),
    /// The audience has no snapshot, or an outdated one.
    NotLoaded,
    /// No room for an incomplete body.
    Overloaded,
    /// Internal error of rtad.
    Internal,
}

impl ApiError {
    /// The error of an unknown audience, with the names in the catalog.
    pub(super) fn unknown_audience(catalog: &Catalog) -> Self {
        let names = catalog
            .audiences()
            .iter()
            .map(|audience| audience.name.to_string());
        Self::UnknownAudience(names.collect())
    }

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
            Self::BadBody(detail) => (
                StatusCode::BAD_REQUEST,
                "bad_body",
                "Body not understood",
                detail,
            ),
            Self::BadEncoding => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "bad_encoding",
                "Body compressed",
                "accepted: bodies without Content-Encoding, which are not compressed".to_owned(),
            ),
            Self::UnknownAudience(names) => (
                StatusCode::NOT_FOUND,
                "unknown_audience",
                "No such audience",
                list(names),
            ),
            Self::UnknownStrategy(names) => (
                StatusCode::NOT_FOUND,
                "unknown_strategy",
                "No such strategy",
                list(names),
            ),
            Self::UnknownPlatform(names) if names.is_empty() => (
                StatusCode::NOT_FOUND,
                "unknown_platform",
                "No such platform",
                "accepted: none: the config has no [[platform]]".to_owned(),
            ),
            Self::UnknownPlatform(names) => (
                StatusCode::NOT_FOUND,
                "unknown_platform",
                "No such platform",
                list(names),
            ),
            Self::UnknownKind => {
                let kinds = IdKind::ALL.map(|kind| kind.to_string()).to_vec();
                (
                    StatusCode::NOT_FOUND,
                    "unknown_kind",
                    "No such id kind",
                    list(kinds),
                )
            }
            Self::NotFound(routes) => (
                StatusCode::NOT_FOUND,
                "not_found",
                "No such route",
                format!("accepted: {routes}"),
            ),
            Self::Unauthorized => (
                StatusCode::UNAUTHORIZED,
                "unauthorized",
                "Token required",
                "expected Authorization: Bearer with a token of server.api.token_files".to_owned(),
            ),
            Self::CrossSite => (
                StatusCode::FORBIDDEN,
                "cross_site",
                "Cross-site request",
                "the Host is a public name that server.admin_hosts does not list, or a browser \
                 sent this request for a page of another origin; accepted: an address, a private \
                 name or a name of server.admin_hosts as Host, and the console of this port"
                    .to_owned(),
            ),
            Self::MethodNotAllowed(_) => (
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                "Wrong method",
                "the Allow header lists the accepted methods".to_owned(),
            ),
            Self::BodyTimeout => (
                StatusCode::REQUEST_TIMEOUT,
                "timeout",
                "Body too slow",
                "the body did not arrive within 5 s, or server.idle_timeout if that is less"
                    .to_owned(),
            ),
            Self::TooLarge(detail) => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "too_large",
                "Too large",
                detail,
            ),
            Self::NotLoaded => (
                StatusCode::SERVICE_UNAVAILABLE,
                "not_loaded",
                "Audience not loaded",
                "the audience has no verified snapshot yet, or its snapshot has expired or is \
                 older than max_age; see /v1/status of the admin port"
                    .to_owned(),
            ),
            Self::Overloaded => (
                StatusCode::SERVICE_UNAVAILABLE,
                "overloaded",
                "Overloaded",
                "the body was incomplete, and server.max_buffered is reached".to_owned(),
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
                Self::BadBody("the body is incomplete or is not valid HTTP".to_owned())
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

impl ApiError {
    /// The answer, with a body of the server's type.
    pub(super) fn into_answer<B: From<Bytes>>(self) -> Response<B> {
        let header = match self {
            Self::Unauthorized => Some((WWW_AUTHENTICATE, "Bearer")),
            Self::BadEncoding => Some((ACCEPT_ENCODING, "identity")),
            Self::MethodNotAllowed(Some(allowed)) => Some((ALLOW, allowed)),
            _ => None,
        };
        let (status, code, title, detail) = self.parts();
        let mut answer = Problem {
            status,
            code,
            title,
            detail: detail.into(),
        }
        .into_answer();
        if let Some((name, value)) = header {
            answer
                .headers_mut()
                .insert(name, HeaderValue::from_static(value));
        }
        answer
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> axum::response::Response {
        self.into_answer()
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
            ApiError::BadEncoding,
            ApiError::UnknownAudience(Vec::new()),
            ApiError::UnknownStrategy(Vec::new()),
            ApiError::UnknownPlatform(Vec::new()),
            ApiError::UnknownKind,
            ApiError::NotFound(""),
            ApiError::Unauthorized,
            ApiError::CrossSite,
            ApiError::MethodNotAllowed(None),
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
