//! Guard of a publication against a concurrent gc in an object store, checked after its manifest.
//!
//! The lock of an audience in a directory excludes a gc, and nothing is checked.

use std::collections::BTreeSet;

use super::super::chunks::missing_chunks;
use super::mark::GcMark;
use crate::backend::Backend;
use crate::error::StoreError;
use crate::layout::{chunk_name, delta_name, deltas_path};
use rtad_core::snapshot::{AudienceName, DeltaEntry, Manifest};

/// Checks that no gc has removed, or is removing, a file that the manifest needs.
pub async fn check_manifest(backend: &Backend, manifest: &Manifest) -> Result<(), StoreError> {
    if backend.is_directory() {
        return Ok(());
    }
    let audience = manifest.audience();
    check_mark(backend, manifest).await?;
    check_deltas(backend, audience, manifest.folded_deltas()).await?;
    if missing_chunks(backend, audience, manifest.chunks())
        .await?
        .is_empty()
    {
        return Ok(());
    }
    let reason = "a gc removed a chunk that this generation needs; run this again";
    Err(StoreError::conflict(audience, reason, true))
}

/// Checks that no gc has removed, or is removing, one of these deltas. The store must hold a
/// manifest that names them, or an older one.
pub async fn check_deltas(
    backend: &Backend,
    audience: &AudienceName,
    deltas: impl IntoIterator<Item = &DeltaEntry>,
) -> Result<(), StoreError> {
    let names: BTreeSet<String> = deltas.into_iter().map(delta_name).collect();
    if backend.is_directory() || names.is_empty() {
        return Ok(());
    }
    let mark = GcMark::read(backend, audience).await?;
    let listed = backend.list(&deltas_path(audience)).await?;
    let held: BTreeSet<&str> = listed
        .iter()
        .filter_map(|object| object.location.filename())
        .collect();
    let is_safe = |name: &String| {
        held.contains(&**name) && !mark.as_ref().is_some_and(|mark| mark.deltas.contains(name))
    };
    match names.iter().all(is_safe) {
        true => Ok(()),
        false => Err(StoreError::conflict(
            audience,
            "a gc removed a delta that this generation needs; run this again",
            true,
        )),
    }
}

/// Checks that no gc is removing the generation or one of its chunks.
pub async fn check_mark(backend: &Backend, manifest: &Manifest) -> Result<(), StoreError> {
    let audience = manifest.audience();
    let Some(mark) = GcMark::read(backend, audience).await? else {
        return Ok(());
    };
    let names_chunk = || {
        manifest
            .chunks()
            .iter()
            .any(|entry| mark.chunks.contains(&chunk_name(entry)))
    };
    match mark.generations.contains(&manifest.generation()) || names_chunk() {
        true => Err(StoreError::conflict(
            audience,
            "a running or killed gc is removing files of this generation; run gc again, then this",
            true,
        )),
        false => Ok(()),
    }
}
