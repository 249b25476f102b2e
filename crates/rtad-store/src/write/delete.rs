//! Deletion of an audience: `CURRENT` says so first, then files go.
//!
//! `CURRENT` stays, marked deleted in one write: pods that run learn from it that they may not
//! answer any more, and a later publish of the audience continues with higher numbers, which no pod
//! takes for old ones. Then manifests, chunks and deltas go, as a gc removes them (`write/gc.rs`),
//! with the same care for a publish that begins meanwhile.
//!
//! | killed | visible to readers | left behind |
//! |---|---|---|
//! | before `CURRENT` is replaced | the audience | nothing |
//! | after | none | files; the next deletion or gc removes them |
//!
//! A build that began before has lost: it finds that `CURRENT` was published since. In a directory
//! it holds the lock, so there the deletion is refused as long as it runs.

use std::time::Duration;

use super::gc::{Collected, Retention, collect_locked};
use super::lock::{lock, lock_current};
use super::put::replace_current;
use super::writer::StoreWriter;
use crate::error::StoreError;
use crate::layout::current_path;
use rtad_core::snapshot::{AudienceName, State};

/// Tries over concurrent appends.
const MAX_TRIES: u32 = 100;
/// An older mark is of a gc that was killed: a gc of the usual `--min-age` stops at half of it. A
/// deletion stops there too.
const MARK_AGE: Duration = Duration::from_secs(60 * 60);

/// Result of a deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deletion {
    /// The sequence of the `CURRENT` that says so.
    pub sequence: u64,
    /// The removed files.
    pub removed: Collected,
}

impl StoreWriter {
    /// Deletes an audience; its tombstones stay, for when it is published again. Another deletion
    /// removes files that were left behind. It can be published again at any time.
    ///
    /// # Errors
    ///
    /// The store's own; [`StoreError::NotFound`] if nothing was ever published;
    /// [`StoreError::Conflict`] if a build, a gc or another deletion is at work. After an error it
    /// may be deleted and still have files: delete it again.
    pub async fn delete(&self, audience: &AudienceName) -> Result<Deletion, StoreError> {
        // Before the lock, which makes the folder.
        if self.store().live(audience).await?.is_none() {
            return Err(StoreError::NotFound { path: current_path(audience).to_string() });
        }
        let _locks =
            (lock(self.backend(), audience).await?, lock_current(self.backend(), audience).await?);
        let sequence = mark_deleted(self, audience).await?;
        let nothing = Retention { keep: 0, min_age: Duration::ZERO };
        let removed = collect_locked(self.store(), audience, nothing, MARK_AGE).await?;
        Ok(Deletion { sequence, removed })
    }
}

/// Called with the locks held. Returns the sequence of the `CURRENT` that says deleted.
async fn mark_deleted(writer: &StoreWriter, audience: &AudienceName) -> Result<u64, StoreError> {
    for tries in 0.. {
        let live = writer.store().live(audience).await?;
        let live =
            live.ok_or_else(|| StoreError::NotFound { path: current_path(audience).to_string() })?;
        if live.current.state == State::Deleted {
            return Ok(live.current.sequence);
        }
        match replace_current(writer.backend(), audience, Some(&live), &live.current.deleted())
            .await
        {
            // Replaced by an append, whose changes go too.
            Err(StoreError::Conflict { .. }) if tries < MAX_TRIES => {}
            done => return Ok(done?.current.sequence),
        }
    }
    unreachable!("the last try is returned")
}
