//! `GET /v1/windows/{window}/events`: click callbacks, as ad platforms send them.
//!
//! A platform sends one event in a query string, and its token in the path or in the query. It
//! repeats what is not answered with 200, so a callback without a usable id is answered with 200
//! and counted by metric, and one that could not be counted with 503.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, Method, Uri};
use axum::response::Response;
use percent_encoding::percent_decode_str;

use rtad_core::device::{DeviceKey, KeyMaker, Unusable, is_macro};
use rtad_core::snapshot::AudienceName;
use rtad_window::{RequestKey, Retry};

use super::app::App;
use super::bodies::check_unix_seconds;
use super::error::ApiError;
use super::events::MAX_TEXT;
use super::scopes::{Area, Scope};
use super::windows::config::{CallbackConfig, TimeUnit};
use super::windows::counters::Results;

const MAX_QUERY: usize = 8 << 10;
const MAX_PARAMETERS: usize = 100;
/// Begin of the year 2000 in seconds since 1970.
const YEAR_2000: u64 = 946_684_800;
/// Parameter with the token.
const TOKEN: &str = "token";

/// A query string. Its values are never in a message.
#[derive(Clone, Copy)]
struct Query<'a>(&'a str);

impl<'a> Query<'a> {
    /// Refuses what takes long to read.
    fn check(self) -> Result<(), ApiError> {
        if self.0.len() <= MAX_QUERY && self.0.split('&').count() <= MAX_PARAMETERS {
            return Ok(());
        }
        Err(ApiError::TooLarge(format!(
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
    path: Result<RawPathParams, RawPathParamsRejection>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let value = |wanted| {
        let path = path.as_ref().ok()?;
        path.iter()
            .find(|(name, _)| *name == wanted)
            .map(|(_, value)| value)
    };
    let window = value("window").and_then(|name| name.parse::<AudienceName>().ok());
    let needed = Scope::Area(Area::Callbacks, window.clone());
    let query = Query(uri.query().unwrap_or_default());
    let in_path = value(TOKEN).map(|token| Cow::Borrowed(token.as_bytes()));
    let admitted = match (in_path, query.value(TOKEN)) {
        // A GET that changes something is as unsafe as a POST.
        (None, None) => app.admit(&Method::POST, &headers, Some(&needed)),
        (Some(token), None) | (None, Some(token)) => app.admit_url(&headers, &token, &needed),
        (Some(_), Some(_)) => Err(ApiError::Unauthorized),
    };
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
    let callback = app.windows.callback(name).ok_or(ApiError::NoCallback)?;
    // A check of the link counts nothing.
    if *method == Method::HEAD {
        return Ok(accepted(&callback.config));
    }
    let key = match usable_id(&app.keys, &callback.config, query) {
        Ok((key, is_text)) => {
            if is_text {
                app.windows.warn_of_text(window);
            }
            *key.as_bytes()
        }
        Err(unusable) => {
            callback.counters.unusable(unusable);
            window.count(Results {
                unusable: 1,
                ..Results::default()
            });
            return Ok(accepted(&callback.config));
        }
    };
    let at = match &callback.config.time {
        Some(parameter) => {
            let at = query
                .value(parameter)
                .and_then(|text| time(&text, callback.config.time_unit));
            callback
                .counters
                .without_time
                .increment(u64::from(at.is_none()));
            at
        }
        None => None,
    };
    let retry = retry(&callback.config, query, &key);
    match window.observe(vec![key], at, retry).await {
        Ok(Some(observed)) => {
            callback.counters.counted.increment(1);
            if !observed.is_repeated {
                window.count(Results::of(&observed.seen));
            }
        }
        Ok(None) => {
            callback.counters.late.increment(1);
            window.count(Results {
                late: 1,
                ..Results::default()
            });
        }
        Err(error) => {
            if matches!(error, ApiError::WindowFull | ApiError::BackendFull) {
                callback.counters.full.increment(1);
            }
            return Err(error);
        }
    }
    Ok(accepted(&callback.config))
}

fn accepted(config: &CallbackConfig) -> Response {
    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(&config.answer).is_ok();
    let kind = if is_json {
        "application/json"
    } else {
        "text/plain; charset=utf-8"
    };
    let mut response = Response::new(config.answer.clone().into());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The key of the first usable id, and whether it is a text. Without one, `Malformed` if an id has
/// not the form of its kind: the configuration or the link is wrong.
fn usable_id(
    keys: &KeyMaker,
    config: &CallbackConfig,
    query: Query<'_>,
) -> Result<(DeviceKey, bool), Unusable> {
    let mut cause = Unusable::Blank;
    for id in &config.id {
        // A link may have a parameter twice, once with a macro that was not replaced.
        for value in query.values(&id.parameter) {
            let key = match id.kind {
                Some(kind) => keys.key(kind, &value),
                None => text_key(&value),
            };
            match key {
                Ok(key) => return Ok((key, id.kind.is_none())),
                Err(Unusable::Malformed) => cause = Unusable::Malformed,
                Err(Unusable::Blank) => {}
            }
        }
    }
    Err(cause)
}

/// The key of an id of kind text, as `POST …/events` takes it; none of a macro that was not
/// replaced.
fn text_key(text: &[u8]) -> Result<DeviceKey, Unusable> {
    if text.is_empty() || is_macro(text) {
        return Err(Unusable::Blank);
    }
    if text.len() > MAX_TEXT {
        return Err(Unusable::Malformed);
    }
    Ok(DeviceKey::of_canonical(text))
}

/// A time in seconds or milliseconds since 1970, of the years 2000 to 9999: seconds that are read
/// as milliseconds are in 1970.
fn time(text: &[u8], unit: TimeUnit) -> Option<SystemTime> {
    let number: u64 = std::str::from_utf8(text).ok()?.trim().parse().ok()?;
    let since = match unit {
        TimeUnit::Seconds => Duration::from_secs(number),
        TimeUnit::Milliseconds => Duration::from_millis(number),
    };
    let seconds = check_unix_seconds(since.as_secs()).ok()?;
    (seconds >= YEAR_2000).then(|| UNIX_EPOCH + since)
}

/// Identity of a callback with an id of the click. It is kept after an erasure, so it holds no key.
fn retry(config: &CallbackConfig, query: Query<'_>, key: &[u8; 16]) -> Option<Retry> {
    let id = query.value(config.request_id.as_ref()?)?;
    let id = id.trim_ascii();
    if id.is_empty() || is_macro(id) {
        return None;
    }
    let digest = *DeviceKey::of_canonical(id).as_bytes();
    // Apart from the tokens of `Idempotency-Key`.
    let token = [&b"callback"[..], &digest, key].concat();
    let token = *DeviceKey::of_canonical(&token).as_bytes();
    Some((RequestKey(token), token))
}
