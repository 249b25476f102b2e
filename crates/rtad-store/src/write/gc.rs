//! Garbage collection (gc): removal of files that no kept generation needs.
//!
//! Kept files:
//!
//! * the live generation, and all above it: running publishes, and generations rolled back from;
//! * the few generations that were live last, and those in between;
//! * all files younger than a minimum age.
//!
//! Probes of conditional puts (`write/probe.rs`) are removed at that age too.
//!
//! A deleted audience (`write/delete.rs`) keeps only higher generations and young files. A manifest
//! is removed before its signature and its chunks, so a killed gc never leaves a manifest without
//! chunks. A signature without a manifest is removed once a higher generation is live, because its
//! publish has failed.
//!
//! The lock of an audience in a directory excludes loaders. An object store has no lock and deletes
//! unconditionally, so a publish could rely on an old chunk and lose it. Both sides therefore write
//! first and check afterwards:
//!
//! | gc | publish |
//! |---|---|
//! | 1. plans, and writes the plan to `{audience}/GC` | 1. writes its manifest |
//! | 2. plans again, and spares newly named files | 2. reads `GC`; fails if it names a needed file |
//! | 3. deletes, then removes `GC` | 3. checks that every chunk exists; 4. puts `CURRENT` |
//!
//! One side at least sees the other. If gc planned before the manifest was written, either the
//! publish sees `GC` in step 2, or `GC` and the chunks are gone, which it sees in step 3. No clock
//! decides this. The minimum age only makes failed publishes rare. A rollback relies on it, because
//! it rewrites an old manifest instead of writing a new one.
//!
//! The `GC` of a killed gc blocks publishes that need its files, until the next gc takes it over.

pub mod guard;
mod mark;
mod plan;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::ObjectStoreExt;
use object_store::path::Path;

use super::lock::{Creates, lock, lock_current};
use super::writer::StoreWriter;
use crate::error::StoreError;
use crate::layout::{audience_path, chunks_path, deltas_path, manifest_path, signature_path};
use crate::read::Store;
use mark::GcMark;
use plan::GcPlan;
pub use plan::{Collected, Retention};
use rtad_core::snapshot::AudienceName;

/// Objects removed at a time.
const PARALLEL_DELETES: usize = 16;

impl StoreWriter {
    /// Removes the files that no kept generation needs, or only reports them. Costs a listing and
    /// the kept manifests, twice.
    ///
    /// # Errors
    ///
    /// A store error; [`StoreError::NotFound`] if nothing is live; [`StoreError::Manifest`] if a
    /// kept manifest is refused, as its needs are then unknown; [`StoreError::Conflict`] if a
    /// loader or another gc is at work. A failed gc may have removed a part.
    pub async fn collect(
        &self,
        audience: &AudienceName,
        retention: Retention,
        dry_run: bool,
    ) -> Result<Collected, StoreError> {
        let store = self.store();
        if dry_run {
            return Ok(GcPlan::read(store, audience, retention, retention.now())
                .await?
                .collected());
        }
        // Before the lock, as its error says more.
        store.require_live(audience, None).await?;
        let _locks = (
            lock(self.backend(), audience, Creates::Nothing).await?,
            lock_current(self.backend(), audience).await?,
        );
        collect_locked(store, audience, retention, retention.min_age).await
    }
}

/// Collects garbage; the caller holds the locks. A mark older than `mark_age` belongs to a killed
/// gc.
pub async fn collect_locked(
    store: &Store,
    audience: &AudienceName,
    retention: Retention,
    mark_age: Duration,
) -> Result<Collected, StoreError> {
    let backend = &store.backend;
    let plan = GcPlan::read(store, audience, retention, retention.now()).await?;
    if backend.is_directory() {
        remove(store, audience, &plan, || true).await?;
        return Ok(plan.collected());
    }
    if plan.is_empty() && GcMark::read(backend, audience).await?.is_none() {
        return Ok(plan.collected());
    }
    let begun = Instant::now();
    let (mark, marked_at) = GcMark::write(backend, audience, &plan, mark_age).await?;
    // The store's clock decides from here on: the second plan must see files older than the mark.
    let mut confirmed = match GcPlan::read(store, audience, retention, marked_at).await {
        Ok(confirmed) => confirmed,
        Err(error) => {
            // Nothing was removed, so the first error is the one to report.
            let _ = mark.remove(backend, audience).await;
            return Err(error);
        }
    };
    confirmed.retain_those_of(&plan);
    // Another gc may take over the mark after its minimum age. A minimum age of 0 means that no
    // other gc runs.
    let in_time = || mark_age.is_zero() || begun.elapsed() < mark_age / 2;
    // A failure leaves the mark: a delete without an answer may still be executed.
    remove(store, audience, &confirmed, in_time).await?;
    mark.remove(backend, audience).await?;
    Ok(confirmed.collected())
}

async fn remove(
    store: &Store,
    audience: &AudienceName,
    plan: &GcPlan,
    in_time: impl Fn() -> bool,
) -> Result<(), StoreError> {
    let remove = async |path: Path| {
        if !in_time() {
            let reason = "gc took longer than half of --min-age; run it again";
            return Err(StoreError::conflict(audience, reason, true));
        }
        match store.objects(&path).await?.delete(&path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(source) => Err(StoreError::backend("remove", &path, source)),
        }
    };
    for generation in &plan.generations {
        remove(manifest_path(audience, *generation)).await?;
    }
    for generation in plan
        .generations
        .intersection(&plan.signed)
        .chain(&plan.signatures_alone)
    {
        remove(signature_path(&manifest_path(audience, *generation))).await?;
    }
    let paths = |folder: Path, files: &BTreeMap<String, u64>| -> Vec<Path> {
        files
            .keys()
            .map(|name| folder.clone().join(name.as_str()))
            .collect()
    };
    let mut files = paths(chunks_path(audience), &plan.chunks);
    files.extend(paths(deltas_path(audience), &plan.deltas));
    files.extend(
        plan.probes
            .iter()
            .map(|name| audience_path(audience).join(name.as_str())),
    );
    stream::iter(files)
        .map(remove)
        .buffer_unordered(PARALLEL_DELETES)
        .try_collect()
        .await
}
