//! Stages: a generation that a share of the pods serves, until it is promoted or dropped.
//!
//! A pod takes a staged generation if its place is below the share ([`StagePlace`]). So a wider
//! share has the pods of a smaller one.
//!
//! [`StagePlace`]: rtad_core::snapshot::StagePlace

use super::base::Base;
use super::live::{Candidate, RetainedDeltas, go_live};
use super::rollback::check_chunks;
use super::update::RecordUpdate;
use super::writer::StoreWriter;
use crate::error::StoreError;
use rtad_core::snapshot::{AudienceName, Current, Staged};

/// Tries against concurrent appends.
const MAX_TRIES: u32 = 100;

impl StoreWriter {
    /// Makes the staged generation live for all pods, or for another share of them. Returns the
    /// state after it.
    ///
    /// # Errors
    ///
    /// [`StoreError::NothingStaged`], [`StoreError::Conflict`] if another process wrote meanwhile,
    /// [`StoreError::NotFound`] or [`StoreError::Chunk`] if a file of the generation is missing or
    /// cut short, [`StoreError::Unsigned`], or a store error.
    pub async fn promote(
        &self,
        base: &Base,
        pods_per_million: Option<u32>,
    ) -> Result<Current, StoreError> {
        let store = self.store();
        let audience = base.audience();
        let Staged { entry, .. } = staged_in(base.with_generation(), audience)?;
        let (manifest, bytes) = store.manifest_and_file(audience, &entry).await?;
        check_chunks(store, &manifest).await?;

        let candidate = Candidate {
            generation: entry.generation,
            manifest: &bytes,
            rolled_back_from: None,
            deltas: RetainedDeltas::over(&manifest),
            pods_per_million,
            old_deltas: Vec::new(),
        };
        go_live(self, base, &candidate).await
    }

    /// Drops the staged generation: its pods go back to the live one. Returns the state after it.
    ///
    /// # Errors
    ///
    /// [`StoreError::NothingStaged`], [`StoreError::Conflict`] if another process wrote meanwhile,
    /// [`StoreError::Unsigned`], or a store error.
    pub async fn drop_stage(&self, base: &Base) -> Result<Current, StoreError> {
        let audience = base.audience();
        for tries in 0.. {
            let update = RecordUpdate::begin(self, audience).await?;
            base.check_is_live(update.live.as_ref())?;
            let live = update.live.as_ref().map(|live| &live.current);
            staged_in(live, audience)?;

            let next = live.map(Current::unstaged).expect("checked above");
            match update.write(next).await {
                // Followed by an append.
                Err(StoreError::Conflict { .. }) if tries < MAX_TRIES => {}
                written => return written.map(|live| live.current),
            }
        }
        unreachable!("the last try is returned")
    }
}

fn staged_in(current: Option<&Current>, audience: &AudienceName) -> Result<Staged, StoreError> {
    let staged = current.and_then(|current| current.staged);
    staged.ok_or_else(|| StoreError::NothingStaged {
        audience: audience.clone(),
        reason: "no generation is staged",
    })
}
