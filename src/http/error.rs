//! Errors of the JSON routes, as RFC 9457 problem documents with a stable `code`.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use rtad_core::device::{IdKind, Unusable};
use rtad_http::problem::Problem;
use rtad_http::request_error::RequestError;

use crate::catalog::Catalog;
use crate::platform::api::unknown_strategy;

/// An error of the JSON routes. Details list accepted values and never quote an id.
#[derive(Debug)]
#[cfg_attr(test, derive(strum::EnumIter))]
pub enum ApiError {
    /// An error that every service has.
    Request(RequestError),
    /// The id in the path is blank or malformed; says what the kind accepts.
    BadId(String),
    /// Unknown audience; lists the known ones.
    UnknownAudience(Vec<String>),
    /// Unknown strategy; lists the known ones.
    UnknownStrategy(Vec<String>),
    /// Unknown platform; lists the known ones.
    UnknownPlatform(Vec<String>),
    /// Unknown id kind.
    UnknownKind,
    /// The audience has no snapshot, or an outdated one.
    NotLoaded,
}

impl From<RequestError> for ApiError {
    fn from(error: RequestError) -> Self {
        Self::Request(error)
    }
}

impl ApiError {
    /// The error of an unusable id of a kind.
    pub fn bad_id(kind: IdKind, unusable: Unusable) -> Self {
        Self::BadId(match unusable {
            Unusable::Blank => format!("this {kind} stands for \"no id\""),
            Unusable::Malformed => format!("kind {kind} accepts {}", kind.accepted()),
        })
    }

    /// The error of an unknown audience, with the names in the catalog.
    pub fn unknown_audience(catalog: &Catalog) -> Self {
        let names = catalog
            .audiences()
            .iter()
            .map(|audience| audience.name.to_string());
        Self::UnknownAudience(names.collect())
    }

    fn problem(&self) -> Problem {
        match self {
            Self::Request(error) => error.problem(),
            Self::BadId(detail) => Problem::new(
                StatusCode::BAD_REQUEST,
                "bad_id",
                "Not a device id",
                detail.clone(),
            ),

            Self::UnknownAudience(names) => Problem::new(
                StatusCode::NOT_FOUND,
                "unknown_audience",
                "No such audience",
                accepted(names),
            ),
            Self::UnknownStrategy(names) => unknown_strategy(names),
            Self::UnknownPlatform(names) => Problem::new(
                StatusCode::NOT_FOUND,
                "unknown_platform",
                "No such platform",
                accepted(names),
            ),
            Self::UnknownKind => Problem::new(
                StatusCode::NOT_FOUND,
                "unknown_kind",
                "No such id kind",
                accepted(&IdKind::ALL.map(|kind| kind.to_string())),
            ),

            Self::NotLoaded => Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "not_loaded",
                "Audience not loaded",
                "the audience has no verified snapshot yet, or its snapshot has expired or is \
                 older than max_age; see /v1/status of the admin port",
            ),
        }
    }
}

fn accepted(names: &[String]) -> String {
    format!("accepted: {}", names.join(", "))
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
        let mut rows = vec![["422", "bad_config"].map(str::to_owned)];
        for error in ApiError::iter().chain(of_request) {
            let problem = error.problem();
            rows.push([problem.status().as_str(), problem.code()].map(str::to_owned));
        }
        assert_listed("errors.md", "Service codes", rows);
    }
}
