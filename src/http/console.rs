//! The console: a web page at `/` of the admin port.
//!
//! Its files are compiled in. A content security policy limits it to scripts, styles and data of
//! this port. The page uses the admin port's routes and changes nothing.

use std::borrow::Cow;

use axum::http::header::{ACCEPT, CONTENT_SECURITY_POLICY, REFERRER_POLICY, VARY};
use axum::http::{HeaderMap, HeaderValue, Uri};
use axum::response::Response;
use rtad_core::snapshot::Digest;

use super::tagged::tagged;
use rtad_http::request_error::RequestError;

/// The admin port's routes, for errors and terminals.
pub const ROUTES: &str = "/, /livez, /readyz, /metrics, /v1/status, \
     /v1/audiences/{audience}/shards, POST /v1/reload, POST /v1/explain, \
     POST /v1/explain/{platform}";

/// Allows resources of this port only, no frames and no form submission.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'";

const CSS: &str = "text/css; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// A file of the page.
struct ConsoleFile {
    name: &'static str,
    kind: &'static str,
    text: &'static str,
}

impl ConsoleFile {
    const fn script(name: &'static str, text: &'static str) -> Self {
        Self {
            name,
            kind: JS,
            text,
        }
    }
}

const FILES: [ConsoleFile; 18] = [
    ConsoleFile::script("main.js", include_str!("console/main.js")),
    ConsoleFile::script("alerts.js", include_str!("console/alerts.js")),
    ConsoleFile::script("audiences.js", include_str!("console/audiences.js")),
    ConsoleFile::script("caps.js", include_str!("console/caps.js")),
    ConsoleFile::script("charts.js", include_str!("console/charts.js")),
    ConsoleFile {
        name: "console.css",
        kind: CSS,
        text: include_str!("console/console.css"),
    },
    ConsoleFile::script("dom.js", include_str!("console/dom.js")),
    ConsoleFile::script("en.js", include_str!("console/en.js")),
    ConsoleFile {
        name: "icon.svg",
        kind: SVG,
        text: include_str!("console/icon.svg"),
    },
    ConsoleFile::script("lookup.js", include_str!("console/lookup.js")),
    ConsoleFile::script("map.js", include_str!("console/map.js")),
    ConsoleFile::script("metrics.js", include_str!("console/metrics.js")),
    ConsoleFile {
        name: "pod.css",
        kind: CSS,
        text: include_str!("console/pod.css"),
    },
    ConsoleFile::script("rules.js", include_str!("console/rules.js")),
    ConsoleFile::script("strategies.js", include_str!("console/strategies.js")),
    ConsoleFile::script("traffic.js", include_str!("console/traffic.js")),
    ConsoleFile::script("words.js", include_str!("console/words.js")),
    ConsoleFile::script("zh.js", include_str!("console/zh.js")),
];

/// `GET /`: the page for browsers, a list of routes for other clients.
pub async fn index(headers: HeaderMap) -> Response {
    let wants_page = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.contains("text/html"));

    let mut answer = if wants_page {
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
pub async fn part(uri: Uri, headers: HeaderMap) -> Result<Response, RequestError> {
    let name = uri.path().strip_prefix("/console/").unwrap_or_default();
    let Some(found) = FILES.iter().find(|file| file.name == name) else {
        return Err(RequestError::NotFound(ROUTES));
    };
    Ok(file(&headers, found.kind, found.text.into()))
}

fn file(headers: &HeaderMap, kind: &'static str, text: Cow<'static, str>) -> Response {
    let tag = format!("\"{}\"", Digest::of(text.as_bytes()));
    let mut answer = tagged(headers, Some(tag), kind, || text.into_owned());
    let headers = answer.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    answer
}
