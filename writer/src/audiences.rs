//! Handlers of `/v1/audiences`: list, details, and changes of a whole audience.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::{StreamExt as _, stream};
use rtad_core::error_chain::error_chain;
use rtad_http::answer::json_of;
use rtad_http::json::parse_object;
use serde::{Deserialize, Serialize};

use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::{
    AudienceName, Current, DeltaReport, GenerationReport, Manifest, State as AudienceState,
};
use rtad_http::request_error::RequestError;
use rtad_store::{Store, StoreError};

use super::app::{App, NamedAudience};
use super::audience::{AudienceChange, DEFAULT_FPR};
use super::bodies::{check_unix_seconds, with_body};
use super::error::ApiError;

/// Audiences read concurrently for a list.
const PARALLEL_READS: usize = 8;

/// State of an audience in the store.
#[derive(Debug, Serialize)]
struct AudienceInfo {
    audience: AudienceName,
    generation: u64,
    #[serde(flatten)]
    deltas: DeltaReport,
    /// The live generation; a deleted audience has none.
    #[serde(flatten)]
    built: Option<GenerationReport>,
}

/// An audience in a list, or the cause of its read error.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Listed {
    Info(AudienceInfo),
    Fault {
        audience: AudienceName,
        fault: &'static str,
    },
}

#[derive(Debug, Serialize)]
struct List {
    audiences: Vec<Listed>,
}

#[derive(Debug, Serialize)]
struct ChangeReply {
    audience: AudienceName,
    sequence: u64,
}

pub async fn list(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let store = app.writers.store.store();
    let names = store.audiences().await.map_err(|error| failed(&error))?;
    let mut reads = Vec::new();
    for audience in names {
        reads.push(read_listed(store, audience));
    }

    let mut audiences = Vec::new();
    let mut reads = stream::iter(reads).buffered(PARALLEL_READS);
    while let Some(listed) = reads.next().await {
        audiences.extend(listed);
    }
    Ok(json_of(StatusCode::OK, &List { audiences }))
}

/// An audience of the list; `None` if nothing of it was published.
async fn read_listed(store: &Store, audience: AudienceName) -> Option<Listed> {
    match info_of(store, &audience).await {
        Ok(info) => info.map(Listed::Info),
        Err(error) => Some(Listed::Fault {
            audience,
            fault: error.cause(),
        }),
    }
}

pub async fn info(
    State(app): State<Arc<App>>,
    NamedAudience(audience): NamedAudience,
) -> Result<Response, ApiError> {
    let info = info_of(app.writers.store.store(), &audience).await;
    let info = info
        .map_err(|error| failed(&error))?
        .ok_or(ApiError::UnknownAudience)?;
    Ok(json_of(StatusCode::OK, &info))
}

/// Reads the store, not the writer's state, to include changes by other writers.
async fn info_of(
    store: &Store,
    audience: &AudienceName,
) -> Result<Option<AudienceInfo>, StoreError> {
    let Some(mut live) = store.live(audience).await? else {
        return Ok(None);
    };
    loop {
        let current = &live.current;
        if current.state == AudienceState::Deleted {
            return Ok(Some(AudienceInfo::of(audience, current, None)));
        }
        match store.manifest(audience, &current.live_entry()).await {
            Ok(manifest) => {
                return Ok(Some(AudienceInfo::of(audience, current, Some(&manifest))));
            }
            Err(error) => match store.live(audience).await? {
                // Replaced and collected, or deleted, in between.
                Some(now)
                    if now.current.manifest_sha256 != current.manifest_sha256
                        || now.current.state != current.state =>
                {
                    live = now
                }
                _ => return Err(error),
            },
        }
    }
}

impl AudienceInfo {
    fn of(audience: &AudienceName, current: &Current, manifest: Option<&Manifest>) -> Self {
        Self {
            audience: audience.clone(),
            generation: current.generation,
            deltas: DeltaReport::of(current),
            built: manifest.map(GenerationReport::of),
        }
    }
}

fn failed(error: &StoreError) -> ApiError {
    tracing::warn!(error = error_chain(error), "could not read the store");
    ApiError::Store
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Creation {
    fpr: Option<f64>,
    filter: Option<String>,
}

pub async fn create(
    State(app): State<Arc<App>>,
    NamedAudience(audience): NamedAudience,
    request: Request,
) -> Result<Response, ApiError> {
    refuse_owned(&app, &audience)?;
    let Creation { fpr, filter } = with_body(&app.room, request.into_body(), |body| {
        parse_json(&body, "fpr and filter")
    })
    .await?;
    let kind = filter.map_or(Ok(FilterKind::Block512), |kind| kind.parse());
    let kind = kind.map_err(|error| RequestError::BadBody(format!("filter: {error}")))?;
    let fpr = fpr.unwrap_or(DEFAULT_FPR);
    let spec = FilterSpec::for_fpr(kind, fpr);
    let spec = spec.map_err(|error| RequestError::BadBody(error.to_string()))?;
    change(
        &app,
        audience,
        AudienceChange::Create(spec, fpr),
        StatusCode::CREATED,
    )
    .await
}

pub async fn disable(
    State(app): State<Arc<App>>,
    NamedAudience(audience): NamedAudience,
) -> Result<Response, ApiError> {
    let disabled = AudienceChange::State(AudienceState::Disabled);
    change(&app, audience, disabled, StatusCode::OK).await
}

pub async fn enable(
    State(app): State<Arc<App>>,
    NamedAudience(audience): NamedAudience,
) -> Result<Response, ApiError> {
    change(
        &app,
        audience,
        AudienceChange::State(AudienceState::Live),
        StatusCode::OK,
    )
    .await
}

pub async fn delete(
    State(app): State<Arc<App>>,
    NamedAudience(audience): NamedAudience,
) -> Result<Response, ApiError> {
    refuse_owned(&app, &audience)?;
    change(&app, audience, AudienceChange::Delete, StatusCode::OK).await
}

/// An audience that follows a window exists as long as the config names it.
fn refuse_owned(app: &App, audience: &AudienceName) -> Result<(), ApiError> {
    if app.windows.is_followed(audience) {
        Err(ApiError::Owned)
    } else {
        Ok(())
    }
}

async fn change(
    app: &App,
    audience: AudienceName,
    change: AudienceChange,
    status: StatusCode,
) -> Result<Response, ApiError> {
    let sequence = app.writers.change(&audience, change).await?;
    Ok(json_of(status, &ChangeReply { audience, sequence }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expiry {
    /// `null` means never; the field is required.
    #[serde(deserialize_with = "Option::deserialize")]
    at_unix_seconds: Option<u64>,
}

pub async fn expire(
    State(app): State<Arc<App>>,
    NamedAudience(audience): NamedAudience,
    request: Request,
) -> Result<Response, ApiError> {
    let Expiry { at_unix_seconds } = with_body(&app.room, request.into_body(), |body| {
        parse_json(&body, "at_unix_seconds")
    })
    .await?;
    let at_unix_seconds = at_unix_seconds.map(check_unix_seconds).transpose()?;
    change(
        &app,
        audience,
        AudienceChange::Expires(at_unix_seconds),
        StatusCode::OK,
    )
    .await
}

/// Parses an object; an empty body counts as `{}`.
fn parse_json<T: for<'de> Deserialize<'de>>(body: &[u8], fields: &str) -> Result<T, ApiError> {
    let body = if body.trim_ascii().is_empty() {
        b"{}"
    } else {
        body
    };
    Ok(parse_object(body, fields)?)
}
