//! The admin port: for probes, scrapers and the operator.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use serde::Serialize;

use super::error::{ApiError, problem};
use super::{Answer, console, explain, json, shards};
use crate::catalog::Serving;
use crate::platform::IdReader;
use crate::platform::Platform;
use crate::sync::{LastSync, Looks, Shared, now_unix_seconds};
use rtad_core::snapshot::Overlay;

/// What a reload did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reloaded {
    /// Always true: a reload that fails is an error.
    pub reloaded: bool,
    /// Keys that have changed in the file but take a restart.
    pub needs_restart: Vec<&'static str>,
}

/// Rereads the config and serves it, or says in words why not.
pub type Reload =
    Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<Reloaded, String>> + Send>> + Send + Sync>;

/// What the admin port's handlers share.
pub struct AdminApp {
    /// What is served.
    pub serving: Arc<Serving>,
    /// Metrics, readiness, last syncs.
    pub shared: Shared,
    /// Reads the ids of what is explained.
    pub ids: Arc<IdReader>,
    /// Largest body of a platform, in bytes.
    pub max_body: usize,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    /// When the process started.
    pub started: Instant,
    /// How to reload.
    pub reload: Reload,
}

impl std::fmt::Debug for AdminApp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdminApp").finish_non_exhaustive()
    }
}

/// The admin port's routes: the whole list.
pub(super) fn admin_router(app: Arc<AdminApp>) -> Router {
    Router::new()
        .route("/", get(console::index))
        .route("/console/{file}", get(console::part))
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/v1/status", get(status))
        .route("/v1/reload", post(reload))
        .route("/v1/explain", post(explain::id_explained))
        .route("/v1/explain/{platform}", post(explain::explained))
        .route("/v1/audiences/{audience}/shards", get(shards::shards))
        .fallback(async || ApiError::NotFound(console::ROUTES))
        .method_not_allowed_fallback(async || ApiError::MethodNotAllowed)
        .with_state(app)
}

async fn readyz(State(app): State<Arc<AdminApp>>) -> Response {
    let readiness = &app.shared.readiness;
    if readiness.is_ready() {
        return "ready\n".into_response();
    }
    let reason = if readiness.is_draining() {
        "draining\n".to_owned()
    } else {
        let catalog = app.serving.load();
        let waiting =
            catalog.audiences().iter().filter(|audience| audience.required && audience.snapshot.is_none());
        let names: Vec<&str> = waiting.map(|audience| audience.name.as_str()).collect();
        match names.is_empty() {
            true => "not ready: the decision port is not open yet\n".to_owned(),
            false => format!("not ready: waiting for the first snapshot of {}\n", names.join(", ")),
        }
    };
    (StatusCode::SERVICE_UNAVAILABLE, reason).into_response()
}

async fn metrics(State(app): State<Arc<AdminApp>>) -> Response {
    let telemetry = &app.shared.telemetry;
    telemetry.ready(app.shared.readiness.is_ready());
    let mut response = Response::new(telemetry.render().into());
    let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, text);
    response
}

#[derive(Serialize)]
struct Status<'a> {
    version: &'a str,
    uptime_seconds: u64,
    ready: bool,
    draining: bool,
    audiences: Vec<AudienceStatus<'a>>,
    strategies: Vec<&'a str>,
    platforms: Vec<PlatformStatus<'a>>,
}

#[derive(Serialize)]
struct PlatformStatus<'a> {
    name: &'a str,
    kind: &'a str,
    path: &'a str,
}

#[derive(Serialize)]
struct AudienceStatus<'a> {
    name: &'a str,
    required: bool,
    /// Whether questions about it are answered: loaded, not older than its `max_age`, and not expired.
    available: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_age_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<SnapshotStatus<'a>>,
    last_sync: Option<LastSync>,
    /// Newest first; those that came to the same are one.
    syncs: Vec<Looks>,
}

#[derive(Serialize)]
struct SnapshotStatus<'a> {
    generation: u64,
    keys: u64,
    size_bytes: u64,
    filter: &'a str,
    target_fpr: f64,
    expected_fpr: f64,
    created_unix_seconds: u64,
    age_seconds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_unix_seconds: Option<u64>,
    deltas: DeltaStatus,
}

/// What is said over the generation.
#[derive(Serialize)]
struct DeltaStatus {
    /// Grows with each change that is published: pods with the same answer the same.
    sequence: u64,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_unix_seconds: Option<u64>,
    deltas: usize,
    added: u64,
    removed: u64,
    tombstones: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    appended_unix_seconds: Option<u64>,
}

impl DeltaStatus {
    fn of(overlay: &Overlay) -> Self {
        let [added, removed, tombstones] = overlay.keys();
        Self {
            sequence: overlay.sequence(),
            state: overlay.state().as_str(),
            expires_unix_seconds: overlay.expires_unix_seconds(),
            deltas: overlay.deltas().count(),
            added,
            removed,
            tombstones,
            appended_unix_seconds: overlay.appended_unix_seconds(),
        }
    }
}

async fn status(State(app): State<Arc<AdminApp>>) -> Answer {
    let catalog = app.serving.load();
    let now = now_unix_seconds();
    let audiences = catalog.audiences().iter().map(|audience| AudienceStatus {
        name: audience.name.as_str(),
        required: audience.required,
        available: audience.available().is_some(),
        max_age_seconds: audience.max_age.map(|age| age.as_secs()),
        snapshot: audience.snapshot.as_ref().map(|snapshot| {
            let manifest = snapshot.manifest();
            SnapshotStatus {
                generation: manifest.generation(),
                keys: manifest.keys(),
                size_bytes: manifest.size_bytes(),
                filter: manifest.filter().kind().as_str(),
                target_fpr: manifest.target_fpr(),
                expected_fpr: manifest.expected_fpr(),
                created_unix_seconds: manifest.created_unix_seconds(),
                age_seconds: audience.age_seconds(now).unwrap_or(0),
                deltas: DeltaStatus::of(snapshot.overlay()),
                expires_unix_seconds: manifest.expires_unix_seconds(),
            }
        }),
        last_sync: app.shared.board.last(&audience.name),
        syncs: app.shared.board.looks(&audience.name),
    });
    let status = Status {
        version: env!("CARGO_PKG_VERSION"),
        uptime_seconds: app.started.elapsed().as_secs(),
        ready: app.shared.readiness.is_ready(),
        draining: app.shared.readiness.is_draining(),
        audiences: audiences.collect(),
        strategies: catalog.strategies().iter().map(|strategy| strategy.name.as_str()).collect(),
        platforms: catalog.platforms().iter().map(|served| status_of(&served.platform)).collect(),
    };
    json(serde_json::to_vec(&status).expect("plain values serialise"))
}

fn status_of(platform: &Platform) -> PlatformStatus<'_> {
    PlatformStatus { name: &platform.name, kind: platform.kind(), path: &platform.path }
}

async fn reload(State(app): State<Arc<AdminApp>>) -> Answer {
    match (app.reload)().await {
        Ok(reloaded) => json(serde_json::to_vec(&reloaded).expect("plain values serialise")),
        Err(reason) => {
            let detail = format!("nothing was changed: {reason}");
            problem(StatusCode::UNPROCESSABLE_ENTITY, "bad_config", "Config not reloaded", &detail)
        }
    }
}
