//! The console: a web page at `/` of the admin port.
//!
//! Its files are compiled in. A content security policy limits it to scripts, styles and data of
//! this port. The page uses the admin port's routes and changes nothing.

use std::borrow::Cow;

use axum::http::header::{ACCEPT, CONTENT_SECURITY_POLICY, REFERRER_POLICY, VARY};
use axum::http::{HeaderMap, HeaderValue, Uri};
use axum::response::Response;
use rtad_core::snapshot::Digest;
use rtad_http::console::{CSS, ConsoleFile, HTML, POLICY, TEXT, file_at};

use super::error::ApiError;
use super::tagged::tagged;

/// The admin port's routes, for errors and terminals.
pub const ROUTES: &str = "/, /livez, /readyz, /metrics, /v1/status, \
     /v1/audiences/{audience}/shards, POST /v1/reload, POST /v1/explain, \
     POST /v1/explain/{platform}";

/// The page's own files.
const FILES: [ConsoleFile; 13] = [
    ConsoleFile::script("main.js", include_str!("console/main.js")),
    ConsoleFile::script("audiences.js", include_str!("console/audiences.js")),
    ConsoleFile::script("caps.js", include_str!("console/caps.js")),
    ConsoleFile::script("charts.js", include_str!("console/charts.js")),
    ConsoleFile::script("en.js", include_str!("console/en.js")),
    ConsoleFile::script("lookup.js", include_str!("console/lookup.js")),
    ConsoleFile::script("map.js", include_str!("console/map.js")),
    ConsoleFile::script("metrics.js", include_str!("console/metrics.js")),
    ConsoleFile::script("rules.js", include_str!("console/rules.js")),
    ConsoleFile::script("strategies.js", include_str!("console/strategies.js")),
    ConsoleFile {
        name: "pod.css",
        kind: CSS,
        text: include_str!("console/pod.css"),
    },
    ConsoleFile::script("traffic.js", include_str!("console/traffic.js")),
    ConsoleFile::script("zh.js", include_str!("console/zh.js")),
];

/// `GET /`: the page for browsers, a list of routes for other clients.
pub async fn index(headers: HeaderMap) -> Response {
    let accepted = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let mut answer = if accepted
        .into_iter()
        .any(|value| value.contains("text/html"))
    {
        file(&headers, HTML, include_str!("console/index.html").into())
    } else {
        file(
            &headers,
            TEXT,
            format!("rtad admin port\n\n{}\n", ROUTES.replace(", ", "\n")).into(),
        )
    };
    answer
        .headers_mut()
        .insert(VARY, HeaderValue::from_static("accept"));
    answer
}

/// `GET /console/{file}`
pub async fn part(uri: Uri, headers: HeaderMap) -> Result<Response, ApiError> {
    file_at(uri.path(), &FILES)
        .map(|found| file(&headers, found.kind, found.text.into()))
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
