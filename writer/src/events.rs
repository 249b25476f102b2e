//! Handlers of `/v1/windows`: events, checks, erasure, list.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::{FromRequestParts, Path, Request, State};
use axum::http::header::{CONTENT_TYPE, HeaderName};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use rtad_http::answer::json_of;
use rtad_http::body::{is_octet_stream, packed_bits};
use rtad_http::json::{Text, parse_object};
use rtad_http::query::{parameter, refuse_kind};
use serde::{Deserialize, Serialize};

use rtad_core::device::{DeviceKey, IdKind, KeyMaker};
use rtad_http::request_error::RequestError;
use rtad_window::{Key, Observed, RequestKey, Seen};

use super::app::App;
use super::bodies::{check_unix_seconds, is_zero, refuse_parameter, with_body};
use super::error::ApiError;
use super::ids::{Ids, keys_of};
use super::windows::counters::Results;
use super::windows::{FollowedInfo, Window, WindowInfo};

/// Ids in one request.
const MAX_IDS: usize = 10_000;
/// Bytes of an id of kind `text`.
pub const MAX_TEXT: usize = 1024;
const MAX_IDEMPOTENCY_KEY: usize = 255;
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Time of the events, a parameter of binary bodies.
const AT: &str = "at_unix_seconds";
/// Number of late events of a binary request.
const LATE: HeaderName = HeaderName::from_static("rtad-late");

/// The window in a path.
pub struct NamedWindow(Arc<Window>);

impl FromRequestParts<Arc<App>> for NamedWindow {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let path = Path::<String>::from_request_parts(parts, app).await;
        let name = path.ok().and_then(|Path(name)| name.parse().ok());
        let window = name.and_then(|name| app.windows.get(&name).cloned());
        window.map(Self).ok_or(ApiError::UnknownWindow)
    }
}

/// Keys of a request.
struct Batch {
    keys: Vec<Key>,
    ids: BatchIds,
    /// Time of the events; `None` for now.
    at: Option<SystemTime>,
    /// Digest of the body, for requests with an idempotency key.
    digest: Option<[u8; 16]>,
}

/// Ids of a request, as its answer needs them.
struct BatchIds {
    /// Whether each id has a key.
    usable: Vec<bool>,
    is_binary: bool,
    /// Whether their kind is `text`.
    is_text: bool,
}

impl BatchIds {
    fn unusable(&self) -> u64 {
        self.usable.iter().filter(|usable| !**usable).count() as u64
    }

    /// One value per id: `None` for unusable ones.
    fn per_id<T>(&self, values: impl IntoIterator<Item = T>) -> Vec<Option<T>> {
        let mut values = values.into_iter();
        self.usable
            .iter()
            .map(|usable| usable.then(|| values.next()).flatten())
            .collect()
    }
}

/// One bit per id, the first in the lowest bit of the first byte.
fn bits(flags: impl ExactSizeIterator<Item = bool>) -> Response {
    let mut response = Response::new(Body::from(packed_bits(flags)));
    let binary = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(CONTENT_TYPE, binary);
    response
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields<'a> {
    #[serde(default, borrow)]
    kind: Option<Text<'a>>,
    #[serde(default)]
    at_unix_seconds: Option<u64>,
    #[serde(borrow)]
    ids: Ids<'a, MAX_IDS>,
}

fn time_of(unix_seconds: u64) -> Result<SystemTime, RequestError> {
    Ok(UNIX_EPOCH + Duration::from_secs(check_unix_seconds(unix_seconds)?))
}

/// The `at_unix_seconds` parameter of a query; other parameters are ignored.
fn query_time(query: Option<&str>) -> Result<Option<SystemTime>, RequestError> {
    let Some(text) = parameter(query, AT) else {
        return Ok(None);
    };
    let expected = || RequestError::BadBody("at_unix_seconds: expected a whole number".to_owned());
    time_of(text.parse().map_err(|_| expected())?).map(Some)
}

