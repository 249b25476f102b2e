//! `/v1/check`: membership of one device, or of many, in an audience.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Uri;
use rtad_core::device::{DeviceKey, IdKind};
use rtad_core::snapshot::Snapshot;
use rtad_http::body::{ReadBody, has_encoding, is_octet_stream, packed_bits, split_keys};
use rtad_http::json::{Text, parse_object};
use rtad_http::query::{parameter, refuse_kind};
use rtad_http::request_error::RequestError;
use rtad_http::room::Share;
use serde::Deserialize;
use tokio::task::yield_now;

use super::{AnswerBody, App};
use crate::catalog::Catalog;
use crate::http::error::ApiError;
use crate::http::segment::{decoded, decoded_bytes, raw};
use crate::platform::IdReader;

/// Largest batch, in ids.
const MAX_IDS: usize = 10_000;
/// Ids of a batch that are checked at a time. Other requests of the worker are answered between
/// slices, as a whole batch may cost a hundred times as much as one of them. None is refused for
/// its queueing delay: a refusal costs as much as an answer.
const SLICE: usize = 256;
/// Size of 10,000 ids of the longest kind in JSON. It overrides a smaller `server.max_body`.
const MAX_BATCH_BODY: usize = 2 << 20;

/// Whether a path is `/v1/check/{audience}/{id}`.
pub fn is_of_one(path: &str) -> bool {
    let segments = path.strip_prefix("/v1/check/");
    let Some((audience, id)) = segments.and_then(|segments| segments.split_once('/')) else {
        return false;
    };
    !audience.is_empty() && !id.is_empty() && !id.contains('/')
}

/// `GET /v1/check/{audience}/{id}[?kind=KIND]`
pub fn one(app: &App, catalog: &Catalog, uri: &Uri) -> Result<AnswerBody, ApiError> {
    let kind = kind_of(uri.query())?;

    let snapshot = snapshot_of(catalog, &decoded(raw(uri, 2)))?;
    let key = app
        .ids
        .key_of_kind(kind, &decoded_bytes(raw(uri, 3)))
        .map_err(|unusable| ApiError::bad_id(kind, unusable))?;

    let answer: &'static [u8] = if snapshot.contains(&key) {
        br#"{"member":true}"#
    } else {
        br#"{"member":false}"#
    };
    Ok(AnswerBody::json(answer))
}

/// `HEAD /v1/check/{audience}/{id}`. A GET is answered before the router.
pub async fn head(State(app): State<Arc<App>>, uri: Uri) -> Result<AnswerBody, ApiError> {
    one(&app, &app.serving.load(), &uri)
}

