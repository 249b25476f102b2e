//! The routes of both ports: the whole list, and what every request goes through.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::header::{CONNECTION, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use futures_util::FutureExt as _;
use serde::Serialize;

use rtad_core::device::KeyMaker;
use rtad_core::snapshot::AudienceName;

use super::body::Bodies;
use super::error::ApiError;
use super::telemetry::Telemetry;
use super::tokens::Tokens;
use super::writers::Writers;
use super::{audiences, devices};

/// A store that is slow to take a write, or filters that are large, take their time; a client has an end to its patience.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// What the handlers share.
pub(super) struct App {
    pub(super) tokens: Tokens,
    pub(super) writers: Writers,
    pub(super) keys: Arc<KeyMaker>,
    pub(super) bodies: Bodies,
    pub(super) telemetry: Arc<Telemetry>,
    pub(super) draining: AtomicBool,
}

/// The routes for writers.
pub(super) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/v1/audiences", get(audiences::list))
        .route(
            "/v1/audiences/{audience}",
            get(audiences::info).put(audiences::create).delete(audiences::delete),
        )
        .route("/v1/audiences/{audience}/devices", post(devices::write))
        .route("/v1/audiences/{audience}/disable", post(audiences::disable))
        .route("/v1/audiences/{audience}/enable", post(audiences::enable))
        .route("/v1/audiences/{audience}/expire", post(audiences::expire))
        .fallback(async |State(app): State<Arc<App>>, headers: HeaderMap| {
            app.observed("unknown", &headers, async { Err(ApiError::NotFound) }).await
        })
        .method_not_allowed_fallback(async |State(app): State<Arc<App>>, headers: HeaderMap| {
            app.observed("unknown", &headers, async { Err(ApiError::MethodNotAllowed) }).await
        })
        .with_state(app)
}

/// The routes for probes and scrapers.
pub(super) fn admin_router(app: Arc<App>) -> Router {
    Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .fallback(async || (StatusCode::NOT_FOUND, "accepted: /livez, /readyz, /metrics\n"))
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

impl App {
    /// Answers a request that shows a token, and counts it. A panic becomes a 500 and costs no other request anything.
    pub(super) async fn observed(
        &self,
        route: &'static str,
        headers: &HeaderMap,
        answer: impl Future<Output = Result<Response, ApiError>>,
    ) -> Response {
        let answered = match self.tokens.admit(headers) {
            true => {
                let answered = tokio::time::timeout(ANSWER_TIMEOUT, AssertUnwindSafe(answer).catch_unwind());
                answered.await.unwrap_or(Ok(Err(ApiError::NoAnswer))).unwrap_or(Err(ApiError::Internal))
            }
            false => Err(ApiError::Unauthorized),
        };
        let mut response = answered.unwrap_or_else(|error| error.into_response());
        if self.draining.load(Ordering::Relaxed) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        self.telemetry.request(route, response.status().as_u16());
        response
    }
}

/// The audience that a path names.
pub(super) fn audience(name: &str) -> Result<AudienceName, ApiError> {
    name.parse().map_err(|_| ApiError::BadAudience)
}

/// A JSON answer.
pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    let mut response = Response::new(serde_json::to_vec(body).expect("plain values serialise").into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
