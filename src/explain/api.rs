//! Decisions about a captured request to `/v1/decide`, and its answer.

use std::collections::BTreeSet;

use rtad_core::device::{DeviceKey, IdField, Unusable};
use rtad_http::body::has_encoding;
use rtad_http::problem::Problem;
use rtad_http::request_error::RequestError;
use tokio::time::Instant;

use super::capture::{Captured, Outcome, access_by_headers};
use super::explainer::Explainer;
use super::parts::{ExplainedDevice, explain_strategies};
use super::report::{AccessChecked, ExplainedAnswer, FailureExplained};
use super::trace::{MAX_LISTED, Trace, TracedId};
use crate::catalog::{Catalog, IdResult, RequestKeys};
use crate::platform::api::{self, DecisionRequest, TakeIds};
use crate::platform::{IdReader, Keys, Verdicts};
use crate::strategy::{Attribute, AttributeValue};

/// A request, and the indexes of the strategies that it asks for.
struct Asked<'body> {
    request: DecisionRequest<'body>,
    strategies: Vec<usize>,
}

/// The reason for refusing a request.
enum Refusal {
    Request(RequestError),
    /// The request names an unknown strategy. Lists the known ones.
    UnknownStrategy(Vec<String>),
}

impl From<RequestError> for Refusal {
    fn from(error: RequestError) -> Self {
        Self::Request(error)
    }
}

impl Refusal {
    /// The route's answer.
    fn problem(&self) -> Problem {
        match self {
            Self::Request(error) => error.problem(),
            Self::UnknownStrategy(known) => api::unknown_strategy(known),
        }
    }
}

/// Lists the ids of a request, and counts none.
struct ListedIds<'a> {
    reader: &'a IdReader,
    listed: Vec<TracedId>,
    unlisted: usize,
    /// The usable ones, each once.
    keys: Keys,
    unknown_os: Option<String>,
}

impl<'a> ListedIds<'a> {
    fn new(reader: &'a IdReader) -> Self {
        Self {
            reader,
            listed: Vec::new(),
            unlisted: 0,
            keys: Keys::new(),
            unknown_os: None,
        }
    }
}

impl TakeIds for &mut ListedIds<'_> {
    fn key(&mut self, field: IdField, id: &str) -> Result<DeviceKey, Unusable> {
        let key = self.reader.key_uncounted(field, id.as_bytes());
        let found = match key {
            Ok(key) if self.keys.contains(&key) => IdResult::Duplicate,
            Ok(key) => {
                // One too many refuses the request.
                let _ = self.keys.try_push(key);
                IdResult::Usable
            }
            Err(Unusable::Blank) => IdResult::Blank,
            Err(Unusable::Malformed) => IdResult::Malformed,
        };

        if self.listed.len() == MAX_LISTED {
            self.unlisted += 1;
            return key;
        }
        self.listed.push(TracedId {
            path: format!("device.{}", field.as_str()),
            field,
            value: id.to_owned(),
            found,
            key: key.ok(),
            log_device: None,
        });
        key
    }

    fn unknown_os(&mut self, os: &str) {
        self.unknown_os = Some(os.to_owned());
    }
}

/// Decides about a captured request as `/v1/decide` does, and counts nothing.
pub fn decide(explainer: &Explainer<'_>, captured: &Captured<'_>) -> Outcome {
    let catalog = explainer.catalog;
    let mut ids = ListedIds::new(explainer.ids);
    let asked = match read(catalog, captured, &mut ids) {
        Ok(asked) => asked,
        Err(refusal) => return refused(catalog, captured, &refusal.problem()),
    };
    let Asked {
        request,
        strategies: indexes,
    } = &asked;

    let trace = trace_of(&asked, ids);
    let attributes = request.attributes.values();
    let mut facts = catalog.no_facts(&trace.keys);
    facts.attributes = attributes;
    catalog.look_up(&trace.keys, indexes.iter().copied(), &mut facts);
    if let Some(time) = captured.at {
        // A strategy that is paused now was not looked up.
        catalog.complete(&trace.keys, &mut facts);
        catalog.pause_at(time, &mut facts);
    }
    let mut verdicts = Verdicts::new();
    catalog.decide(indexes.iter().copied(), &facts, &mut verdicts);
    catalog.would_admit(&trace.keys, Instant::now(), captured.at, &mut verdicts);
    let decisions = catalog.named_decisions(indexes, &verdicts, &facts);
    let bytes = api::encode(request.request_id.as_deref(), &decisions);

    let device = ExplainedDevice::new(catalog, &trace.keys, attributes, captured.at);
    let mut named = Vec::new();
    for index in indexes {
        named.push((catalog.strategy(*index).name.clone(), Some(*index)));
    }
    let strategies = explain_strategies(catalog, named, &device, &verdicts);
    Outcome {
        access: access_of(catalog, captured),
        trace,
        is_batch: false,
        audiences: audiences_of(catalog, &asked),
        strategies,
        failure: None,
        answer: answer(200, "application/json", &bytes),
    }
}

