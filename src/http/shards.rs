//! `GET /v1/audiences/{audience}/shards` of the admin port: key counts of the 65,536 shards, for
//! the console's map.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;

use super::admin_app::AdminApp;
use super::error::ApiError;
use super::segment::{decoded, raw};
use super::tagged::tagged;

/// 65,536 little-endian `u32`, in shard order. Costs about 100 µs. The answer of a generation never
/// changes, so it has an entity tag. A rolling swap mixes two generations in the snapshot, and its
/// answer has no tag.
pub async fn shards(
    State(app): State<Arc<AdminApp>>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let catalog = app.serving.load();
    let audience = catalog
        .audience(&decoded(raw(&uri, 2)))
        .ok_or_else(|| ApiError::unknown_audience(&catalog))?;

    // An outdated snapshot is shown too, for diagnosis.
    let snapshot = audience.snapshot.as_ref().ok_or(ApiError::NotLoaded)?;
    let manifest = snapshot.manifest();

    let generation = manifest.generation();
    let created = manifest.created_unix_seconds();
    let tag = (!snapshot.is_mixed()).then(|| format!("\"{generation}-{created}\""));
    Ok(tagged(&headers, tag, "application/octet-stream", || {
        (0..=u16::MAX)
            .flat_map(|shard| snapshot.shard_keys(shard).to_le_bytes())
            .collect::<Vec<u8>>()
    }))
}
