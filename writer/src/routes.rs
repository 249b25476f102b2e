//! Routes of both ports.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{MethodRouter, delete, get, post, put};

use super::app::{App, guard};
use super::error::ApiError;
use super::{audiences, console, devices, events};

/// The routes for writers.
pub(super) fn router(app: Arc<App>) -> Router {
    let with_metrics = |label: &'static str, route: MethodRouter<Arc<App>>| {
        route.route_layer(from_fn_with_state((Arc::clone(&app), label), guard))
    };
    let audience = with_metrics("info", get(audiences::info))
        .merge(with_metrics("create", put(audiences::create)))
        .merge(with_metrics("delete", delete(audiences::delete)));
    Router::new()
        .route("/v1/audiences", with_metrics("list", get(audiences::list)))
        .route("/v1/audiences/{audience}", audience)
        .route("/v1/audiences/{audience}/devices", with_metrics("devices", post(devices::write)))
        .route(
            "/v1/audiences/{audience}/disable",
            with_metrics("disable", post(audiences::disable)),
        )
        .route("/v1/audiences/{audience}/enable", with_metrics("enable", post(audiences::enable)))
        .route("/v1/audiences/{audience}/expire", with_metrics("expire", post(audiences::expire)))
        .route("/v1/windows", with_metrics("windows", get(events::list)))
        .route("/v1/windows/{window}/events", with_metrics("events", post(events::events)))
        .route("/v1/windows/{window}/check", with_metrics("window_check", post(events::check)))
        .route("/v1/windows/{window}/forget", with_metrics("forget", post(events::forget)))
        .fallback(async |app, request| unknown(app, request, ApiError::NotFound).await)
        .method_not_allowed_fallback(async |app, request| {
            unknown(app, request, ApiError::MethodNotAllowed).await
        })
        .with_state(app)
}

async fn unknown(State(app): State<Arc<App>>, request: Request, error: ApiError) -> Response {
    app.guard("unknown", (request.method(), request.headers()), async { Err(error) }).await
}

/// The routes for probes, scrapers and the console.
pub(super) fn admin_router(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(console::index))
        .route("/console/{file}", get(console::part))
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/v1/windows", get(events::list_with_audiences))
        .fallback(async || console::not_found())
        .with_state(app)
}

async fn readyz(State(app): State<Arc<App>>) -> (StatusCode, &'static str) {
    match app.draining.load(Ordering::Relaxed) {
        false => (StatusCode::OK, "ready\n"),
        true => (StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
    }
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    let mut response = Response::new(app.telemetry.render().into());
    let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, text);
    response
}
