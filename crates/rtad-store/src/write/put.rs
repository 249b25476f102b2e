//! Puts of single objects, conditional or not.

use object_store::path::Path;
use object_store::{ObjectStoreExt, PutMode, PutOptions, PutPayload, UpdateVersion};

use super::probe::check_conditions;
use crate::backend::Backend;
use crate::error::StoreError;
use rtad_core::snapshot::AudienceName;

/// Bytes compared per request.
const PIECE_BYTES: usize = 1 << 20;

/// Writes an object; [`StoreError::Conflict`] if the mode's condition does not hold.
pub async fn put(
    backend: &Backend,
    audience: &AudienceName,
    path: &Path,
    bytes: Vec<u8>,
    mode: PutMode,
) -> Result<UpdateVersion, StoreError> {
    if mode != PutMode::Overwrite {
        check_conditions(backend, path).await?;
    }
    let options = PutOptions {
        mode,
        ..PutOptions::default()
    };
    let put = backend
        .objects(path)
        .await?
        .put_opts(path, PutPayload::from(bytes), options)
        .await;
    put.map(UpdateVersion::from).map_err(|source| match source {
        object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. } => {
            let path: Vec<_> = path
                .parts()
                .skip(1)
                .map(|part| part.as_ref().to_owned())
                .collect();
            let reason = format!(
                "{} was written by another process meanwhile",
                path.join("/")
            );
            StoreError::conflict(audience, reason, true)
        }
        source => StoreError::backend("write", path, source),
    })
}

/// Conditional write. If the answer to a successful put is lost, the client's retry is refused. So
/// after a failure, the object's content is compared.
pub async fn put_if(
    backend: &Backend,
    audience: &AudienceName,
    path: &Path,
    bytes: Vec<u8>,
    mode: PutMode,
) -> Result<UpdateVersion, StoreError> {
    let written = put(backend, audience, path, bytes.clone(), mode).await;
    match written {
        Err(error) if !backend.is_directory() => {
            let held = version_of(backend, path, &bytes).await;
            held.ok().flatten().ok_or(error)
        }
        written => written,
    }
}

/// Whether an object of the same length has these bytes. Reads it in pieces.
pub async fn holds_bytes(backend: &Backend, path: &Path, bytes: &[u8]) -> Result<bool, StoreError> {
    let objects = backend.objects(path).await?;
    for (index, piece) in bytes.chunks(PIECE_BYTES).enumerate() {
        let start = (index * PIECE_BYTES) as u64;
        let held = objects
            .get_range(path, start..start + piece.len() as u64)
            .await;
        if held.map_err(|source| StoreError::backend("read", path, source))? != piece {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The object's version, if it has these bytes.
async fn version_of(
    backend: &Backend,
    path: &Path,
    bytes: &[u8],
) -> Result<Option<UpdateVersion>, StoreError> {
    let failed = |source| StoreError::backend("read", path, source);
    let object = backend
        .objects(path)
        .await?
        .get(path)
        .await
        .map_err(failed)?;
    let version = UpdateVersion {
        e_tag: object.meta.e_tag.clone(),
        version: object.meta.version.clone(),
    };
    let held = object.bytes().await.map_err(failed)?;
    Ok((held == bytes).then_some(version))
}
