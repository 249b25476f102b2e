//! `POST /v1/explain/{platform}` and `POST /v1/explain` of the admin port: why a captured body, or a single id, gets the answer it gets.
//!
//! An id is in the body, and never in a URL: those end in logs. A platform's body is taken as the platform sends it, or as hex or base64. It and the query string are the captured request's; of the headers
//! only the platform's own say something, so without any of them nobody is refused.

use std::borrow::Cow;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use axum::response::{IntoResponse as _, Response};
use percent_encoding::percent_decode_str;
use serde::Deserialize;

use super::admin::AdminApp;
use super::check::error_without_values;
use super::error::ApiError;
use super::{Answer, body, json};
use crate::catalog::{Catalog, ServedPlatform};
use crate::explain::{Captured, explain, explain_id, input};
use crate::platform::Head;

/// Where the route's path stands before the platform's name.
const PREFIX: &str = "/v1/explain/";
/// Bytes of text that stand for one of a body: two hex digits and a space.
const TEXT_PER_BYTE: usize = 3;

pub(super) async fn explained(State(app): State<Arc<AdminApp>>, request: Request<Body>) -> Response {
    match answer(&app, request).await {
        Ok(answer) => answer.into_response(),
        Err(error) => error.into_response(),
    }
}

async fn answer(app: &AdminApp, request: Request<Body>) -> Result<Answer, ApiError> {
    let (head, body) = request.into_parts();
    let name = percent_decode_str(&head.uri.path()[PREFIX.len()..]).decode_utf8_lossy();
    // Before the body is read for nothing.
    platform_named(&app.serving.load(), &name)?;
    let limit = app.max_body.saturating_mul(TEXT_PER_BYTE);
    let text = body::read(body, limit, app.body_timeout, || Some(())).await?;
    let (body, encoding) = input::read(text, None).expect("whatever is no text is binary");
    // Loaded after the last await: no generation is held while a slow body trickles in.
    let catalog = app.serving.load();
    let platform = &platform_named(&catalog, &name)?.platform;
    let captured = Captured {
        head: Head { headers: &head.headers, query: head.uri.query() },
        has_headers: platform.access.is_tried(&head.headers),
        body,
        encoding,
        max_body: app.max_body,
    };
    let explanation = explain(&catalog, platform, &app.ids, &app.shared.board, captured);
    Ok(json(serde_json::to_vec(&explanation).expect("plain values serialise")))
}

fn platform_named<'a>(catalog: &'a Catalog, name: &str) -> Result<&'a ServedPlatform, ApiError> {
    catalog.platform_named(name).ok_or_else(|| {
        let names = catalog.platforms().iter().map(|served| served.platform.name.clone());
        ApiError::UnknownPlatform(names.collect())
    })
}

/// An id, and what it is if that is known.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(default, borrow)]
    kind: Option<Cow<'a, str>>,
}

pub(super) async fn id_explained(
    State(app): State<Arc<AdminApp>>,
    request: Request<Body>,
) -> Result<Answer, ApiError> {
    let body = body::read(request.into_body(), app.max_body, app.body_timeout, || Some(())).await?;
    // A derived reader would take a bare list of the fields' values too.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(ApiError::BadBody("expected an object with id and kind".to_owned()));
    }
    let Asked { id, kind } =
        serde_json::from_slice(&body).map_err(|error| ApiError::BadBody(error_without_values(&error)))?;
    let kind = kind.map(|kind| kind.parse().map_err(|_| ApiError::UnknownKind)).transpose()?;
    let explanation = explain_id(&app.serving.load(), &app.ids, &app.shared.board, kind, &id);
    Ok(json(serde_json::to_vec(&explanation).expect("plain values serialise")))
}