fn parse_binary(maker: &KeyMaker, at: Option<SystemTime>, body: &[u8]) -> Result<Batch, ApiError> {
    let ids = keys_of::<MAX_IDS>(body)?;
    let is_usable = |id: &Key| maker.usable(DeviceKey::from_bytes(*id)).is_ok();
    let usable: Vec<bool> = ids.iter().map(is_usable).collect();
    let keys = ids
        .iter()
        .zip(&usable)
        .filter(|(_, usable)| **usable)
        .map(|(id, _)| *id)
        .collect();
    Ok(Batch {
        keys,
        ids: BatchIds {
            usable,
            is_binary: true,
            is_text: false,
        },
        at,
        digest: None,
    })
}

fn parse_json(maker: &KeyMaker, body: &[u8]) -> Result<Batch, ApiError> {
    let Fields {
        kind,
        at_unix_seconds,
        ids,
    } = parse_object(body, "ids and kind")?;
    let at = at_unix_seconds.map(time_of).transpose()?;
    let texts = ids.texts()?;
    let count = texts.len();
    let (mut keys, mut usable) = (Vec::with_capacity(count), Vec::with_capacity(count));
    let kind = kind.as_ref().map_or("md5", |kind| &kind.0);
    let is_text = kind == "text";
    if is_text {
        for text in texts {
            let is_usable = (1..=MAX_TEXT).contains(&text.len());
            usable.push(is_usable);
            if is_usable {
                keys.push(*DeviceKey::of_canonical(text).as_bytes());
            }
        }
    } else {
        let kind: IdKind = kind.parse().map_err(|_| ApiError::UnknownWindowKind)?;
        let mut made = Vec::with_capacity(count);
        maker.keys_of_many(kind, texts, &mut made, |result| usable.push(result.is_ok()));
        keys.extend(made.iter().map(|key| *key.as_bytes()));
    }
    Ok(Batch {
        keys,
        ids: BatchIds {
            usable,
            is_binary: false,
            is_text,
        },
        at,
        digest: None,
    })
}

/// Reads the body.
async fn read_batch(app: &App, request: Request, needs_digest: bool) -> Result<Batch, ApiError> {
    let (head, body) = request.into_parts();
    let keys = Arc::clone(&app.keys);
    refuse_kind(head.uri.query())?;
    let is_binary = is_octet_stream(&head.headers);
    let at = match is_binary {
        true => query_time(head.uri.query())?,
        false => refuse_parameter(head.uri.query(), AT).map(|()| None)?,
    };
    with_body(&app.room, body, move |body| {
        let mut batch = match is_binary {
            true => parse_binary(&keys, at, &body),
            false => parse_json(&keys, &body),
        }?;
        batch.digest = needs_digest.then(|| digest(&body, at));
        Ok(batch)
    })
    .await
}

/// Digest of a body, and of the time beside it.
fn digest(body: &[u8], at: Option<SystemTime>) -> [u8; 16] {
    let body = *DeviceKey::of_canonical(body).as_bytes();
    let Some(at) = at else { return body };
    let seconds = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    *DeviceKey::of_canonical(&[&body[..], &seconds.to_le_bytes()].concat()).as_bytes()
}

/// Reads the body of a request about the present.
async fn read_present(app: &App, request: Request) -> Result<Batch, ApiError> {
    let batch = read_batch(app, request, false).await?;
    match batch.at {
        None => Ok(batch),
        Some(_) => {
            let detail = "at_unix_seconds: accepted for events only".to_owned();
            Err(RequestError::BadBody(detail).into())
        }
    }
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<RequestKey>, RequestError> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        let detail = "header Idempotency-Key: expected at most one, found more";
        return Err(RequestError::BadBody(detail.to_owned()));
    }
    let bytes = value.as_bytes();
    if !(1..=MAX_IDEMPOTENCY_KEY).contains(&bytes.len()) {
        return Err(RequestError::BadBody(format!(
            "header Idempotency-Key: expected 1 to {MAX_IDEMPOTENCY_KEY} bytes, found {}",
            bytes.len()
        )));
    }
    Ok(Some(RequestKey(*DeviceKey::of_canonical(bytes).as_bytes())))
}

