//! `/v1/check`: membership of one device, or of many, in an audience.

use axum::http::HeaderMap;
use hyper::body::Incoming;
use rtad_core::device::{DeviceKey, IdKind};
use rtad_core::snapshot::Snapshot;
use rtad_http::body::{ReadBody, is_octet_stream, packed_bits, split_keys};
use rtad_http::json::{Text, parse_object};
use rtad_http::query::{parameter, refuse_kind};
use rtad_http::room::Share;
use rtad_http::timing::Arrival;
use serde::Deserialize;

use super::decision_app::{AnswerBody, App};
use super::error::ApiError;
use super::segment::{decoded, decoded_bytes};
use crate::catalog::Catalog;

/// Beginning of the routes' paths.
pub const PATH: &str = "/v1/check/";
/// Largest batch, in ids.
const MAX_IDS: usize = 10_000;
/// Size of 10,000 ids of the longest kind in JSON. It overrides a smaller `server.max_body`.
const MAX_BATCH_BODY: usize = 2 << 20;

/// `GET /v1/check/{audience}/{id}[?kind=KIND]`
pub fn one(
    app: &App,
    catalog: &Catalog,
    audience: &str,
    id: &str,
    query: Option<&str>,
) -> Result<AnswerBody, ApiError> {
    let kind = kind_of(query)?;
    let snapshot = snapshot_of(catalog, &decoded(audience))?;
    let key = app.ids.key_of_kind(kind, &decoded_bytes(id));
    let key = key.map_err(|unusable| ApiError::BadId(kind, unusable))?;
    let answer: &'static [u8] = match snapshot.contains(&key) {
        true => br#"{"member":true}"#,
        false => br#"{"member":false}"#,
    };
    Ok(AnswerBody::json(answer))
}

/// `POST /v1/check/{audience}`, as JSON or as 16-byte keys back to back.
pub async fn many(
    app: &App,
    arrival: Arrival,
    audience: &str,
    (query, headers): (Option<&str>, &HeaderMap),
    body: Incoming,
) -> Result<AnswerBody, ApiError> {
    // The answers would be about ids of another kind.
    refuse_kind(query)?;
    let audience = decoded(audience);
    // An unknown audience is reported before the body is read.
    snapshot_of(&app.serving.load(), &audience)?;
    let max_bytes = app.max_body.max(MAX_BATCH_BODY);
    let ReadBody {
        bytes: body,
        permit: _permit,
    } = app
        .read_body(body, max_bytes, |length| app.permit(length, Share::Half))
        .await?;
    if arrival.queued > app.max_wait {
        // A late batch is shed, in favor of bid requests on the same worker.
        app.telemetry.shed();
        return Err(ApiError::Overloaded);
    }
    // Loaded once for all ids, after the last await: a slow body holds no generation.
    let catalog = app.serving.load();
    let snapshot = snapshot_of(&catalog, &audience)?;
    match is_octet_stream(headers) {
        true => check_binary(app, snapshot, &body),
        false => check_json(app, snapshot, &body),
    }
}

fn snapshot_of<'a>(catalog: &'a Catalog, audience: &str) -> Result<&'a Snapshot, ApiError> {
    let found = catalog
        .audience(audience)
        .ok_or_else(|| ApiError::unknown_audience(catalog))?;
    found.available().ok_or(ApiError::NotLoaded)
}

/// The `kind` of a query; md5 if there is none. Other parameters are ignored.
fn kind_of(query: Option<&str>) -> Result<IdKind, ApiError> {
    match parameter(query, "kind") {
        None => Ok(IdKind::Md5),
        Some(kind) => decoded(kind).parse().map_err(|_| ApiError::UnknownKind),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckBatch<'a> {
    #[serde(borrow)]
    ids: Vec<Option<Text<'a>>>,
    #[serde(default, borrow)]
    kind: Option<Text<'a>>,
}

/// The answers for a non-member, a member and an unusable id, with their lengths. All take the same
/// room: copies of a length that depends on the id would cost a mispredicted jump each.
const MEMBER_TEXTS: [([u8; 6], usize); 3] = [(*b"false,", 6), (*b"true, ", 5), (*b"null, ", 5)];
/// The index of the answer for an unusable id.
const NULL: usize = 2;

fn check_json(app: &App, snapshot: &Snapshot, body: &[u8]) -> Result<AnswerBody, ApiError> {
    let CheckBatch { ids, kind } = parse_object(body, "ids and kind")?;
    let kind = kind.map_or(Ok(IdKind::Md5), |kind| {
        kind.0.parse().map_err(|_| ApiError::UnknownKind)
    })?;
    at_most_max_ids(ids.len())?;
    let (mut usable, mut keys) = (Vec::with_capacity(ids.len()), Vec::with_capacity(ids.len()));
    let present = ids.iter().flatten().map(|Text(id)| id.as_bytes());
    app.ids
        .keys_of_kind(kind, present, &mut keys, |is_usable| usable.push(is_usable));
    let mut members = vec![false; keys.len()];
    snapshot.contains_many(&keys, &mut members);
    let mut answer = Vec::with_capacity(16 + 6 * ids.len());
    answer.extend_from_slice(br#"{"members":["#);
    let (mut usable, mut members) = (usable.into_iter(), members.into_iter());
    for id in &ids {
        let is_usable = id.is_some() && usable.next() == Some(true);
        let answered = if is_usable {
            usize::from(members.next() == Some(true))
        } else {
            NULL
        };
        let (text, length) = MEMBER_TEXTS[answered];
        answer.extend_from_slice(&text);
        answer.truncate(answer.len() - text.len() + length);
    }
    if !ids.is_empty() {
        answer.pop();
    }
    answer.extend_from_slice(b"]}");
    Ok(AnswerBody::json(answer))
}

fn check_binary(app: &App, snapshot: &Snapshot, body: &[u8]) -> Result<AnswerBody, ApiError> {
    let ids = split_keys(body).map_err(ApiError::BadBody)?;
    at_most_max_ids(ids.len())?;
    let keys: Vec<DeviceKey> = ids.iter().map(|id| DeviceKey::from_bytes(*id)).collect();
    let mut members = vec![false; keys.len()];
    snapshot.contains_many(&keys, &mut members);
    // A blank id is in no audience, even on a false positive of the filter.
    app.ids.count_keys(&keys, |index| members[index] = false);

    Ok(AnswerBody {
        media_type: Some("application/octet-stream"),
        bytes: packed_bits(members.into_iter()).into(),
    })
}

fn at_most_max_ids(count: usize) -> Result<(), ApiError> {
    if count <= MAX_IDS {
        return Ok(());
    }
    Err(ApiError::TooLarge(format!(
        "{count} ids; accepted: up to {MAX_IDS}"
    )))
}
