//! `POST /v1/explain/{platform}` and `POST /v1/explain` of the admin port: explanations of the
//! answer to a captured body, or to a single id.
//!
//! Ids are in the body, never in the URL, which proxies log. A platform's body is accepted as sent,
//! or as hex or base64. The query string is the captured request's, so the time of the schedules is
//! a header. Access is checked only if a header of the platform's config is present.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::Response;
use rtad_core::schedule::Moment;
use rtad_http::answer::json_of;
use rtad_http::body;
use rtad_http::json::parse_object;
use rtad_http::request_error::RequestError;
use serde::Deserialize;

use super::admin_app::AdminApp;
use super::error::ApiError;
use super::segment::{decoded, raw};
use crate::catalog::Catalog;
use crate::explain::{AskedId, Captured, Target, explain, explain_id, input, target_names};
use crate::platform::RequestHead;

/// Bytes of text per byte of a body: two hex digits and a space.
const TEXT_PER_BYTE: usize = 3;
/// The time whose schedules decide about a captured request.
const AT: HeaderName = HeaderName::from_static("rtad-at");

pub async fn explained(
    State(app): State<Arc<AdminApp>>,
    request: Request,
) -> Result<Response, ApiError> {
    let (head, body) = request.into_parts();
    let name = decoded(raw(&head.uri, 2));
    // An unknown platform is reported before the body is read.
    target_named(&app.serving.load(), &name)?;
    let at = time_of(&head.headers)?;

    let limit = app.max_body.saturating_mul(TEXT_PER_BYTE);
    let text = app.read_body(body, limit).await?;
    let (body, encoding) = input::read(text);

    // Loaded after the last await: a slow body holds no generation.
    let catalog = app.serving.load();
    let target = target_named(&catalog, &name)?;
    let access = match target {
        Target::Platform(platform) => &platform.access,
        Target::Api => catalog.api_tokens(),
    };
    let captured = Captured {
        head: RequestHead {
            headers: &head.headers,
            query: head.uri.query(),
        },
        at,
        has_headers: access.is_tried(&head.headers),
        body,
        encoding,
        max_body: app.max_body,
    };

    let log_key = app.log_key();
    let explainer = app.explainer(&catalog, log_key.as_deref());
    let explanation = explain(&explainer, target, &captured);
    Ok(json_of(StatusCode::OK, &explanation))
}

/// The time in the header; `None` without one.
fn time_of(headers: &HeaderMap) -> Result<Option<SystemTime>, RequestError> {
    let mut values = headers.get_all(AT).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        let detail = "header Rtad-At: expected at most one, found more";
        return Err(RequestError::BadBody(detail.to_owned()));
    }

    let text = value.to_str().unwrap_or_default();
    let moment: Moment = text
        .parse()
        .map_err(|error| RequestError::BadBody(format!("header Rtad-At: {error}")))?;
    Ok(Some(moment.into()))
}

fn target_named<'a>(catalog: &'a Catalog, name: &str) -> Result<Target<'a>, ApiError> {
    Target::named(catalog, name).ok_or_else(|| {
        let platforms = catalog.platforms().iter();
        let names = platforms.map(|served| served.platform.name.as_str());
        ApiError::UnknownPlatform(target_names(names))
    })
}

/// An id, and its kind if known.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(default, borrow)]
    kind: Option<Cow<'a, str>>,
    /// The time of the schedules; now without one.
    #[serde(default)]
    at: Option<Moment>,
}

pub async fn id_explained(
    State(app): State<Arc<AdminApp>>,
    request: Request,
) -> Result<Response, ApiError> {
    if body::has_encoding(request.headers()) {
        return Err(RequestError::BadEncoding.into());
    }
    if request.headers().contains_key(AT) {
        let detail = "header Rtad-At: expected as `at` in the body";
        return Err(RequestError::BadBody(detail.to_owned()).into());
    }

    let body = app.read_body(request.into_body(), app.max_body).await?;
    let Asked { id, kind, at } = parse_object(&body, "id, kind and at")?;
    let known_kind = match kind {
        Some(name) => Some(name.parse().map_err(|_| ApiError::UnknownKind)?),
        None => None,
    };

    let asked = AskedId {
        id: &id,
        kind: known_kind,
        at: at.map(SystemTime::from),
    };
    let catalog = app.serving.load();
    let log_key = app.log_key();
    let explainer = app.explainer(&catalog, log_key.as_deref());
    let explanation = explain_id(&explainer, &asked);
    Ok(json_of(StatusCode::OK, &explanation))
}
