//! Probe of conditional puts: one for each client, before its first conditional put.
//!
//! Some servers of S3's protocol ignore `If-None-Match` or `If-Match`. Two writers would then both
//! succeed, and the changes of one would be lost. The probe is an object with a random name beside
//! the file to be written, and is removed at its end.

use object_store::path::Path;
use object_store::{Error, ObjectStoreExt as _, PutMode, PutOptions, PutPayload, UpdateVersion};

use crate::backend::Backend;
use crate::error::{ConditionError, StoreError};
use crate::layout::probe_path;
use rtad_core::random;

/// Refuses an object store without conditional puts. Costs five requests, once per client.
///
/// # Errors
///
/// [`StoreError::Conditions`], or a store error.
pub async fn check_conditions(backend: &Backend, path: &Path) -> Result<(), StoreError> {
    let Backend::Objects {
        url, conditions, ..
    } = backend
    else {
        return Ok(());
    };
    let checked = conditions.get_or_try_init(|| async {
        let probe = probe_path(path, random::number());
        let found = probe_conditions(backend, &probe).await;
        // A policy without deletes leaves a few bytes until the next gc: `append` needs no deletes
        // otherwise.
        if let Ok(objects) = backend.objects(&probe).await {
            let _ = objects.delete(&probe).await;
        }
        found?.map_err(|source| StoreError::Conditions {
            url: url.clone(),
            source,
        })
    });
    checked.await.map(drop)
}

async fn probe_conditions(
    backend: &Backend,
    probe: &Path,
) -> Result<Result<(), ConditionError>, StoreError> {
    // A refusal of the first put is of its own retry: the name is random.
    put(backend, probe, "1", PutMode::Create).await?;
    let first = version(backend, probe).await?;
    if put(backend, probe, "2", PutMode::Create).await? {
        return Ok(Err(ConditionError::CreateIgnored));
    }
    if !put(backend, probe, "3", PutMode::Update(first.clone())).await?
        // A retry after a lost answer is refused, too.
        && version(backend, probe).await?.e_tag == first.e_tag
    {
        let e_tag = first.e_tag.unwrap_or_default();
        return Ok(Err(ConditionError::UpdateRefused { e_tag }));
    }
    if put(backend, probe, "4", PutMode::Update(first)).await? {
        return Ok(Err(ConditionError::UpdateIgnored));
    }
    Ok(Ok(()))
}

async fn version(backend: &Backend, path: &Path) -> Result<UpdateVersion, StoreError> {
    let found = backend.objects(path).await?.head(path).await;
    let meta = found.map_err(|source| StoreError::backend("look up", path, source))?;
    Ok(UpdateVersion {
        e_tag: meta.e_tag,
        version: meta.version,
    })
}

/// Returns whether the condition held.
async fn put(
    backend: &Backend,
    path: &Path,
    content: &'static str,
    mode: PutMode,
) -> Result<bool, StoreError> {
    let options = PutOptions {
        mode,
        ..PutOptions::default()
    };
    match backend
        .objects(path)
        .await?
        .put_opts(path, PutPayload::from(content), options)
        .await
    {
        Ok(_) => Ok(true),
        Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(false),
        Err(source) => Err(StoreError::backend("write", path, source)),
    }
}
