//! Probes, metrics, status and reload.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use rtad_core::cap::CapTable;
use rtad_core::clock::{now_unix_seconds, unix_seconds};
use rtad_core::period::PeriodUnit;
use rtad_core::snapshot::{Overlay, Snapshot};
use rtad_http::answer::{json_of, metrics_of};
use rtad_http::problem::Problem;
use serde::Serialize;

use super::admin_app::{AdminApp, ServedConfig};
use super::rules::{RuleStatus, rules};
use crate::cap::{Cap, Caps, GrantState, Usage};
use crate::catalog::Catalog;
use crate::platform::Platform;
use crate::sync::{LastSync, SyncRun};

const SYNC_ENDED: &str = "not ready: the sync thread ended; restart the process\n";

/// A pod whose sync thread has ended is not ready until its process starts again. Unready, it gets
/// no traffic, so the restart costs no answers.
pub async fn livez(State(app): State<Arc<AdminApp>>) -> Response {
    let readiness = &app.shared.readiness;
    if readiness.is_sync_alive() || readiness.is_draining() {
        "ok\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, SYNC_ENDED).into_response()
    }
}

/// A pod with stale audiences stays ready: they are stale on all pods, and the strategies have
/// `unavailable` answers for it.
pub async fn readyz(State(app): State<Arc<AdminApp>>) -> Response {
    let readiness = &app.shared.readiness;
    if readiness.is_ready() {
        let catalog = app.serving.load();
        let mut stale = Vec::new();
        for audience in catalog.audiences() {
            if audience.is_stale {
                stale.push(audience.name.as_str());
            }
        }
        if stale.is_empty() {
            return "ready\n".into_response();
        }
        return format!("ready; unavailable: {}\n", stale.join(", ")).into_response();
    }

    let reason = if readiness.is_draining() {
        "draining\n".to_owned()
    } else if !readiness.is_sync_alive() {
        SYNC_ENDED.to_owned()
    } else {
        let catalog = app.serving.load();
        let mut waiting = Vec::new();
        for audience in catalog.audiences() {
            if audience.required && audience.snapshot.is_none() {
                waiting.push(audience.name.as_str());
            }
        }
        if waiting.is_empty() {
            "not ready: the decision port is not open yet\n".to_owned()
        } else {
            format!(
                "not ready: waiting for the first snapshot of {}\n",
                waiting.join(", ")
            )
        }
    };
    (StatusCode::SERVICE_UNAVAILABLE, reason).into_response()
}

pub async fn metrics(State(app): State<Arc<AdminApp>>) -> Response {
    let telemetry = &app.shared.telemetry;
    telemetry.ready(app.shared.readiness.is_ready());
    app.gauges.set(&app.serving, &app.shared);
    metrics_of(telemetry.render())
}

#[derive(Serialize)]
struct Status<'a> {
    version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<String>,
    uptime_seconds: u64,
    ready: bool,
    draining: bool,
    config: ServedConfig,
    /// The mistakes of a changed config that was refused, one per line.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused_config: Option<String>,
    audiences: Vec<AudienceStatus<'a>>,
    strategies: Vec<&'a str>,
    rules: Vec<RuleStatus<'a>>,
    caps: Vec<CapStatus<'a>>,
    platforms: Vec<PlatformStatus<'a>>,
}

/// A cap in its current period.
#[derive(Serialize)]
struct CapStatus<'a> {
    name: &'a str,
    /// The strategies that count into it.
    strategies: Vec<&'a str>,
    /// Distinct devices counted.
    devices: u64,
    /// Most of them on this pod: what it was granted so far of `limit`.
    granted: u64,
    limit: u64,
    grants: GrantState,
    period: PeriodUnit,
    time_zone: &'a str,
    period_start_unix_seconds: u64,
    period_end_unix_seconds: u64,
    memory_bytes: u64,
}

impl<'a> CapStatus<'a> {
    fn of(catalog: &'a Catalog, index: usize, cap: &'a Cap, caps: &Caps) -> Self {
        let mut strategies = Vec::new();
        for strategy in catalog.strategies() {
            if strategy.cap == Some(index) {
                strategies.push(strategy.name.as_str());
            }
        }
        let config = cap.config();
        let Usage {
            devices,
            limit,
            period: times,
        } = cap.usage();

        Self {
            name: cap.name(),
            strategies,
            devices,
            granted: limit,
            limit: config.limit,
            grants: caps.grants(cap),
            period: config.period,
            time_zone: config.zone(),
            period_start_unix_seconds: unix_seconds(times.start),
            period_end_unix_seconds: unix_seconds(times.end),
            memory_bytes: CapTable::bytes_for(config.limit),
        }
    }
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
    /// Whether it is loaded, not older than its `max_age`, and not expired.
    available: bool,
    /// Whether strategies ask for values of its members, and its snapshot was built without.
    tiers_missing: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_age_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<SnapshotStatus<'a>>,
    last_sync: Option<LastSync>,
    /// Newest first; consecutive polls with the same result are one entry.
    syncs: Vec<SyncRun>,
}

