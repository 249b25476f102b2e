//! `POST /v1/decide`: decisions of strategies about a device.

use hyper::body::Incoming;
use rtad_http::json::NotJson;
use rtad_http::timing::Arrival;

use super::api::{self, DecisionRequest};
use super::decision_app::{AnswerBody, App};
use super::error::ApiError;

/// Reads the request, loads the catalog once, decides and answers.
pub(super) async fn decide(
    app: &App,
    arrival: Arrival,
    body: Incoming,
) -> Result<AnswerBody, ApiError> {
    let body = app.read_body(body, app.max_body, || app.permit(arrival)).await?;
    let DecisionRequest { request_id, strategies, keys, attributes } =
        api::decode(&body, &app.ids).map_err(|error| NotJson::of(&body, &error))?;
    let catalog = app.serving.load();
    let known = catalog.strategies();
    let indexes: Vec<usize> = if strategies.is_empty() {
        (0..known.len()).collect()
    } else {
        let indexes = strategies.iter().map(|name| catalog.strategy_index(name));
        let names = || known.iter().map(|strategy| strategy.name.clone()).collect();
        let indexes: Option<_> = indexes.collect();
        indexes.ok_or_else(|| ApiError::UnknownStrategy(names()))?
    };
    let decisions: Vec<_> = indexes
        .into_iter()
        .map(|index| {
            let decision = catalog.decide(index, &keys, &attributes, arrival.started);
            let strategy = &known[index];
            (strategy, decision)
        })
        .filter(|(strategy, _)| !strategy.is_shadow)
        .map(|(strategy, decision)| (strategy.name.as_str(), decision, strategy.value_of(decision)))
        .collect();
    Ok(AnswerBody::json(api::encode(request_id.as_deref(), decisions.into_iter())))
}
