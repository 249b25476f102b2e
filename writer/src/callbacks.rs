//! `GET /v1/windows/{window}/events/{token}`: click callbacks, as ad platforms send them.
//!
//! A platform sends one event in a query string, and its token in the path. It repeats what is not
//! answered with 200, so a callback without a usable id is answered with 200 and counted by metric,
//! and one that could not be counted with 503.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, Method, Uri};
use axum::response::Response;
use percent_encoding::percent_decode_str;

use rtad_core::device::{DeviceKey, KeyMaker, is_macro, trim};
use rtad_core::snapshot::AudienceName;
use rtad_http::request_error::RequestError;
use rtad_window::{RequestKey, Retry};

use super::app::App;
use super::bodies::LAST_UNIX_SECONDS;
use super::error::ApiError;
use super::events::MAX_TEXT;
use super::scopes::{Area, Scope};
use super::windows::config::CallbackConfig;
use super::windows::counters::Results;

const MAX_QUERY: usize = 8 << 10;
const MAX_PARAMETERS: usize = 100;
/// Begin of the year 2000 in seconds since 1970.
const YEAR_2000: u64 = 946_684_800;
/// Answer to a callback that needs no repetition: platforms read `ret` or `code`.
const ACCEPTED: &str = r#"{"code":0,"ret":0,"msg":"ok"}"#;

/// A query string. Its values are never in a message.
#[derive(Clone, Copy)]
struct Query<'a>(&'a str);

impl<'a> Query<'a> {
    /// Refuses what takes long to read.
    fn check(self) -> Result<(), RequestError> {
        if self.0.len() <= MAX_QUERY && self.0.split('&').count() <= MAX_PARAMETERS {
            return Ok(());
        }
        Err(RequestError::TooLarge(format!(
            "query: expected at most {MAX_QUERY} bytes and {MAX_PARAMETERS} parameters, found more"
        )))
    }

    /// The value of a parameter; the last one if it is repeated.
    fn value(self, name: &str) -> Option<Cow<'a, [u8]>> {
        self.values(name).next()
    }

    /// The values of a parameter, the last one first.
    fn values(self, name: &str) -> impl Iterator<Item = Cow<'a, [u8]>> {
        let pairs = self.0.rsplit('&').filter_map(|pair| pair.split_once('='));
        let named = pairs.filter(move |(known, _)| percent_decode_str(known).eq(name.bytes()));
        named.map(|(_, value)| percent_decode_str(value).into())
    }
}

pub async fn receive(
    State(app): State<Arc<App>>,
    // A path that is not UTF-8 names no window, and has no token.
    path: Result<Path<(String, String)>, PathRejection>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let (window, token) = path.map(|Path(names)| names).unwrap_or_default();
    let window = window.parse::<AudienceName>().ok();
    let needed = Scope::Area(Area::Callbacks, window.clone());
    let admitted = app.admit_url(&headers, token.as_bytes(), &needed);
    let query = Query(uri.query().unwrap_or_default());
    let answer = async { answer(&app, window.as_ref(), &method, query).await };
    app.run("callback", admitted, answer).await
}

async fn answer(
    app: &App,
    name: Option<&AudienceName>,
    method: &Method,
    query: Query<'_>,
) -> Result<Response, ApiError> {
    query.check()?;
    let name = name.ok_or(ApiError::UnknownWindow)?;
    let window = app.windows.get(name).ok_or(ApiError::UnknownWindow)?;
    let config = app.windows.callback(name).ok_or(ApiError::NoCallback)?;
    // A check of the link counts nothing.
    if *method == Method::HEAD {
        return Ok(accepted());
    }

    let Some(id) = usable_id(&app.keys, config, query) else {
        window.count(Results {
            unusable: 1,
            ..Results::default()
        });
        return Ok(accepted());
    };
    if id.is_text {
        app.windows.warn_of_text(window);
    }

    // A callback without a usable time is of now.
    let at = config
        .time
        .as_ref()
        .and_then(|parameter| time(&query.value(parameter)?));
    let retry = retry(config, query, &id.key);
    match window.observe(vec![id.key], at, retry).await? {
        Some(observed) if observed.is_repeated => {}
        Some(observed) => window.count(Results::of(&observed.seen)),
        None => window.count(Results {
            late: 1,
            ..Results::default()
        }),
    }
    Ok(accepted())
}

fn accepted() -> Response {
    let mut response = Response::new(ACCEPTED.into());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

struct UsableId {
    key: [u8; 16],
    is_text: bool,
}

/// The first usable id.
fn usable_id(keys: &KeyMaker, config: &CallbackConfig, query: Query<'_>) -> Option<UsableId> {
    for id in &config.id {
        // A link may have a parameter twice, once with a macro that was not replaced.
        for value in query.values(&id.parameter) {
            let key = match id.kind {
                Some(kind) => keys.key(kind, &value).ok(),
                None => text_key(&value),
            };
            if let Some(key) = key {
                return Some(UsableId {
                    key: *key.as_bytes(),
                    is_text: id.kind.is_none(),
                });
            }
        }
    }
    None
}

/// The key of an id of kind text, as `POST …/events` takes it; none of a macro that was not
/// replaced.
fn text_key(text: &[u8]) -> Option<DeviceKey> {
    let is_usable = (1..=MAX_TEXT).contains(&text.len()) && !is_macro(trim(text));
    is_usable.then(|| DeviceKey::of_canonical(text))
}

/// A time since 1970 of the years 2000 to 9999, in seconds or milliseconds: no number is both.
fn time(text: &[u8]) -> Option<SystemTime> {
    let number: u64 = std::str::from_utf8(text).ok()?.trim().parse().ok()?;
    let since = if number <= LAST_UNIX_SECONDS {
        Duration::from_secs(number)
    } else {
        Duration::from_millis(number)
    };
    let is_usable = (YEAR_2000..=LAST_UNIX_SECONDS).contains(&since.as_secs());
    is_usable.then(|| UNIX_EPOCH + since)
}

/// Identity of a callback with an id of the click. It is kept after an erasure, so it holds no key.
fn retry(config: &CallbackConfig, query: Query<'_>, key: &[u8; 16]) -> Option<Retry> {
    let id = query.value(config.request_id.as_ref()?)?;
    let id = trim(&id);
    if id.is_empty() || is_macro(id) {
        return None;
    }
    let digest = *DeviceKey::of_canonical(id).as_bytes();
    // Apart from the tokens of `Idempotency-Key`.
    let token = [&b"callback"[..], &digest, key].concat();
    let token = *DeviceKey::of_canonical(&token).as_bytes();
    Some((RequestKey(token), token))
}
