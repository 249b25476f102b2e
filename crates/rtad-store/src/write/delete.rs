//! Deletion of an audience: `CURRENT` is marked deleted, then the files are removed.
//!
//! `CURRENT` stays: running pods read from it that the audience is unavailable, and a later publish
//! continues with higher generations. Manifests, chunks and deltas are removed as by a gc
//! (`write/gc.rs`), with the same protection of a concurrent publish.
//!
//! | killed | visible to readers | left behind |
//! |---|---|---|
//! | before `CURRENT` is replaced | the audience | nothing |
//! | after | none | files; the next deletion or gc removes them |
//!
//! A build that began earlier fails, because `CURRENT` changed. A build in a directory holds the
//! lock, so the deletion is refused while it runs.

use std::time::Duration;

use super::append::Ledger;
use super::gc::{Collected, Retention, collect_locked};
use super::lock::{Creates, lock, lock_current};
use super::writer::StoreWriter;
use crate::error::StoreError;
use rtad_core::snapshot::{AudienceName, State};

/// Tries against concurrent appends.
const MAX_TRIES: u32 = 100;
/// Older marks belong to killed gcs: a gc with the default `--min-age`, and a deletion, stop at
/// half of this time.
const MARK_AGE: Duration = Duration::from_secs(60 * 60);

/// Result of a deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deletion {
    /// Sequence of the `CURRENT` that is marked deleted.
    pub sequence: u64,
    /// The removed files.
    pub removed: Collected,
}

impl StoreWriter {
    /// Deletes an audience, except for its tombstones, which apply if it is published again.
    ///
    /// # Errors
    ///
    /// A store error; [`StoreError::NotFound`] if nothing was ever published;
    /// [`StoreError::Conflict`] if a build, a gc or another deletion is running. An error may leave
    /// files behind: delete the audience again.
    pub async fn delete(&self, audience: &AudienceName) -> Result<Deletion, StoreError> {
        // Before the lock, as its error says more.
        let mut ledger = self.ledger(audience).await?;
        let _lock = lock(self.backend(), audience, Creates::Nothing).await?;
        let sequence = mark_deleted(&mut ledger).await?;

        let _current_lock = lock_current(self.backend(), audience).await?;
        let nothing = Retention {
            keep: 0,
            min_age: Duration::ZERO,
        };
        let removed = collect_locked(self.store(), audience, nothing, MARK_AGE).await?;
        Ok(Deletion { sequence, removed })
    }
}

/// Marks `CURRENT` as deleted. Returns its sequence.
async fn mark_deleted(ledger: &mut Ledger) -> Result<u64, StoreError> {
    for tries in 0.. {
        let current = ledger.current();
        if current.state == State::Deleted {
            return Ok(current.sequence);
        }
        match ledger.replace(current.deleted(), Vec::new()).await {
            // Replaced by an append: retry over it.
            Err(StoreError::Conflict { .. }) if tries < MAX_TRIES => {
                ledger.refresh().await?;
            }
            replaced => return replaced.map(|()| ledger.current().sequence),
        }
    }
    unreachable!("the last try is returned")
}
