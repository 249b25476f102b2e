//! Handler of `POST /v1/audiences/{audience}/devices`: adds and removes devices.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use rtad_http::answer::json_of;
use rtad_http::body::is_octet_stream;
use rtad_http::json::{Text, parse_object};
use rtad_http::query::{parameter, refuse_kind};
use serde::{Deserialize, Serialize};

use rtad_core::device::{DeviceKey, IdKind, KeyMaker, Unusable};
use rtad_http::request_error::RequestError;

use super::app::{App, NamedAudience};
use super::audience::{WriteRequest, Written};
use super::bodies::{is_zero, refuse_parameter, with_body};
use super::error::ApiError;
use super::ids::{Ids, keys_of};
use super::op::Op;

/// Ids in one request.
const MAX_IDS: usize = 100_000;
/// Largest value of a device.
const MAX_VALUE: u8 = 15;

/// Keys of a request, and its unusable ids.
#[derive(Debug)]
struct Parsed {
    request: WriteRequest,
    ids: usize,
    rejected: Vec<Rejected>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Rejected {
    index: usize,
    reason: &'static str,
}

#[derive(Debug, Serialize)]
struct Answer {
    sequence: u64,
    generation: u64,
    accepted: usize,
    rejected: Vec<Rejected>,
    entombed: usize,
    #[serde(skip_serializing_if = "is_zero")]
    without_value: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    new: Option<Vec<bool>>,
}

pub async fn write(
    State(app): State<Arc<App>>,
    NamedAudience(audience): NamedAudience,
    request: Request,
) -> Result<Response, ApiError> {
    let (head, body) = request.into_parts();
    refuse_kind(head.uri.query())?;
    let keys = Arc::clone(&app.keys);
    let Parsed {
        request,
        ids,
        rejected,
    } = match is_octet_stream(&head.headers) {
        true => {
            let op = query_op(head.uri.query())?;
            with_body(&app.room, body, move |body| parse_binary(&keys, op, &body)).await?
        }
        false => {
            refuse_parameter(head.uri.query(), "op")?;
            with_body(&app.room, body, move |body| parse_json(&keys, &body)).await?
        }
    };
    let (op, accepted) = (request.op, request.keys.len());
    if app.windows.is_followed(&audience) && !op.is_about_tombstones() {
        return Err(ApiError::Owned);
    }
    let written = app.writers.write(&audience, request).await?;
    let Written {
        after,
        entombed,
        without_value,
        new,
        ..
    } = written;
    let new = (op == Op::AddIfAbsent).then(|| flags_per_id(&new, ids, &rejected));
    let answer = Answer {
        sequence: after.sequence,
        generation: after.generation,
        accepted,
        rejected,
        entombed: entombed.len(),
        without_value,
        new,
    };
    Ok(json_of(StatusCode::OK, &answer))
}

/// Maps flags per key to flags per id; a rejected id is not new.
fn flags_per_id(keys: &[bool], ids: usize, rejected: &[Rejected]) -> Vec<bool> {
    let (mut keys, mut rejected) = (keys.iter(), rejected.iter().peekable());
    let is_new = |index| match rejected.next_if(|rejected| rejected.index == index) {
        Some(_) => false,
        None => keys.next().copied().unwrap_or(false),
    };
    (0..ids).map(is_new).collect()
}

/// The `op` parameter of a query; other parameters are ignored.
fn query_op(query: Option<&str>) -> Result<Op, ApiError> {
    let word = parameter(query, "op").ok_or(ApiError::UnknownOp)?;
    word.parse().map_err(|_| ApiError::UnknownOp)
}

fn parse_binary(maker: &KeyMaker, op: Op, body: &[u8]) -> Result<Parsed, ApiError> {
    let ids = keys_of::<MAX_IDS>(body)?;
    let mut keys = Vec::with_capacity(ids.len());
    let results = ids.iter().map(|id| {
        maker
            .usable(DeviceKey::from_bytes(*id))
            .map(|key| keys.push(key))
    });
    let rejected = rejected(results);
    let request = WriteRequest {
        op,
        keys,
        values: Vec::new(),
        window: None,
    };
    Ok(Parsed {
        request,
        ids: ids.len(),
        rejected,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields<'a> {
    #[serde(borrow)]
    op: Text<'a>,
    #[serde(default, borrow)]
    kind: Option<Text<'a>>,
    #[serde(borrow)]
    ids: Ids<'a, MAX_IDS>,
    #[serde(default)]
    values: Option<Vec<Option<u8>>>,
}

fn parse_json(maker: &KeyMaker, body: &[u8]) -> Result<Parsed, ApiError> {
    let Fields {
        op,
        kind,
        ids,
        values,
    } = parse_object(body, "op, kind, ids and values")?;
    let op: Op = op.0.parse().map_err(|_| ApiError::UnknownOp)?;
    let kind = kind.map_or(Ok(IdKind::Md5), |kind| {
        kind.0.parse().map_err(|_| ApiError::UnknownKind)
    })?;
    let texts = ids.texts()?;
    let count = texts.len();
    if let Some(values) = &values {
        check_values(op, values, count)?;
    }
    let (mut keys, mut results) = (Vec::with_capacity(count), Vec::with_capacity(count));
    maker.keys_of_many(kind, texts, &mut keys, |result| results.push(result));
    let is_usable = |(index, _): &(usize, _)| results.get(*index).is_some_and(Result::is_ok);
    let values = values.into_iter().flatten().enumerate().filter(is_usable);
    let values = values.map(|(_, value)| value).collect();
    let rejected = rejected(results);
    Ok(Parsed {
        request: WriteRequest {
            op,
            keys,
            values,
            window: None,
        },
        ids: count,
        rejected,
    })
}

fn check_values(op: Op, values: &[Option<u8>], ids: usize) -> Result<(), RequestError> {
    if !op.adds() {
        return Err(RequestError::BadBody(
            "values: accepted with add and add_if_absent".to_owned(),
        ));
    }
    if values.len() != ids {
        return Err(RequestError::BadBody(format!(
            "values: expected one for each of the {ids} ids, found {}",
            values.len()
        )));
    }
    match values
        .iter()
        .position(|value| value.is_some_and(|value| value > MAX_VALUE))
    {
        Some(index) => Err(RequestError::BadBody(format!(
            "values: {index}: expected 0 to {MAX_VALUE}, or null for none"
        ))),
        None => Ok(()),
    }
}

fn rejected(results: impl IntoIterator<Item = Result<(), Unusable>>) -> Vec<Rejected> {
    let failed = |(index, result): (usize, Result<(), Unusable>)| {
        result.err().map(|unusable| Rejected {
            index,
            reason: unusable.as_str(),
        })
    };
    results.into_iter().enumerate().filter_map(failed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of `docs/reference/inputs.md` is also that of writes.
    #[test]
    fn table_of_forms_says_what_writes_have() {
        let maker = KeyMaker::default();
        let kinds = IdKind::ALL.map(IdKind::as_str);
        for form in testkit::pages::id_forms(&kinds) {
            for (kind, result) in form.results() {
                let ids = [&form.text];
                let body = serde_json::json!({ "op": "add", "kind": kind, "ids": ids }).to_string();
                let parsed = parse_json(&maker, body.as_bytes()).unwrap();
                let found = parsed.rejected.first().map_or("usable", |id| id.reason);
                assert_eq!(found, result, "{} as {kind}", form.text);
            }
        }
    }
}
