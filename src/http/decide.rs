//! `POST /v1/decide`: which strategies bid for this device?

use hyper::body::Incoming;

use super::check::error_without_values;
use super::error::ApiError;
use super::turn::Turn;
use super::{Answer, App, Load, body, json};
use crate::platform::api::{self, DecisionRequest};
use crate::telemetry::Route;

/// Reads the request, loads the catalog once, decides, answers. Under overload the strategies' `unavailable` answers are given
/// to a request that is here already; one whose body has still to come is refused.
pub(super) async fn decide(app: &App, turn: Turn, body: Incoming) -> Answer {
    app.observed(Route::Decide, turn, async |load| {
        let body = match load {
            Load::Normal => app.read_body(body, app.max_body).await?,
            Load::TooHigh => {
                let body = body::take_or_drop(body, app.max_body, app.body_timeout).await;
                body.ok_or(ApiError::Overloaded)?
            }
        };
        let DecisionRequest { request_id, strategies, keys } =
            api::decode(&body, &app.ids).map_err(|error| ApiError::BadBody(error_without_values(&error)))?;
        let catalog = app.serving.load();
        let known = catalog.strategies();
        let places: Vec<usize> = if strategies.is_empty() {
            (0..known.len()).collect()
        } else {
            let place = |name: &_| {
                let name: &str = name;
                catalog.strategy_place(name)
            };
            let places: Option<_> = strategies.iter().map(|name| place(name.as_ref())).collect();
            let names = || known.iter().map(|strategy| strategy.name.clone()).collect();
            places.ok_or_else(|| ApiError::UnknownStrategy(names()))?
        };
        let decisions: Vec<_> = places
            .into_iter()
            .map(|place| {
                let decision = match load {
                    Load::Normal => catalog.decide(place, &keys),
                    Load::TooHigh => catalog.shed(place),
                };
                (known[place].name.as_str(), decision)
            })
            .collect();
        Ok(json(api::encode(request_id.as_deref(), decisions.into_iter())))
    })
    .await
}
