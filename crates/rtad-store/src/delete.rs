//! Deleting an audience: first it is said, then done.
//!
//! `CURRENT` says so with one write, and stays: pods that run learn from it that they may answer no longer, and who publishes the
//! audience again goes on with higher numbers, which no pod takes for old ones. Then manifests, chunks and deltas go, as a gc
//! removes them (`store/gc.rs`), with the same care for a publish that begins anew meanwhile.
//!
//! | killed | what readers see | what is left behind |
//! |---|---|---|
//! | before `CURRENT` is replaced | the audience | nothing |
//! | after | none | files; the next deletion or gc removes them |
//!
//! A build that began before has lost: it finds that `CURRENT` was published since. In a directory it holds the lock, so there
//! the deletion is refused as long as it runs.

use std::time::Duration;

use super::{Collected, Retention, Store, StoreError, current_path};
use rtad_core::snapshot::{AudienceName, State};

/// So often it is tried over what others append just then.
const MAX_TRIES: u32 = 100;
/// The mark of a gc that is older is that of one that was killed: a gc of the usual `--min-age` stops at half of it. A deletion
/// stops there too.
const MARK_AGE: Duration = Duration::from_secs(60 * 60);

/// What a deletion did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deletion {
    /// Of the `CURRENT` that says so.
    pub sequence: u64,
    /// What went.
    pub removed: Collected,
}

impl Store {
    /// Deletes an audience; its tombstones stay, for when it is published again. Deleted again, it loses what was left behind. It
    /// can be published again at any time.
    ///
    /// # Errors
    ///
    /// The store's own; [`StoreError::NotFound`] if nothing was ever published; [`StoreError::Conflict`] if a build, a gc or
    /// another deletion is at work. After an error it may be deleted and have files still: delete it again.
    pub async fn delete(&self, audience: &AudienceName) -> Result<Deletion, StoreError> {
        self.writable()?;
        // Not before it is known that there is something: the lock makes the folder.
        if self.live(audience).await?.is_none() {
            return Err(StoreError::NotFound { path: current_path(audience).to_string() });
        }
        let _locks = (self.lock(audience).await?, self.lock_current(audience).await?);
        let sequence = self.say_deleted(audience).await?;
        let nothing = Retention { keep: 0, min_age: Duration::ZERO };
        let removed = self.collect_locked(audience, nothing, MARK_AGE).await?;
        Ok(Deletion { sequence, removed })
    }

    /// By whoever has the locks. Returns the sequence of the `CURRENT` that says so.
    async fn say_deleted(&self, audience: &AudienceName) -> Result<u64, StoreError> {
        for tries in 0.. {
            let live = self.live(audience).await?;
            let live =
                live.ok_or_else(|| StoreError::NotFound { path: current_path(audience).to_string() })?;
            if live.current.state == State::Deleted {
                return Ok(live.current.sequence);
            }
            match self.replace_current(audience, Some(&live), &live.current.deleted()).await {
                // By an append; whatever it said goes.
                Err(StoreError::Conflict { .. }) if tries < MAX_TRIES => {}
                done => return Ok(done?.current.sequence),
            }
        }
        unreachable!("the last try is returned")
    }
}
