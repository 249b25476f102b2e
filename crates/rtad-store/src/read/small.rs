//! Small objects, read whole up to a limit.

use std::time::Duration;

use futures_util::StreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _};

use crate::download::within;
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
    let read = async {
        let mut body = objects.get(path).await?.into_stream();
        let mut bytes = Vec::new();
        while bytes.len() as u64 <= limit
            && let Some(part) = body.next().await
        {
            bytes.extend_from_slice(&part?);
        }
        Ok(bytes)
    };
    let bytes = within(stall_timeout, path, read)
        .await?
        .map_err(|source| StoreError::backend("read", path, source))?;

    let found = bytes.len() as u64;
    if found > limit {
        let source = ManifestError::TooLarge { what, found, limit };
        return Err(StoreError::Manifest {
            path: path.to_string(),
            source,
        });
    }
    Ok(bytes)
}
