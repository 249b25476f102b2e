//! `POST /v1/decide`: decisions of strategies about a device.

use std::sync::Arc;

use axum::extract::{Request, State};
use rtad_http::body::has_encoding;
use rtad_http::request_error::RequestError;
use rtad_http::room::Share;
use rtad_log::Raw;
use tokio::time::Instant;

use super::{AnswerBody, App};
use crate::catalog::RequestKeys;
use crate::http::error::ApiError;
use crate::log::{API, Decided, LoggedAnswer, LoggedRequest};
use crate::platform::api::{self, DecisionRequest};

/// Reads the request, loads the catalog once, decides and answers.
pub async fn decide(State(app): State<Arc<App>>, request: Request) -> Result<AnswerBody, ApiError> {
    let started = Instant::now();
    if has_encoding(request.headers()) {
        return Err(RequestError::BadEncoding.into());
    }
    let body = app
        .read_body(request.into_body(), app.max_body, |length| {
            app.permit(length, Share::Whole)
        })
        .await?
        .bytes;
    let DecisionRequest {
        request_id,
        strategies: names,
        keys,
        units,
        attributes,
    } = api::decode(&body, &*app.ids)?;
    let catalog = app.serving.load();
    let Some(asked) = catalog.named_strategies(&names) else {
        let known = catalog.strategies().map(|known| known.name.clone());
        return Err(ApiError::UnknownStrategy(known.collect()));
    };

    let keys = RequestKeys::of(keys, units);
    let attributes = attributes.values();
    let mut facts = catalog.no_facts(&keys);
    facts.attributes = attributes;
    let verdicts = catalog.decide_named(&keys, &asked, started, &mut facts);

    let decisions = catalog.named_decisions(&asked, &verdicts, &facts);
    let answer = api::encode(request_id.as_deref(), &decisions);

    if let Some(log) = &app.log {
        // A replay under other rules may read any audience.
        catalog.complete(&keys, &mut facts);
        let mut asked_ids = None;
        if !names.is_empty() {
            asked_ids = Some(names.iter().map(|name| &**name).collect());
        }
        let request = LoggedRequest {
            request_id: request_id.as_deref(),
            asked: asked_ids,
            attributes,
        };
        let decided = Decided {
            catalog: &catalog,
            request: &request,
            keys: &keys,
            facts: &facts,
            at: started,
        };
        let decisions = verdicts.iter();
        let mut entry = log.begin();
        entry.decided_names(
            &decided,
            decisions.map(|verdict| (verdict.strategy, verdict.decision)),
        );
        let raw = Some(Raw {
            query: None,
            body: &body,
        });
        entry.finish(
            &catalog,
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
