//! Routes of both ports.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, delete, get, post, put};

use rtad_http::origin::is_cross_site;

use super::app::{App, authorize};
use super::error::ApiError;
use super::scopes::Area;
use super::{audiences, callbacks, devices, events};

/// The routes for writers.
pub fn router(app: Arc<App>) -> Router {
    let authorized = |label: &'static str, area: Option<Area>, route: MethodRouter<Arc<App>>| {
        route.route_layer(from_fn_with_state(
            (Arc::clone(&app), label, area),
            authorize,
        ))
    };
    let admin = |label, route| authorized(label, None, route);
    let of_audience = |label, route| authorized(label, Some(Area::Devices), route);
    let of_window = |label, route| authorized(label, Some(Area::Events), route);
    let audience = of_audience("info", get(audiences::info))
        .merge(admin("create", put(audiences::create)))
        .merge(admin("delete", delete(audiences::delete)));
    Router::new()
        .route("/v1/audiences", admin("list", get(audiences::list)))
        .route("/v1/audiences/{audience}", audience)
        .route(
            "/v1/audiences/{audience}/devices",
            of_audience("devices", post(devices::write)),
        )
        .route(
            "/v1/audiences/{audience}/disable",
            admin("disable", post(audiences::disable)),
        )
        .route(
            "/v1/audiences/{audience}/enable",
            admin("enable", post(audiences::enable)),
        )
        .route(
            "/v1/audiences/{audience}/expire",
            admin("expire", post(audiences::expire)),
        )
        .route("/v1/windows", admin("windows", get(events::list)))
        .route(
            "/v1/windows/{window}/events",
            of_window("events", post(events::events)),
        )
        .route(
            "/v1/windows/{window}/events/{token}",
            get(callbacks::receive),
        )
        .route(
            "/v1/windows/{window}/check",
            of_window("window_check", post(events::check)),
        )
        .route(
            "/v1/windows/{window}/forget",
            of_window("forget", post(events::forget)),
        )
        .fallback(async |app, request| unknown(app, request, ApiError::NotFound).await)
        .method_not_allowed_fallback(async |app, request| {
            unknown(app, request, ApiError::MethodNotAllowed).await
        })
        .with_state(app)
}

async fn unknown(State(app): State<Arc<App>>, request: Request, error: ApiError) -> Response {
    let admitted = app.admit(request.method(), request.headers(), None);
    app.run("unknown", admitted, async { Err(error) }).await
}

/// The routes for probes and scrapers.
pub fn admin_router(app: Arc<App>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/v1/windows", get(events::list_with_audiences))
        .fallback(async || {
            let accepted = "accepted: /livez, /readyz, /metrics, /v1/windows\n";
            (StatusCode::NOT_FOUND, accepted)
        })
        .layer(from_fn_with_state(Arc::clone(&app), guard_admin))
        // Health checks of balancers may have any host, and learn no more than a state.
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .with_state(app)
}

async fn guard_admin(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    if is_cross_site(request.method(), request.headers(), &app.admin_hosts) {
        return ApiError::CrossSite.into_response();
    }

    next.run(request).await
}

async fn readyz(State(app): State<Arc<App>>) -> (StatusCode, &'static str) {
    match (
        app.draining.load(Ordering::Relaxed),
        app.windows.are_fenced(),
    ) {
        (true, _) => (StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
        (false, true) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "another owner has claimed the windows\n",
        ),
        (false, false) => (StatusCode::OK, "ready\n"),
    }
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    let mut response = Response::new(app.telemetry.render().into());
    let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, text);
    response
}