/// The indexes of the audiences that an explanation of the request shows.
pub fn audiences(explainer: &Explainer<'_>, captured: &Captured<'_>) -> BTreeSet<usize> {
    let mut ids = ListedIds::new(explainer.ids);
    match read(explainer.catalog, captured, &mut ids) {
        Ok(asked) => audiences_of(explainer.catalog, &asked),
        Err(_) => BTreeSet::new(),
    }
}

/// All if the request names no strategy.
fn audiences_of(catalog: &Catalog, asked: &Asked<'_>) -> BTreeSet<usize> {
    if asked.request.strategies.is_empty() {
        return (0..catalog.audiences().len()).collect();
    }
    let mut audiences = BTreeSet::new();
    for index in &asked.strategies {
        audiences.extend(catalog.strategy(*index).audiences());
    }
    audiences
}

/// Reads a request in the order of the route's checks.
fn read<'body>(
    catalog: &Catalog,
    captured: &'body Captured<'_>,
    ids: &mut ListedIds<'_>,
) -> Result<Asked<'body>, Refusal> {
    let headers = captured.head.headers;
    if captured.has_headers && !catalog.admits(headers) {
        return Err(RequestError::Unauthorized("server.api.token_files").into());
    }
    if has_encoding(headers) {
        return Err(RequestError::BadEncoding.into());
    }
    let max_body = captured.max_body;
    if captured.body.len() > max_body {
        let detail = format!("the body is over {max_body} bytes");
        return Err(RequestError::TooLarge(detail).into());
    }

    let request = api::decode(&captured.body, ids)?;
    let Some(strategies) = catalog.named_strategies(&request.strategies) else {
        let known = catalog.strategies().map(|known| known.name.clone());
        return Err(Refusal::UnknownStrategy(known.collect()));
    };
    Ok(Asked {
        request,
        strategies,
    })
}

/// A request that no strategy decides about.
fn refused(catalog: &Catalog, captured: &Captured<'_>, problem: &Problem) -> Outcome {
    let bytes = serde_json::to_vec(problem).expect("plain values serialize");
    let status = problem.status().as_u16();
    Outcome {
        access: access_of(catalog, captured),
        trace: Trace::empty(),
        is_batch: false,
        audiences: BTreeSet::new(),
        strategies: Vec::new(),
        failure: Some(FailureExplained {
            cause: problem.code(),
            detail: Some(problem.detail().to_owned()),
        }),
        answer: answer(status, "application/problem+json", &bytes),
    }
}

fn access_of(catalog: &Catalog, captured: &Captured<'_>) -> AccessChecked {
    if !catalog.has_api() {
        return AccessChecked::Closed;
    }
    let headers = captured.head.headers;
    access_by_headers(catalog.api_tokens(), headers, captured.has_headers)
}

fn trace_of(asked: &Asked<'_>, ids: ListedIds<'_>) -> Trace {
    let request = &asked.request;
    let mut trace = Trace::empty();
    trace.keys = RequestKeys::of(request.keys.clone(), request.units.clone());
    trace.ids = ids.listed;

    if let Some(id) = &request.request_id {
        trace.note("request_id", id.to_string());
    }
    let values = request.attributes.values();
    for (attribute, value) in Attribute::ALL.into_iter().zip(values) {
        if let Some(AttributeValue::Text(text)) = value {
            trace.note(attribute.as_str(), String::from_utf8_lossy(text).into());
        }
    }
    if let Some(os) = ids.unknown_os {
        trace.note("os, not known", os);
    }

    trace.note_unlisted(ids.unlisted);
    trace
}

fn answer(status: u16, content_type: &'static str, bytes: &[u8]) -> ExplainedAnswer {
    ExplainedAnswer {
        status,
        content_type: Some(content_type),
        size_bytes: bytes.len(),
        hex: const_hex::encode(bytes),
        text: String::from_utf8_lossy(bytes).into(),
    }
}