/// `POST /v1/check/{audience}`, as JSON or as 16-byte keys back to back.
pub async fn many(State(app): State<Arc<App>>, request: Request) -> Result<AnswerBody, ApiError> {
    let (head, body) = request.into_parts();
    if has_encoding(&head.headers) {
        return Err(RequestError::BadEncoding.into());
    }
    // The answers would be about ids of another kind.
    refuse_kind(head.uri.query())?;

    let audience = decoded(raw(&head.uri, 2));
    // An unknown audience is reported before the body is read.
    snapshot_of(&app.serving.load(), &audience)?;

    let max_bytes = app.max_body.max(MAX_BATCH_BODY);
    let ReadBody {
        bytes: body,
        permit: _permit,
    } = app
        .read_body(body, max_bytes, |length| app.permit(length, Share::Half))
        .await?;
    let _turn = app.batch_turn.lock().await;

    // Loaded once for all ids, after the body: a slow one holds no generation.
    let catalog = app.serving.load_full();
    let snapshot = snapshot_of(&catalog, &audience)?;
    if is_octet_stream(&head.headers) {
        check_binary(&app.ids, snapshot, &body).await
    } else {
        check_json(&app.ids, snapshot, &body).await
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

async fn check_json(
    ids: &IdReader,
    snapshot: &Snapshot,
    body: &[u8],
) -> Result<AnswerBody, ApiError> {
    let batch: CheckBatch<'_> = parse_object(body, "ids and kind")?;
    let kind = batch.kind.map_or(Ok(IdKind::Md5), |kind| {
        kind.0.parse().map_err(|_| ApiError::UnknownKind)
    })?;
    at_most_max_ids(batch.ids.len())?;

    let mut answer = Vec::with_capacity(16 + 6 * batch.ids.len());
    answer.extend_from_slice(br#"{"members":["#);
    let mut lists = SliceLists::default();
    for (index, slice) in batch.ids.chunks(SLICE).enumerate() {
        if index > 0 {
            yield_now().await;
        }
        lists.check(ids, snapshot, kind, slice);
        lists.write(slice, &mut answer);
    }

    if !batch.ids.is_empty() {
        answer.pop();
    }
    answer.extend_from_slice(b"]}");
    Ok(AnswerBody::json(answer))
}

/// Lists about the ids of one slice.
#[derive(Default)]
struct SliceLists {
    /// Whether each present id is usable.
    usable: Vec<bool>,
    /// Keys of the usable ids.
    keys: Vec<DeviceKey>,
    /// Whether each key is a member's.
    members: Vec<bool>,
}

impl SliceLists {
    fn check(
        &mut self,
        ids: &IdReader,
        snapshot: &Snapshot,
        kind: IdKind,
        slice: &[Option<Text<'_>>],
    ) {
        self.usable.clear();
        self.keys.clear();
        let present = slice.iter().flatten().map(|Text(id)| id.as_bytes());
        ids.keys_of_kind(kind, present, &mut self.keys, |is_usable| {
            self.usable.push(is_usable);
        });

        self.members.clear();
        self.members.resize(self.keys.len(), false);
        snapshot.contains_many(&self.keys, &mut self.members);
    }

    /// Writes the answer for each id of the slice, with a comma after it.
    fn write(&self, slice: &[Option<Text<'_>>], answer: &mut Vec<u8>) {
        let mut usable = self.usable.iter();
        let mut members = self.members.iter();
        for id in slice {
            let is_usable = id.is_some() && usable.next() == Some(&true);
            let answered = if is_usable {
                usize::from(members.next() == Some(&true))
            } else {
                NULL
            };
            let (text, length) = MEMBER_TEXTS[answered];
            answer.extend_from_slice(&text);
            answer.truncate(answer.len() - text.len() + length);
        }
    }
}

async fn check_binary(
    ids: &IdReader,
    snapshot: &Snapshot,
    body: &[u8],
) -> Result<AnswerBody, ApiError> {
    let sent = split_keys(body)?;
    at_most_max_ids(sent.len())?;

    let mut members = vec![false; sent.len()];
    let mut keys = Vec::with_capacity(SLICE);
    for (index, slice) in sent.chunks(SLICE).enumerate() {
        if index > 0 {
            yield_now().await;
        }
        keys.clear();
        keys.extend(slice.iter().map(|id| DeviceKey::from_bytes(*id)));
        let members = &mut members[index * SLICE..][..slice.len()];
        snapshot.contains_many(&keys, members);
        // A blank id is in no audience, even on a false positive of the filter.
        ids.count_keys(&keys, |index| members[index] = false);
    }

    Ok(AnswerBody {
        media_type: Some("application/octet-stream"),
        bytes: packed_bits(members.into_iter()).into(),
    })
}

fn at_most_max_ids(count: usize) -> Result<(), RequestError> {
    if count <= MAX_IDS {
        return Ok(());
    }
    Err(RequestError::TooLarge(format!(
        "{count} ids; accepted: up to {MAX_IDS}"
    )))
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use rtad_core::device::KeyMaker;
    use testkit::store::{Spec, keys, snapshot};

    use super::*;
    use crate::telemetry::Telemetry;

    /// Completes a check of a batch, and counts how often it was polled.
    fn polled(check: impl Future<Output = Result<AnswerBody, ApiError>>) -> (usize, Vec<u8>) {
        let mut check = pin!(check);
        let mut polls = 1;
        loop {
            match check.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(answer) => return (polls, answer.unwrap().bytes.to_vec()),
                Poll::Pending => polls += 1,
            }
        }
    }

    #[test]
    fn batches_yield_after_every_slice_and_answer_every_id() {
        let telemetry = Telemetry::default();
        let ids = IdReader::new(KeyMaker::default(), &telemetry);
        let sent = keys(7, 2 * SLICE + 1, |shard| shard);
        let mut members = sent[SLICE - 1..=SLICE].to_vec();
        members.sort_unstable();
        let snapshot = snapshot("old_users", 1, &members, &Spec::small());
        let is_member = |index: usize| index == SLICE - 1 || index == SLICE;

        let binary: Vec<u8> = sent.iter().flat_map(|key| *key.as_bytes()).collect();
        let (polls, answer) = polled(check_binary(&ids, &snapshot, &binary));
        assert_eq!(polls, 3);
        assert_eq!(answer, packed_bits((0..sent.len()).map(is_member)));

        let texts: Vec<String> = sent
            .iter()
            .map(|key| const_hex::encode(key.as_bytes()))
            .collect();
        let json = serde_json::json!({ "ids": texts }).to_string();
        let (polls, answer) = polled(check_json(&ids, &snapshot, json.as_bytes()));
        assert_eq!(polls, 3);
        let expected: Vec<bool> = (0..sent.len()).map(is_member).collect();
        let expected = serde_json::json!({ "members": expected });
        assert_eq!(
            serde_json::from_slice::<serde_json::Value>(&answer).unwrap(),
            expected
        );
    }
}
