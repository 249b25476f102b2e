//! `{audience}/GC`: what a gc in an object store is about to remove, for publishes to see.
//!
//! Written and removed by gc only. Readers of snapshots never look at it.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::{Duration, SystemTime};

use object_store::path::Path;
use object_store::{ObjectStoreExt, PutMode, PutOptions, PutPayload};
use serde::{Deserialize, Serialize};

use super::super::{Store, StoreError, audience_path, read_small};
use super::Condemned;
use rtad_core::snapshot::AudienceName;

/// Some 250,000 chunks, a thousand times what a generation usually has.
const MAX_MARK_BYTES: u64 = 16 << 20;

/// What may go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    /// Tells marks apart that name the same.
    owner: u64,
    pub(super) generations: BTreeSet<u64>,
    /// Names of files.
    pub(super) chunks: BTreeSet<String>,
    #[serde(default)]
    pub(super) deltas: BTreeSet<String>,
}

impl Store {
    /// Writes the mark, or takes over one that is older than `min_age`. Returns it, and when it was written by the store's
    /// clock.
    pub(super) async fn mark(
        &self,
        audience: &AudienceName,
        condemned: &Condemned,
        min_age: Duration,
    ) -> Result<(Mark, SystemTime), StoreError> {
        let path = mark_path(audience);
        let objects = self.objects(&path)?;
        let looked_up = |source| StoreError::backend("look up", &path, source);
        let mut mark = Mark {
            owner: RandomState::new().build_hasher().finish(),
            generations: condemned.generations.clone(),
            chunks: condemned.chunks.keys().cloned().collect(),
            deltas: condemned.deltas.keys().cloned().collect(),
        };
        if !self.put_mark(&path, &mark, PutMode::Create).await? {
            let busy = || StoreError::Conflict {
                audience: audience.clone(),
                reason: "another gc is at work, or was killed less than --min-age ago".into(),
                passes: true,
            };
            // Before it is read: what is replaced in between is not taken over.
            let meta = match objects.head(&path).await {
                // It has just ended.
                Err(object_store::Error::NotFound { .. }) => return Err(busy()),
                meta => meta.map_err(looked_up)?,
            };
            let found = self.read_mark(audience).await?;
            if found.as_ref() != Some(&mark) {
                let age = SystemTime::now().duration_since(meta.last_modified.into()).unwrap_or_default();
                if age < min_age {
                    return Err(busy());
                }
                // What it named may be going still.
                let found = found.ok_or_else(busy)?;
                mark.generations.extend(found.generations);
                mark.chunks.extend(found.chunks);
                mark.deltas.extend(found.deltas);
                let version = object_store::UpdateVersion { e_tag: meta.e_tag, version: meta.version };
                if !self.put_mark(&path, &mark, PutMode::Update(version)).await?
                    && self.read_mark(audience).await?.as_ref() != Some(&mark)
                {
                    return Err(busy());
                }
            }
        }
        let written = objects.head(&path).await.map_err(looked_up)?.last_modified;
        Ok((mark, written.into()))
    }

    /// Whether a mark lies there.
    pub(super) async fn is_marked(&self, audience: &AudienceName) -> Result<bool, StoreError> {
        Ok(self.read_mark(audience).await?.is_some())
    }

    pub(super) async fn read_mark(&self, audience: &AudienceName) -> Result<Option<Mark>, StoreError> {
        let path = mark_path(audience);
        let bytes = match read_small(&*self.objects(&path)?, &path, MAX_MARK_BYTES, "GC").await {
            Err(StoreError::NotFound { .. }) => return Ok(None),
            read => read?.0,
        };
        let broken = |source: serde_json::Error| StoreError::Backend {
            action: "understand",
            path: path.to_string(),
            source: source.into(),
        };
        serde_json::from_slice(&bytes).map(Some).map_err(broken)
    }

    /// Removes the mark, if it is still this one.
    pub(super) async fn unmark(&self, audience: &AudienceName, mark: &Mark) -> Result<(), StoreError> {
        let path = mark_path(audience);
        if self.read_mark(audience).await?.as_ref() != Some(mark) {
            return Ok(());
        }
        match self.objects(&path)?.delete(&path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(source) => Err(StoreError::backend("remove", &path, source)),
        }
    }

    /// Whether it was written; `false` if another lies there.
    async fn put_mark(&self, path: &Path, mark: &Mark, mode: PutMode) -> Result<bool, StoreError> {
        let bytes = serde_json::to_vec(mark).expect("plain fields");
        let options = PutOptions { mode, ..PutOptions::default() };
        match self.objects(path)?.put_opts(path, PutPayload::from(bytes), options).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                Ok(false)
            }
            Err(source) => Err(StoreError::backend("write", path, source)),
        }
    }
}

fn mark_path(audience: &AudienceName) -> Path {
    audience_path(audience).join("GC")
}
