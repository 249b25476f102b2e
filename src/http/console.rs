//! The console: a web page at `/` of the admin port.
//!
//! Its files are compiled in. A content security policy limits it to scripts, styles and data of
//! this port. The page uses the admin port's routes and changes nothing.

use std::borrow::Cow;

use axum::http::header::{ACCEPT, CONTENT_SECURITY_POLICY, REFERRER_POLICY, VARY};
use axum::http::{HeaderMap, HeaderValue, Uri};
use axum::response::Response;
use rtad_core::snapshot::Digest;

use super::error::ApiError;
use super::tagged::tagged;

/// The admin port's routes, for errors and terminals.
pub(super) const ROUTES: &str = "/, /livez, /readyz, /metrics, /v1/status, \
     /v1/audiences/{audience}/shards, POST /v1/reload, POST /v1/explain, \
     POST /v1/explain/{platform}";

/// Allows resources of this port only, no frames and no form submission.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const CSS: &str = "text/css; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";
const TEXT: &str = "text/plain; charset=utf-8";

/// Path prefix of the files.
const FOLDER: &str = "/console/";

/// The page's files: names, media types and contents.
const FILES: [(&str, &str, &str); 13] = [
    ("console.css", CSS, include_str!("console/console.css")),
    ("icon.svg", SVG, include_str!("console/icon.svg")),
    ("main.js", JS, include_str!("console/main.js")),
    ("audiences.js", JS, include_str!("console/audiences.js")),
    ("charts.js", JS, include_str!("console/charts.js")),
    ("dom.js", JS, include_str!("console/dom.js")),
    ("en.js", JS, include_str!("console/en.js")),
    ("lookup.js", JS, include_str!("console/lookup.js")),
    ("map.js", JS, include_str!("console/map.js")),
    ("metrics.js", JS, include_str!("console/metrics.js")),
    ("traffic.js", JS, include_str!("console/traffic.js")),
    ("words.js", JS, include_str!("console/words.js")),
    ("zh.js", JS, include_str!("console/zh.js")),
];

/// `GET /`: the page for browsers, a list of routes for other clients.
pub(super) async fn index(headers: HeaderMap) -> Response {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut answer = if accepted.into_iter().any(|value| value.contains("text/html")) {
        file(&headers, HTML, include_str!("console/index.html").into())
    } else {
        file(&headers, TEXT, format!("rtad admin port\n\n{}\n", ROUTES.replace(", ", "\n")).into())
    };
    answer.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
    answer
}

/// `GET /console/{file}`
pub(super) async fn part(uri: Uri, headers: HeaderMap) -> Result<Response, ApiError> {
    let name = uri.path().strip_prefix(FOLDER);
    let found = FILES.iter().find(|(file, ..)| Some(*file) == name);
    found
        .map(|(_, kind, text)| file(&headers, kind, (*text).into()))
        .ok_or(ApiError::NotFound(ROUTES))
}

fn file(headers: &HeaderMap, kind: &'static str, text: Cow<'static, str>) -> Response {
    let tag = format!("\"{}\"", Digest::of(text.as_bytes()));
    let mut answer = tagged(headers, Some(tag), kind, || text.into_owned());
    let headers = answer.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    answer
}
