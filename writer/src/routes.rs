//! Routes of both ports.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{MethodRouter, delete, get, post, put};

use rtad_http::answer::metrics_of;
use rtad_http::origin::{OwnHosts, guard};
use rtad_http::request_error::RequestError;

use super::app::{App, authorize};
use super::scopes::Area;
use super::{audiences, callbacks, devices, events};

/// The routes for writers, for errors.
const ROUTES: &str = "/v1/audiences, /v1/audiences/{audience}, and below it /devices, /disable, \
                      /enable, /expire; /v1/windows, and below it /{window}/events, \
                      /{window}/check, /{window}/forget";
/// Those of the admin port.
const ADMIN_ROUTES: &str = "/livez, /readyz, /metrics, /v1/windows";

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
        .fallback(async |app, request| unknown(app, request, RequestError::NotFound(ROUTES)).await)
        .method_not_allowed_fallback(async |app, request| {
            unknown(app, request, RequestError::MethodNotAllowed).await
        })
        .with_state(app)
}

async fn unknown(State(app): State<Arc<App>>, request: Request, error: RequestError) -> Response {
    let admitted = app.admit(request.method(), request.headers(), None);
    app.run("unknown", admitted, async { Err(error.into()) })
        .await
}

/// The routes for probes and scrapers.
pub fn admin_router(app: Arc<App>, hosts: OwnHosts) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/v1/windows", get(events::list_with_audiences))
        .fallback(async || RequestError::NotFound(ADMIN_ROUTES))
        .layer(from_fn_with_state(Arc::new(hosts), guard))
        // Health checks of balancers may have any host, and learn no more than a state.
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .with_state(app)
}

async fn readyz(State(app): State<Arc<App>>) -> (StatusCode, &'static str) {
    if app.draining.load(Ordering::Relaxed) {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n");
    }
    if !app.windows.are_owned() {
        let reason = "standby: this process does not own its windows\n";
        return (StatusCode::SERVICE_UNAVAILABLE, reason);
    }
    (StatusCode::OK, "ready\n")
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    metrics_of(app.telemetry.exporter.render())
}
