//! `POST /v1/decide`: decisions of strategies about a device.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use rtad_http::json::{error_without_values, json};
use rtad_http::timing::Arrival;

use super::api::{self, DecisionRequest};
use super::decision_app::App;
use super::error::ApiError;
use crate::telemetry::Route;

/// Reads the request, loads the catalog once, decides and answers.
pub(super) async fn decide(
    State(app): State<Arc<App>>,
    arrival: Arrival,
    request: Request,
) -> Response {
    app.with_metrics(Route::Decide, arrival, async {
        let body = app.read_body(request.into_body(), app.max_body, arrival).await?;
        let DecisionRequest { request_id, strategies, keys } = api::decode(&body, &app.ids)
            .map_err(|error| ApiError::BadBody(error_without_values(&error)))?;
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
                (known[index].name.as_str(), catalog.decide(index, &keys, arrival.started))
            })
            .collect();
        Ok(json(api::encode(request_id.as_deref(), decisions.into_iter())))
    })
    .await
}
