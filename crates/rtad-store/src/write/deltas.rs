//! Deltas: merging them when a record would name too many.

use super::update::RecordUpdate;
use crate::blocking::blocking;
use crate::error::StoreError;
use crate::layout::{delta_sequence, deltas_path};
use crate::read::Store;
use rtad_core::snapshot::{AudienceName, BuiltDelta, DeltaEntry, MAX_DELTA_KEYS, MAX_DELTAS};

/// Unmerged deltas that a rollback leaves at most. The other entries of a record are for appends.
const MAX_UNMERGED: usize = 8;

/// The deltas of some groups, in order, at most as many as a record may name. The last group are
/// the later ones, which appends merge further; the others stay apart, so that a rollback can omit
/// them.
///
/// If there are too many, each group is merged into one delta. If there are still too many, the
/// oldest groups are merged with each other: a return to the generations between them then applies
/// their changes again, and a return to a newer one is exact.
///
/// A delta has all changes of its range of sequences. So in the order of their last sequence, the
/// newest change of a key comes last, even if ranges overlap.
pub async fn merge_groups(
    update: &RecordUpdate<'_>,
    groups: &[Vec<DeltaEntry>],
) -> Result<Vec<DeltaEntry>, StoreError> {
    let (later, unmerged) = groups.split_last().expect("the later deltas are a group");
    let mut all = in_order(unmerged.iter().flatten().cloned());
    if all.len() > MAX_UNMERGED {
        let mut joined = Vec::new();
        for group in unmerged {
            joined.extend(merged(update, group).await?);
        }
        all = in_order(joined);
    }

    if all.len() > MAX_UNMERGED {
        let oldest: Vec<_> = all.drain(..=all.len() - MAX_UNMERGED).collect();
        all.splice(..0, merged(update, &oldest).await?);
    }

    let named = in_order([&all[..], later].concat());
    if named.len() <= MAX_DELTAS {
        return Ok(named);
    }
    all.extend(merged(update, later).await?);
    Ok(in_order(all))
}

/// Merges deltas into one, and writes its file; `None` without deltas.
pub async fn merged(
    update: &RecordUpdate<'_>,
    entries: &[DeltaEntry],
) -> Result<Option<DeltaEntry>, StoreError> {
    let RecordUpdate {
        writer, audience, ..
    } = *update;
    let entries = in_order(entries.iter().cloned());
    let last = match &entries[..] {
        [] => return Ok(None),
        [entry] => return Ok(Some(entry.clone())),
        [.., newest] => newest.last,
    };

    let mut deltas = Vec::with_capacity(entries.len());
    for entry in &entries {
        deltas.push(writer.store().delta(audience, entry).await?);
    }
    let built = blocking(move || BuiltDelta::merged(last, &deltas))
        .await
        .expect("deltas have keys");
    let entry = built.delta.entry().clone();
    if entry.keys() > MAX_DELTA_KEYS {
        return Err(StoreError::TooManyDeltas {
            audience: audience.clone(),
            keys: entry.keys(),
        });
    }

    update.put_delta(&entry, built.bytes).await?;
    Ok(Some(entry))
}

/// The highest number of a record in the name of any delta: lost records must continue above it.
pub async fn highest_sequence(store: &Store, audience: &AudienceName) -> Result<u64, StoreError> {
    let listed = store.backend.list(&deltas_path(audience)).await?;
    let names = listed
        .iter()
        .filter_map(|object| object.location.filename());
    Ok(names.filter_map(delta_sequence).max().unwrap_or(0))
}

/// Deltas in the order of their last sequence. Keeps one of those with the same sequence: the one
/// with the most keys, which contains the others.
pub fn in_order(deltas: impl IntoIterator<Item = DeltaEntry>) -> Vec<DeltaEntry> {
    let mut deltas: Vec<DeltaEntry> = deltas.into_iter().collect();
    deltas.sort_by_key(|delta| (delta.last, std::cmp::Reverse(delta.keys())));
    deltas.dedup_by_key(|delta| delta.last);
    deltas
}
