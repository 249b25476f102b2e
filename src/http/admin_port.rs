//! Routes of the admin port.

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use rtad_http::origin::{OwnHosts, guard};
use rtad_http::request_error::RequestError;

use super::admin_app::AdminApp;
use super::{console, explain, shards, status};

const METRICS_ROUTES: &str = "/livez, /readyz, /metrics";

/// The metrics port's router: what scrapers and probes read, without the operator's routes.
pub fn metrics_router(app: Arc<AdminApp>, hosts: Arc<OwnHosts>) -> Router {
    Router::new()
        .route("/metrics", get(status::metrics))
        .fallback(async || RequestError::NotFound(METRICS_ROUTES))
        .layer(from_fn_with_state(hosts, guard))
        .merge(probes())
        .with_state(app)
}

/// Health checks of balancers may have any host, and learn no more than a state.
fn probes() -> Router<Arc<AdminApp>> {
    Router::new()
        .route("/livez", get(status::livez))
        .route("/readyz", get(status::readyz))
}

/// The admin port's router: probes, metrics and the operator's routes.
pub fn admin_router(app: Arc<AdminApp>, hosts: Arc<OwnHosts>) -> Router {
    Router::new()
        .route("/", get(console::index))
        .route("/console/{file}", get(console::part))
        .route("/metrics", get(status::metrics))
        .route("/v1/status", get(status::status))
        .route("/v1/reload", post(status::reload))
        .route("/v1/explain", post(explain::id_explained))
        .route("/v1/explain/{platform}", post(explain::explained))
        .route("/v1/audiences/{audience}/shards", get(shards::shards))
        .fallback(async || RequestError::NotFound(console::ROUTES))
        .layer(from_fn_with_state(hosts, guard))
        .merge(probes())
        .method_not_allowed_fallback(async || RequestError::MethodNotAllowed)
        .with_state(app)
}
