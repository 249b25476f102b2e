//! Gc mark, `{audience}/GC`: the files that a gc in an object store is removing. Read by publishes.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use object_store::path::Path;
use object_store::{ObjectStoreExt, PutMode, PutOptions, PutPayload, UpdateVersion};
use serde::{Deserialize, Serialize};

use super::plan::GcPlan;
use crate::backend::Backend;
use crate::error::StoreError;
use crate::layout::gc_mark_path;
use crate::read::read_small;
use crate::write::probe::check_conditions;
use rtad_core::random;
use rtad_core::snapshot::AudienceName;

/// About 250,000 chunks, a thousand times a usual generation.
const MAX_MARK_BYTES: u64 = 16 << 20;

/// The files being removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GcMark {
    /// Distinguishes marks of the same files.
    owner: u64,
    pub(super) generations: BTreeSet<u64>,
    /// Names of files.
    pub(super) chunks: BTreeSet<String>,
    pub(super) deltas: BTreeSet<String>,
}

impl GcMark {
    fn new(plan: &GcPlan) -> Self {
        Self {
            owner: random::number(),
            generations: plan.generations.clone(),
            chunks: plan.chunks.keys().cloned().collect(),
            deltas: plan.deltas.keys().cloned().collect(),
        }
    }

    /// The audience's mark, if there is one.
    pub async fn read(
        backend: &Backend,
        audience: &AudienceName,
    ) -> Result<Option<Self>, StoreError> {
        let path = gc_mark_path(audience);
        let bytes =
            match read_small(&*backend.objects(&path).await?, &path, MAX_MARK_BYTES, "GC").await {
                Err(StoreError::NotFound { .. }) => return Ok(None),
                read => read?.0,
            };
        let broken = |source: serde_json::Error| StoreError::Backend {
            action: "parse",
            path: path.to_string(),
            source: source.into(),
        };
        serde_json::from_slice(&bytes).map(Some).map_err(broken)
    }

    /// Writes a plan's mark, or takes over one that is older than `min_age`. Returns it, and the
    /// time at which it was written by the store's clock.
    pub async fn write(
        backend: &Backend,
        audience: &AudienceName,
        plan: &GcPlan,
        min_age: Duration,
    ) -> Result<(Self, SystemTime), StoreError> {
        let path = gc_mark_path(audience);
        let objects = backend.objects(&path).await?;
        let looked_up = |source| StoreError::backend("look up", &path, source);
        let mut mark = Self::new(plan);
        if !mark.put(backend, &path, PutMode::Create).await? {
            let reason = "another gc is at work, or was killed less than --min-age ago";
            let busy = || StoreError::conflict(audience, reason, true);
            // The version is read before the content: a mark replaced in between is not taken over.
            let meta = match objects.head(&path).await {
                // Its gc has just ended.
                Err(object_store::Error::NotFound { .. }) => return Err(busy()),
                meta => meta.map_err(looked_up)?,
            };
            let found = Self::read(backend, audience).await?;
            if found.as_ref() != Some(&mark) {
                let age = SystemTime::now()
                    .duration_since(meta.last_modified.into())
                    .unwrap_or_default();
                if age < min_age {
                    return Err(busy());
                }
                // Its deletes may still be running.
                mark.extend(found.ok_or_else(busy)?);
                let version = UpdateVersion {
                    e_tag: meta.e_tag,
                    version: meta.version,
                };
                if !mark.put(backend, &path, PutMode::Update(version)).await?
                    && Self::read(backend, audience).await?.as_ref() != Some(&mark)
                {
                    return Err(busy());
                }
            }
        }
        let written = objects.head(&path).await.map_err(looked_up)?.last_modified;
        Ok((mark, written.into()))
    }

    /// Removes the mark, if it is still this one.
    pub async fn remove(
        &self,
        backend: &Backend,
        audience: &AudienceName,
    ) -> Result<(), StoreError> {
        let path = gc_mark_path(audience);
        if Self::read(backend, audience).await?.as_ref() != Some(self) {
            return Ok(());
        }
        match backend.objects(&path).await?.delete(&path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(source) => Err(StoreError::backend("remove", &path, source)),
        }
    }

    fn extend(&mut self, other: Self) {
        self.generations.extend(other.generations);
        self.chunks.extend(other.chunks);
        self.deltas.extend(other.deltas);
    }

    /// Returns whether the mark was written; `false` if the condition does not hold.
    async fn put(&self, backend: &Backend, path: &Path, mode: PutMode) -> Result<bool, StoreError> {
        check_conditions(backend, path).await?;
        let bytes = serde_json::to_vec(self).expect("plain fields");
        let options = PutOptions {
            mode,
            ..PutOptions::default()
        };
        match backend
            .objects(path)
            .await?
            .put_opts(path, PutPayload::from(bytes), options)
            .await
        {
            Ok(_) => Ok(true),
            Err(
                object_store::Error::AlreadyExists { .. }
                | object_store::Error::Precondition { .. },
            ) => Ok(false),
            Err(source) => Err(StoreError::backend("write", path, source)),
        }
    }
}
