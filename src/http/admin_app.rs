//! State of the admin port.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use rtad_http::body::{self, BodyLimits};
use rtad_http::request_error::RequestError;
use rtad_http::room::{BodyRoom, Share};
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::Instant;

use super::gauges::Gauges;
use crate::catalog::{Catalog, Serving};
use crate::explain::Explainer;
use crate::log::{DecisionLog, LogKey};
use crate::platform::IdReader;
use crate::sync::Shared;

/// The result of a reload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reloaded {
    /// Always true: a reload that fails is an error.
    pub reloaded: bool,
    /// Keys whose values differ from those served before.
    pub changed: Vec<String>,
    /// Changed keys that take effect only after a restart.
    pub needs_restart: Vec<&'static str>,
    /// New audiences that have no snapshot yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub without_snapshot: Vec<String>,
}

/// The config that is served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServedConfig {
    /// The first 16 hex digits of the SHA-256 of its file: the same in each pod.
    pub id: String,
    /// When it was loaded.
    pub loaded_unix_seconds: u64,
}

/// Rereads the config and serves it, or returns the reason for keeping the old one.
pub type Reload =
    Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<Reloaded, String>> + Send>> + Send + Sync>;

/// State that the admin port's handlers share.
pub struct AdminApp {
    /// The served catalog.
    pub serving: Arc<Serving>,
    /// Metrics, readiness and sync history.
    pub shared: Shared,
    /// Gauges of what is served.
    pub gauges: Gauges,
    /// Reads the ids of explained requests.
    pub ids: Arc<IdReader>,
    /// The decision log, whose names of devices explanations show.
    pub log: Option<Arc<DecisionLog>>,
    /// Largest body of a platform, in bytes.
    pub max_body: usize,
    /// Time for a body to arrive.
    pub body_timeout: Duration,
    /// Memory for incomplete bodies.
    pub room: BodyRoom,
    /// When the process started.
    pub started: Instant,
    /// Reloads the config.
    pub reload: Reload,
    /// The config that is served.
    pub config: watch::Receiver<ServedConfig>,
    /// Why the last reload was refused, the mistakes one per line; `None` if it was not.
    pub refusal: watch::Receiver<Option<String>>,
}

impl AdminApp {
    /// Reads a body of at most `max_bytes`.
    pub(super) async fn read_body(
        &self,
        body: Body,
        max_bytes: usize,
    ) -> Result<Bytes, RequestError> {
        let limits = BodyLimits {
            max_bytes,
            timeout: self.body_timeout,
        };
        let read = body::read(body, limits, |length| self.room.take(length, Share::Whole));
        Ok(read.await?.bytes)
    }

    /// The secret that names devices in the decision log.
    pub(super) fn log_key(&self) -> Option<Arc<LogKey>> {
        Some(self.log.as_ref()?.key())
    }

    /// Explanations by a catalog, with the names of a log.
    pub(super) fn explainer<'a>(
        &'a self,
        catalog: &'a Catalog,
        log_key: Option<&'a LogKey>,
    ) -> Explainer<'a> {
        Explainer {
            catalog,
            ids: &self.ids,
            history: &self.shared.polls,
            log_key,
        }
    }
}

impl std::fmt::Debug for AdminApp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdminApp").finish_non_exhaustive()
    }
}
