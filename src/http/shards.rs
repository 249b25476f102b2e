//! `GET /v1/audiences/{audience}/shards` of the admin port: how many keys each of the 65,536 shards has, for the console's map.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use percent_encoding::percent_decode_str;

use super::Answer;
use super::admin::AdminApp;
use super::error::ApiError;
use super::tagged::tagged;

/// 65,536 little-endian `u32`, in the order of the shards. Costs a pass over them, some 100 µs. Of one generation it is always the same,
/// which its entity tag says; while a generation is rolling in it is of both.
pub(super) async fn shards(
    State(app): State<Arc<AdminApp>>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Answer, ApiError> {
    let path = uri.path().strip_prefix("/v1/audiences/").and_then(|path| path.strip_suffix("/shards"));
    let name = path.expect("the route's path begins and ends so");
    let catalog = app.serving.load();
    let audience = catalog.audience(&percent_decode_str(name).decode_utf8_lossy()).ok_or_else(|| {
        ApiError::UnknownAudience(
            catalog.audiences().iter().map(|audience| audience.name.to_string()).collect(),
        )
    })?;
    // Also one that is too old to answer: to look at it is what one who asks why wants.
    let snapshot = audience.snapshot.as_ref().ok_or(ApiError::NotLoaded)?;
    let manifest = snapshot.manifest();
    let (generation, created) = (manifest.generation(), manifest.created_unix_seconds());
    let tag = (!snapshot.is_mixed()).then(|| format!("\"{generation}-{created}\""));
    Ok(tagged(&headers, tag, "application/octet-stream", || {
        (0..=u16::MAX).flat_map(|shard| snapshot.shard_keys(shard).to_le_bytes()).collect::<Vec<u8>>()
    }))
}
