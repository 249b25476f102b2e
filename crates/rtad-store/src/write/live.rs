//! Going live: one record, with the deltas that are not folded into the generation.

use super::base::Base;
use super::deltas::{highest_sequence, merge_groups};
use super::update::RecordUpdate;
use super::writer::StoreWriter;
use crate::error::StoreError;
use rtad_core::snapshot::{
    AudienceName, Current, DeltaEntry, MAX_KEPT_GENERATIONS, Manifest, State,
};

/// Tries against concurrent appends.
const MAX_TRIES: u32 = 100;

/// A generation to make live.
pub struct Candidate<'a> {
    pub(super) generation: u64,
    /// The manifest's bytes.
    pub(super) manifest: &'a [u8],
    pub(super) rolled_back_from: Option<u64>,
    pub(super) deltas: RetainedDeltas,
    /// The share of the pods that serve the generation, beside the live one; `None` for all.
    pub(super) pods_per_million: Option<u32>,
    /// Old deltas that the generation needs. A gc removes them unless the record before names them.
    pub(super) old_deltas: Vec<DeltaEntry>,
}

/// The deltas that stay live with a generation.
#[derive(Debug)]
pub struct RetainedDeltas {
    /// Live deltas are retained if they end after this sequence.
    through: u64,
    /// Earlier deltas, grouped by the generation that they are folded into.
    pub(super) older: Vec<Vec<DeltaEntry>>,
    /// See [`Current::no_merge_through`].
    pub(super) no_merge_through: Option<u64>,
}

impl RetainedDeltas {
    /// The deltas that are not folded into a generation.
    pub fn over(manifest: &Manifest) -> Self {
        Self {
            through: manifest.folded().map_or(0, |folded| folded.through),
            older: Vec::new(),
            no_merge_through: None,
        }
    }

    /// All deltas over the generation, given the live ones, in groups that may each be merged.
    pub(super) fn groups(&self, live: &[DeltaEntry]) -> Vec<Vec<DeltaEntry>> {
        let mut newer = Vec::new();
        for delta in live {
            if delta.last > self.through {
                newer.push(delta.clone());
            }
        }
        let unmerged = newer.partition_point(|delta| Some(delta.last) <= self.no_merge_through);
        let later = newer.split_off(unmerged);
        [&self.older[..], &[newer, later]].concat()
    }
}

/// Makes a generation live over `base`, and returns the state that did. Retries over concurrently
/// appended deltas.
///
/// # Errors
///
/// [`StoreError::Conflict`] if another loader published since `base`, [`StoreError::Unsigned`],
/// [`StoreError::Unanswered`], or a store error.
pub async fn go_live(
    writer: &StoreWriter,
    base: &Base,
    candidate: &Candidate<'_>,
) -> Result<Current, StoreError> {
    for tries in 0.. {
        let update = RecordUpdate::begin(writer, base.audience()).await?;
        base.check_is_live(update.live.as_ref())?;

        let next = candidate.state(&update).await?;
        match update.write_answered(next).await {
            // Followed by an append or by another loader: the next read shows which.
            Err(StoreError::Conflict { .. }) if tries < MAX_TRIES => {}
            written => return written.map(|live| live.current),
        }
    }
    unreachable!("the last try is returned")
}

impl Candidate<'_> {
    /// Checks that no gc removes what the candidate needs.
    fn check_kept(&self, audience: &AudienceName, old: &Current) -> Result<(), StoreError> {
        let is_new = self.generation >= old.next_generation();
        let is_kept = is_new || old.entry(self.generation).is_some();
        let mut old_deltas = self.old_deltas.iter();
        if is_kept && old_deltas.all(|delta| old.deltas.contains(delta)) {
            return Ok(());
        }
        let reason = format!(
            "a gc removed, or may remove, files that generation {} needs; run this again",
            self.generation
        );
        Err(StoreError::conflict(audience, reason, true))
    }

    /// The state that makes the candidate live. Writes merged deltas.
    async fn state(&self, update: &RecordUpdate<'_>) -> Result<Current, StoreError> {
        let old = update.live.as_ref().map(|live| &live.current);
        let sequence = match old {
            Some(old) => old.sequence,
            None => last_sequence(update).await?,
        };
        let mut next = Current::new(
            sequence.saturating_add(1),
            self.generation,
            self.manifest,
            self.rolled_back_from,
        );
        let Some(old) = old else {
            return Ok(next);
        };
        self.check_kept(update.audience, old)?;
        if let Some(pods_per_million) = self.pods_per_million {
            return Ok(old.staging(next.live_entry(), pods_per_million));
        }

        // A staged generation that does not become the live one is dropped.
        let dropped = old.staged.map(|staged| staged.entry.generation);
        next.kept = old.generations();
        next.kept.retain(|entry| {
            entry.generation != self.generation && Some(entry.generation) != dropped
        });
        let surplus = next.kept.len().saturating_sub(MAX_KEPT_GENERATIONS);
        next.kept.drain(..surplus);

        next.deltas = merge_groups(update, &self.deltas.groups(&old.deltas)).await?;
        next.no_merge_through = self.deltas.no_merge_through;
        next.tombstones.clone_from(&old.tombstones);
        next.appended_unix_seconds = old.appended_unix_seconds;
        if old.state != State::Deleted {
            next.state = old.state;
        }
        next.expires_unix_seconds = old.expires_unix_seconds;
        Ok(next)
    }
}

/// The highest number of a record that was lost; 0 if there was none. A reader that had it would
/// take a lower one for that of a stale copy.
async fn last_sequence(update: &RecordUpdate<'_>) -> Result<u64, StoreError> {
    let store = update.writer.store();
    let audience = update.audience;
    let hint = store.records(audience).hint().await?.unwrap_or(0);
    let highest = highest_sequence(store, audience).await?.max(hint);
    // A first record may have been created since, and a delta appended to it.
    if highest > 0 && store.live(audience).await?.is_some() {
        let reason = "another process published meanwhile";
        return Err(StoreError::conflict(audience, reason, true));
    }
    Ok(highest)
}
