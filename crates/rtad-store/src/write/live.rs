//! Going live: one write of `CURRENT`, with the deltas that are not folded into the generation.

use super::base::Base;
use super::deltas::{highest_sequence, merge_groups, sign_deltas};
use super::lock::lock_current;
use super::put::replace_current;
use super::writer::StoreWriter;
use crate::error::StoreError;
use crate::layout::delta_path;
use crate::read::Live;
use rtad_core::snapshot::{AudienceName, Current, DeltaEntry, Manifest, State};

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
    fn groups(&self, live: &[DeltaEntry]) -> Vec<Vec<DeltaEntry>> {
        let newer = live.iter().filter(|delta| delta.last > self.through);
        let mut newer: Vec<_> = newer.cloned().collect();
        let unmerged = newer.partition_point(|delta| Some(delta.last) <= self.no_merge_through);
        let later = newer.split_off(unmerged);
        [&self.older[..], &[newer, later]].concat()
    }
}

/// Makes a generation live over `base`. Retries over concurrently appended deltas.
///
/// # Errors
///
/// [`StoreError::Conflict`] if another loader published since `base`, [`StoreError::Unsigned`] if
/// deltas over an earlier signer's generation would be unsigned, or a store error.
pub async fn go_live(
    writer: &StoreWriter,
    base: &Base,
    candidate: &Candidate<'_>,
) -> Result<(), StoreError> {
    let audience = base.audience();
    let mut tried: Option<Current> = None;
    for tries in 0.. {
        let _lock = lock_current(writer.backend(), audience).await?;
        let live = writer.store().live(audience).await?;
        let is_done = |live: &Live, tried: &Current| {
            live.current.published_sequence() == tried.sequence
                && live.current.manifest_sha256 == tried.manifest_sha256
        };
        // The last try succeeded without an answer, and an append followed it.
        if live
            .as_ref()
            .zip(tried.as_ref())
            .is_some_and(|(live, tried)| is_done(live, tried))
        {
            return Ok(());
        }
        base.check_is_live(live.as_ref())?;
        let current = next(writer, base, candidate, live.as_ref()).await?;
        // Also those that were appended since the base, without this writer's key.
        sign_deltas(writer, audience, current.delta_entries()).await?;
        if candidate.has_signature && writer.refuses_unsigned() {
            check_signed(writer, audience, candidate.generation, &current).await?;
        }
        match replace_current(writer.backend(), audience, live.as_ref(), &current).await {
            // Replaced by an append or by another loader: the next read shows which.
            Err(StoreError::Conflict { .. }) if tries < MAX_TRIES => tried = Some(current),
            done => return done.map(|_| ()),
        }
    }
    unreachable!("the last try is returned")
}

/// Checks that readers with public keys accept the deltas over a signed generation.
///
/// # Errors
///
/// [`StoreError::Unsigned`], or a store error.
async fn check_signed(
    writer: &StoreWriter,
    audience: &AudienceName,
    generation: u64,
    current: &Current,
) -> Result<(), StoreError> {
    for delta in current.delta_entries() {
        if !writer
            .store()
            .is_signed(&delta_path(audience, delta))
            .await?
        {
            return Err(StoreError::Unsigned {
                audience: audience.clone(),
                generation,
            });
        }
    }
    Ok(())
}

/// The `CURRENT` that makes the candidate live after `live`. Writes merged deltas.
async fn next(
    writer: &StoreWriter,
    base: &Base,
    candidate: &Candidate<'_>,
    live: Option<&Live>,
) -> Result<Current, StoreError> {
    let Candidate {
        generation,
        manifest,
        rolled_back_from,
        deltas,
        ..
    } = candidate;
    let old = live.map(|live| &live.current);
    let sequence = match old {
        Some(current) => current.sequence,
        None => highest_sequence(writer.store(), base.audience()).await?,
    };
    let sequence = sequence.saturating_add(1);
    let mut current = Current::new(sequence, *generation, manifest, *rolled_back_from);
    if let Some(old) = old {
        current.deltas = merge_groups(writer, base.audience(), &deltas.groups(&old.deltas)).await?;
        current.no_merge_through = deltas.no_merge_through;
        current.tombstones.clone_from(&old.tombstones);
        current.appended_unix_seconds = old.appended_unix_seconds;
        current.state = if old.state == State::Deleted {
            State::Live
        } else {
            old.state
        };
        current.expires_unix_seconds = old.expires_unix_seconds;
    }
    Ok(current)
}
