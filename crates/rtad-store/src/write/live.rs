//! Going live: one write of `CURRENT`, with the deltas that are not folded into the generation.

use super::base::Base;
use super::current::CurrentUpdate;
use super::deltas::{highest_sequence, merge_groups, sign_deltas};
use super::writer::StoreWriter;
use crate::error::StoreError;
use crate::layout::delta_path;
use rtad_core::snapshot::{Current, DeltaEntry, Manifest, State};

/// Tries to write `CURRENT` against concurrent appends.
const MAX_TRIES: u32 = 100;

/// A generation to make live.
pub struct Candidate<'a> {
    pub(super) generation: u64,
    /// The manifest's bytes.
    pub(super) manifest: &'a [u8],
    pub(super) rolled_back_from: Option<u64>,
    pub(super) deltas: RetainedDeltas,
    /// Whether an earlier signer signed the manifest.
    pub(super) has_signature: bool,
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
        let newer = live.iter().filter(|delta| delta.last > self.through);
        let mut newer: Vec<_> = newer.cloned().collect();
        let unmerged = newer.partition_point(|delta| Some(delta.last) <= self.no_merge_through);
        let later = newer.split_off(unmerged);
        [&self.older[..], &[newer, later]].concat()
    }
}

/// Makes a generation live over `base`, and returns the `CURRENT` that did. Retries over
/// concurrently appended deltas.
///
/// # Errors
///
/// [`StoreError::Conflict`] if another loader published since `base`, [`StoreError::Unsigned`] if
/// deltas over an earlier signer's generation would be unsigned, or a store error.
pub async fn go_live(
    writer: &StoreWriter,
    base: &Base,
    candidate: &Candidate<'_>,
) -> Result<Current, StoreError> {
    let mut tried: Option<Current> = None;
    for tries in 0.. {
        let update = CurrentUpdate::begin(writer, base.audience()).await?;
        let live = update.live.as_ref().map(|live| &live.current);
        // The last try succeeded without an answer, and an append followed it.
        if let (Some(live), Some(tried)) = (live, &tried)
            && live.published_sequence() == tried.sequence
            && live.manifest_sha256 == tried.manifest_sha256
        {
            return Ok(tried.clone());
        }
        base.check_is_live(update.live.as_ref())?;

        let next = candidate.current(&update).await?;
        // Also those that were appended since the base, without this writer's key.
        sign_deltas(&update, next.delta_entries()).await?;
        if candidate.has_signature && writer.refuses_unsigned() {
            check_signed(&update, &next).await?;
        }

        match update.write(&next).await {
            // Replaced by an append or by another loader: the next read shows which.
            Err(StoreError::Conflict { .. }) if tries < MAX_TRIES => tried = Some(next),
            written => return written.map(|live| live.current),
        }
    }
    unreachable!("the last try is returned")
}

/// Checks that readers with public keys accept the deltas over a signed generation.
///
/// # Errors
///
/// [`StoreError::Unsigned`], or a store error.
async fn check_signed(update: &CurrentUpdate<'_>, next: &Current) -> Result<(), StoreError> {
    let store = update.writer.store();
    for delta in next.delta_entries() {
        let path = delta_path(update.audience, delta);
        if !store.is_signed(&path).await? {
            return Err(StoreError::Unsigned {
                audience: update.audience.clone(),
                generation: next.generation,
            });
        }
    }
    Ok(())
}

impl Candidate<'_> {
    /// The `CURRENT` that makes the candidate live. Writes merged deltas.
    async fn current(&self, update: &CurrentUpdate<'_>) -> Result<Current, StoreError> {
        let old = update.live.as_ref().map(|live| &live.current);
        let sequence = match old {
            Some(current) => current.sequence,
            None => highest_sequence(update.writer.store(), update.audience).await?,
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
