//! The console: a page about the windows at `/` of the admin port.
//!
//! Its files are compiled in; style, helpers and the choice of a language are those of `rtad`'s
//! console, the texts its own. The page reads `GET /v1/windows` and changes nothing.

use axum::http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, VARY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};

use rtad_http::console::{CSS, ConsoleFile, HTML, POLICY, TEXT, file_at};

/// The page's own files.
const FILES: [ConsoleFile; 4] = [
    ConsoleFile::script("en.js", include_str!("console/en.js")),
    ConsoleFile {
        name: "windows.css",
        kind: CSS,
        text: include_str!("console/windows.css"),
    },
    ConsoleFile::script("windows.js", include_str!("console/windows.js")),
    ConsoleFile::script("zh.js", include_str!("console/zh.js")),
];

/// The admin port's routes, for terminals.
const ROUTES: &str = "rtad-writer admin port\n\n/\n/livez\n/readyz\n/metrics\n/v1/windows\n";

/// `GET /`: the page for browsers, a list of routes for other clients.
pub async fn index(headers: HeaderMap) -> Response {
    let mut accepted = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let mut answer = match accepted.any(|value| value.contains("text/html")) {
        true => file(HTML, include_str!("console/index.html")),
        false => file(TEXT, ROUTES),
    };
    answer
        .headers_mut()
        .insert(VARY, HeaderValue::from_static("accept"));
    answer
}

/// `GET /console/{file}`
pub async fn part(uri: Uri) -> Response {
    file_at(uri.path(), &FILES).map_or_else(not_found, |found| file(found.kind, found.text))
}

pub fn not_found() -> Response {
    let accepted = "accepted: /, /livez, /readyz, /metrics, /v1/windows\n";
    (StatusCode::NOT_FOUND, accepted).into_response()
}

fn file(kind: &'static str, text: &'static str) -> Response {
    let mut answer = Response::new(text.into());
    for (name, value) in [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        answer
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    answer
}
