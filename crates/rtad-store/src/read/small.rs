//! Small objects, read whole up to a limit.

use std::time::Duration;

use futures_util::StreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _};

use crate::download::StallTimer;
use crate::error::StoreError;
use rtad_core::snapshot::ManifestError;

/// Reads a whole object of at most `limit` bytes.
pub async fn read_small(
    objects: &dyn ObjectStore,
    path: &Path,
    limit: u64,
    what: &'static str,
    stall_timeout: Duration,
) -> Result<Vec<u8>, StoreError> {
    let failed = |source| StoreError::backend("read", path, source);
    let mut stall = StallTimer::new(stall_timeout);
    let object = stall.wait(path, objects.get(path)).await?.map_err(failed)?;
    let mut bytes = Vec::new();
    let mut body = object.into_stream();
    while let Some(part) = stall.wait(path, body.next()).await? {
        let part = part.map_err(failed)?;
        stall.progress(part.len());
        bytes.extend_from_slice(&part);
        if bytes.len() as u64 > limit {
            let source = ManifestError::TooLarge {
                what,
                found: bytes.len() as u64,
                limit,
            };
            return Err(StoreError::Manifest {
                path: path.to_string(),
                source,
            });
        }
    }
    Ok(bytes)
}
