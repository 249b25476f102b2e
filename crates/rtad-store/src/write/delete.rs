//! Deletion of an audience: a record says that it is deleted, then the files are removed.
//!
//! The records stay: running pods read from them that the audience is unavailable, and a later
//! publish continues with higher generations. Manifests, chunks and deltas that were written before
//! are removed as by a gc (`write/gc.rs`).
//!
//! | killed | visible to readers | left behind |
//! |---|---|---|
//! | before the record | the audience | nothing |
//! | after | none | files; the next deletion or gc removes them |
//!
//! A build that began earlier fails, because its base is no longer live.

use super::append::Ledger;
use super::gc::Collected;
use super::writer::StoreWriter;
use crate::error::StoreError;
use rtad_core::snapshot::{AudienceName, Current, State};

/// Tries against concurrent appends.
const MAX_TRIES: u32 = 100;

/// Result of a deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deletion {
    /// Number of the record that says so.
    pub sequence: u64,
    /// The removed files.
    pub removed: Collected,
}

impl StoreWriter {
    /// Deletes an audience, except for its tombstones, which apply if it is published again.
    ///
    /// # Errors
    ///
    /// A store error; [`StoreError::NotFound`] if nothing was ever published. An error may leave
    /// files behind: delete the audience again.
    pub async fn delete(&self, audience: &AudienceName) -> Result<Deletion, StoreError> {
        let mut ledger = self.ledger(audience).await?;
        let deleted = mark_deleted(&mut ledger).await?;
        let removed = self.collect_deleted(audience, &deleted).await?;
        Ok(Deletion {
            sequence: deleted.sequence,
            removed,
        })
    }
}

/// Marks the audience as deleted. Returns its state.
async fn mark_deleted(ledger: &mut Ledger) -> Result<Current, StoreError> {
    for tries in 0.. {
        let current = ledger.current();
        if current.state == State::Deleted {
            return Ok(current.clone());
        }
        match ledger.replace(current.deleted(), Vec::new()).await {
            // Followed by an append: retry over it.
            Err(StoreError::Conflict { .. }) if tries < MAX_TRIES => {
                ledger.refresh().await?;
            }
            replaced => return replaced.map(|()| ledger.current().clone()),
        }
    }
    unreachable!("the last try is returned")
}
