//! `POST /v1/decide`: decisions of strategies about a device.

use std::time::Instant;

use hyper::body::Incoming;
use rtad_http::room::Share;
use rtad_log::Raw;
use smallvec::SmallVec;

use super::api::{self, DecisionRequest, NamedDecision};
use super::decision_app::{AnswerBody, App};
use super::error::ApiError;
use crate::catalog::RequestKeys;
use crate::log::{API, Decided, LoggedAnswer, LoggedRequest};
use crate::strategy::{Assignments, Decision, RequestFacts};

/// Reads the request, loads the catalog once, decides and answers.
pub async fn decide(app: &App, started: Instant, body: Incoming) -> Result<AnswerBody, ApiError> {
    let body = app
        .read_body(body, app.max_body, |length| {
            app.permit(length, Share::Whole)
        })
        .await?
        .bytes;
    let DecisionRequest {
        request_id,
        strategies,
        keys,
        units,
        attributes,
    } = api::decode(&body, &app.ids)?;
    let catalog = app.serving.load();
    let known = catalog.strategies();
    let indexes: Vec<usize> = if strategies.is_empty() {
        (0..known.len()).collect()
    } else {
        let indexes = strategies.iter().map(|name| catalog.strategy_index(name));
        let names = || known.map(|strategy| strategy.name.clone()).collect();
        let indexes: Option<_> = indexes.collect();
        indexes.ok_or_else(|| ApiError::UnknownStrategy(names()))?
    };
    let (experiments, mut assignments) = (catalog.experiments(), Assignments::new());
    experiments.assign(None, &units, &mut assignments);
    let facts = RequestFacts {
        attributes: &attributes,
        assignments: &assignments,
    };
    let mut decisions = Vec::with_capacity(indexes.len());
    let mut decided: SmallVec<[(usize, Decision); 8]> = SmallVec::new();
    for index in indexes {
        let decision = match decided.iter().find(|(known, _)| *known == index) {
            // A name that comes twice is answered twice, and counted once.
            Some((_, decision)) => *decision,
            None => {
                let decision = catalog.decide(index, &keys, &facts, started);
                experiments.count(index, decision, &assignments);
                decided.push((index, decision));
                decision
            }
        };
        let strategy = catalog.strategy(index);
        if !strategy.is_shadow {
            let buckets = experiments.named(index, &assignments);
            decisions.push(NamedDecision::new(strategy, decision, buckets));
        }
    }
    let answer = api::encode(request_id.as_deref(), &decisions);
    if let Some(log) = &app.log {
        let keys = RequestKeys::of(keys, units);
        let asked = strategies.iter().map(|name| &**name);
        let seen = LoggedRequest {
            request_id: request_id.as_deref(),
            asked: (!strategies.is_empty()).then(|| asked.collect()),
            attributes: &attributes,
            cached_kind: None,
        };
        let mut entry = log.begin();
        let at = started;
        let (catalog, request, keys, assignments) = (&catalog, &seen, &keys, &assignments);
        let of_request = Decided {
            catalog,
            request,
            keys,
            assignments,
            at,
        };
        entry.decided_names(&of_request, decided.iter().copied());
        let raw = Some(Raw {
            query: None,
            body: &body,
        });
        entry.finish(
            catalog,
            &LoggedAnswer {
                platform: API,
                failure: None,
                raw,
                started,
            },
        );
    }
    Ok(AnswerBody::json(answer))
}
