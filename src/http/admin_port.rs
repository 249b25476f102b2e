//! Routes of the admin port.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use rtad_http::origin::is_cross_site;

use super::admin_app::AdminApp;
use super::error::ApiError;
use super::{console, explain, shards, status};

const METRICS_ROUTES: &str = "/livez, /readyz, /metrics";

/// The metrics port's router: what scrapers and probes read, without the operator's routes.
pub fn metrics_router(app: Arc<AdminApp>) -> Router {
    Router::new()
        .route("/metrics", get(status::metrics))
        .fallback(async || ApiError::NotFound(METRICS_ROUTES))
        .layer(middleware::from_fn_with_state(Arc::clone(&app), guard))
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
pub fn admin_router(app: Arc<AdminApp>) -> Router {
    Router::new()
        .route("/", get(console::index))
        .route("/console/{file}", get(console::part))
        .route("/metrics", get(status::metrics))
        .route("/v1/status", get(status::status))
        .route("/v1/reload", post(status::reload))
        .route("/v1/explain", post(explain::id_explained))
        .route("/v1/explain/{platform}", post(explain::explained))
        .route("/v1/audiences/{audience}/shards", get(shards::shards))
        .fallback(async || ApiError::NotFound(console::ROUTES))
        .layer(middleware::from_fn_with_state(Arc::clone(&app), guard))
        .merge(probes())
        .method_not_allowed_fallback(async || ApiError::MethodNotAllowed(None))
        .with_state(app)
}

async fn guard(State(app): State<Arc<AdminApp>>, request: Request, next: Next) -> Response {
    if is_cross_site(request.method(), request.headers(), &app.hosts) {
        return ApiError::CrossSite.into_response();
    }

    next.run(request).await
}