#[derive(Serialize)]
struct SnapshotStatus<'a> {
    generation: u64,
    /// Whether only a share of the pods serves it.
    staged: bool,
    keys: u64,
    size_bytes: u64,
    filter: &'a str,
    /// Bits of each key's value; absent if keys have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    value_bits: Option<u32>,
    target_fpr: f64,
    expected_fpr: f64,
    /// Keys in second tiers and in lists of a ribbon filter.
    #[serde(skip_serializing_if = "Option::is_none")]
    diverted_keys: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    listed_keys: Option<u64>,
    created_unix_seconds: u64,
    age_seconds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_unix_seconds: Option<u64>,
    deltas: DeltaStatus,
}

impl<'a> SnapshotStatus<'a> {
    fn of(snapshot: &'a Snapshot, age_seconds: u64) -> Self {
        let manifest = snapshot.manifest();
        let value_bits = manifest.filter().value_bits();
        let (diverted_keys, listed_keys) = manifest.diverted_and_listed_keys().unzip();

        Self {
            generation: manifest.generation(),
            staged: snapshot.is_staged(),
            keys: manifest.keys(),
            size_bytes: manifest.size_bytes(),
            filter: manifest.filter().kind().as_str(),
            value_bits: (value_bits > 0).then_some(value_bits),
            target_fpr: manifest.target_fpr(),
            expected_fpr: manifest.expected_fpr(),
            diverted_keys,
            listed_keys,
            created_unix_seconds: manifest.created_unix_seconds(),
            age_seconds,
            deltas: DeltaStatus::of(snapshot.overlay()),
            expires_unix_seconds: manifest.expires_unix_seconds(),
        }
    }
}

/// Deltas on top of the generation.
#[derive(Serialize)]
struct DeltaStatus {
    /// Grows with each published change; pods with the same sequence give the same answers.
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

pub async fn status(State(app): State<Arc<AdminApp>>) -> Response {
    let catalog = app.serving.load();
    let now = now_unix_seconds();
    let polls = &app.shared.polls;

    let mut audiences = Vec::new();
    for (audience, tiers_missing) in catalog.audiences().iter().zip(catalog.are_tiers_missing()) {
        let age_seconds = audience.age_seconds(now).unwrap_or(0);
        let snapshot = audience.snapshot.as_ref();
        audiences.push(AudienceStatus {
            name: audience.name.as_str(),
            required: audience.required,
            available: audience.available().is_some(),
            tiers_missing,
            max_age_seconds: audience.max_age.map(|age| age.as_secs()),
            snapshot: snapshot.map(|snapshot| SnapshotStatus::of(snapshot, age_seconds)),
            last_sync: polls.last(&audience.name),
            syncs: polls.runs(&audience.name),
        });
    }

    let mut caps = Vec::new();
    for (index, cap) in catalog.caps().iter().enumerate() {
        caps.push(CapStatus::of(&catalog, index, cap, &app.shared.caps));
    }

    let strategies = catalog.strategies();
    let platforms = catalog.platforms().iter();
    let status = Status {
        version: env!("CARGO_PKG_VERSION"),
        pod: pod(),
        uptime_seconds: app.started.elapsed().as_secs(),
        ready: app.shared.readiness.is_ready(),
        draining: app.shared.readiness.is_draining(),
        config: app.config.borrow().clone(),
        refused_config: app.refusal.borrow().clone(),
        audiences,
        strategies: strategies.map(|it| it.name.as_str()).collect(),
        rules: rules(&catalog),
        caps,
        platforms: platforms.map(|it| status_of(&it.platform)).collect(),
    };
    json_of(StatusCode::OK, &status)
}

/// Name of the pod; `None` outside containers without one.
fn pod() -> Option<String> {
    std::env::var("HOSTNAME")
        .ok()
        .filter(|name| !name.is_empty())
}

fn status_of(platform: &Platform) -> PlatformStatus<'_> {
    PlatformStatus {
        name: &platform.name,
        kind: platform.kind(),
        path: &platform.path,
    }
}

pub async fn reload(State(app): State<Arc<AdminApp>>) -> Response {
    match (app.reload)().await {
        Ok(reloaded) => json_of(StatusCode::OK, &reloaded),
        Err(reason) => Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "bad_config",
            "Config not reloaded",
            format!("nothing was changed: {reason}"),
        )
        .into_response(),
    }
}