#[derive(Debug, Serialize)]
struct EventsAnswer {
    new: Vec<Option<bool>>,
    counts: Vec<Option<u16>>,
    /// Events of a time whose entries have expired.
    #[serde(skip_serializing_if = "is_zero")]
    late: u64,
}

pub async fn events(
    State(app): State<Arc<App>>,
    NamedWindow(window): NamedWindow,
    request: Request,
) -> Result<Response, ApiError> {
    let token = idempotency_key(request.headers())?;
    let Batch {
        keys,
        ids,
        at,
        digest,
    } = read_batch(&app, request, token.is_some()).await?;
    if ids.is_text {
        app.windows.warn_of_text(&window);
    }
    let events = keys.len() as u64;
    let observed = window.observe(keys, at, token.zip(digest)).await?;
    let late = if observed.is_none() { events } else { 0 };
    let Observed { seen, is_repeated } = observed.unwrap_or_default();
    if !is_repeated {
        window.count(Results {
            unusable: ids.unusable(),
            late,
            ..Results::of(&seen)
        });
    }

    let new = ids.per_id(seen.iter().map(|seen| *seen == Seen::New));
    if ids.is_binary {
        let mut response = bits(new.iter().map(|new| *new == Some(true)));
        if late > 0 {
            response.headers_mut().insert(LATE, late.into());
        }
        return Ok(response);
    }
    let counts = ids.per_id(seen.iter().map(|seen| match seen {
        Seen::New => 1,
        Seen::Duplicate(count) => *count,
    }));
    Ok(json_of(StatusCode::OK, &EventsAnswer { new, counts, late }))
}

#[derive(Debug, Serialize)]
struct CheckAnswer {
    seen: Vec<Option<bool>>,
    counts: Vec<Option<u16>>,
}

pub async fn check(
    State(app): State<Arc<App>>,
    NamedWindow(window): NamedWindow,
    request: Request,
) -> Result<Response, ApiError> {
    let Batch { keys, ids, .. } = read_present(&app, request).await?;
    let counts = window.check(keys).await?;
    let seen = ids.per_id(counts.iter().map(|count| *count > 0));
    if ids.is_binary {
        return Ok(bits(seen.iter().map(|seen| *seen == Some(true))));
    }
    let counts = ids.per_id(counts);
    Ok(json_of(StatusCode::OK, &CheckAnswer { seen, counts }))
}

#[derive(Debug, Serialize)]
struct ForgetAnswer {
    forgotten: Vec<Option<bool>>,
}

pub async fn forget(
    State(app): State<Arc<App>>,
    NamedWindow(window): NamedWindow,
    request: Request,
) -> Result<Response, ApiError> {
    let Batch { keys, ids, .. } = read_present(&app, request).await?;
    let forgotten = ids.per_id(window.forget(keys).await?);
    if ids.is_binary {
        return Ok(bits(
            forgotten.iter().map(|forgotten| *forgotten == Some(true)),
        ));
    }
    Ok(json_of(StatusCode::OK, &ForgetAnswer { forgotten }))
}

#[derive(Debug, Serialize)]
struct ListAnswer<'a> {
    windows: Vec<WindowInfo<'a>>,
    /// Audiences that follow a window, on the admin port.
    #[serde(skip_serializing_if = "Option::is_none")]
    audiences: Option<Vec<FollowedInfo<'a>>>,
}

pub async fn list(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let windows = app.windows.all().map(|window| window.info()).collect();
    Ok(json_of(
        StatusCode::OK,
        &ListAnswer {
            windows,
            audiences: None,
        },
    ))
}

/// The list of the admin port.
pub async fn list_with_audiences(State(app): State<Arc<App>>) -> Response {
    let windows = app.windows.all().map(|window| window.info()).collect();
    let audiences = Some(app.windows.followed().collect());
    json_of(StatusCode::OK, &ListAnswer { windows, audiences })
}
