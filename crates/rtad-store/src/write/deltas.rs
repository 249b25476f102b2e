//! Deltas: writing them, and merging them when a `CURRENT` would name too many.

use object_store::PutMode;

use super::sign::Sign;
use super::writer::StoreWriter;
use crate::blocking::blocking;
use crate::error::StoreError;
use crate::layout::{delta_path, delta_sequence, deltas_path, signature_path};
use crate::read::{Store, read_small};
use crate::trust::{MAX_SIGNATURE_BYTES, PublicKey};
use rtad_core::snapshot::{AudienceName, BuiltDelta, DeltaEntry, MAX_DELTA_KEYS, MAX_DELTAS};

/// Unmerged deltas that a rollback leaves at most. The other entries of `CURRENT` are for appends.
const MAX_UNMERGED: usize = 8;

/// The deltas of some groups, in order, at most as many as a `CURRENT` may name. The last group are
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
    writer: &StoreWriter,
    audience: &AudienceName,
    groups: &[Vec<DeltaEntry>],
) -> Result<Vec<DeltaEntry>, StoreError> {
    let (later, unmerged) = groups.split_last().expect("the later deltas are a group");
    let mut all = in_order(unmerged.iter().flatten().cloned());
    if all.len() > MAX_UNMERGED {
        let mut joined = Vec::new();
        for group in unmerged {
            joined.extend(merged(writer, audience, group).await?);
        }
        all = in_order(joined);
    }
    if all.len() > MAX_UNMERGED {
        let oldest: Vec<_> = all.drain(..=all.len() - MAX_UNMERGED).collect();
        all.splice(..0, merged(writer, audience, &oldest).await?);
    }
    let named = in_order([&all[..], later].concat());
    if named.len() <= MAX_DELTAS {
        return Ok(named);
    }
    all.extend(merged(writer, audience, later).await?);
    Ok(in_order(all))
}

/// Merges deltas into one, and writes its file; `None` without deltas.
pub async fn merged(
    writer: &StoreWriter,
    audience: &AudienceName,
    entries: &[DeltaEntry],
) -> Result<Option<DeltaEntry>, StoreError> {
    let entries = in_order(entries.iter().cloned());
    let last = match &entries[..] {
        [] => return Ok(None),
        [entry] => return Ok(Some(entry.clone())),
        [.., newest] => newest.last,
    };
    writer.check_unsigned_write(audience).await?;
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
    put_delta(writer, audience, &entry, built.bytes).await?;
    Ok(Some(entry))
}

/// Whether a delta has a signature that names this key, valid or not.
async fn is_signed_by(
    writer: &StoreWriter,
    audience: &AudienceName,
    entry: &DeltaEntry,
    key: &PublicKey,
) -> Result<bool, StoreError> {
    let path = signature_path(&delta_path(audience, entry));
    let objects = writer.store().objects(&path).await?;
    match read_small(&*objects, &path, MAX_SIGNATURE_BYTES, "the signature").await {
        Ok((signature, _)) => Ok(key.is_named_by(&signature)),
        Err(StoreError::NotFound { .. } | StoreError::Manifest { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Signs the deltas that another key signed, or none, if the writer signs. Its public keys decide
/// whether it may. The caller holds the lock of `CURRENT`.
pub async fn sign_deltas(
    writer: &StoreWriter,
    audience: &AudienceName,
    entries: impl IntoIterator<Item = &DeltaEntry>,
) -> Result<(), StoreError> {
    let Some(key) = writer.signer().map(Sign::public_key) else {
        return Ok(());
    };
    for entry in entries {
        if is_signed_by(writer, audience, entry, &key).await? {
            continue;
        }
        match writer.store().delta_and_file(audience, entry).await {
            Ok((_, file)) => put_delta(writer, audience, entry, file.bytes).await?,
            // Merged into another delta meanwhile, which is signed now or by the next build.
            Err(StoreError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes a delta's file, durably. Readers find it once a `CURRENT` names it.
pub async fn put_delta(
    writer: &StoreWriter,
    audience: &AudienceName,
    entry: &DeltaEntry,
    bytes: Vec<u8>,
) -> Result<(), StoreError> {
    writer
        .put_signed(
            audience,
            &delta_path(audience, entry),
            bytes,
            PutMode::Overwrite,
        )
        .await
}

/// The highest sequence in any manifest or delta: a lost `CURRENT` must continue above it.
pub async fn highest_sequence(store: &Store, audience: &AudienceName) -> Result<u64, StoreError> {
    let listed = store.backend.list(&deltas_path(audience)).await?;
    let names = listed
        .iter()
        .filter_map(|object| object.location.filename());
    let mut highest = names.filter_map(delta_sequence).max().unwrap_or(0);
    for generation in store.generations(audience).await? {
        // Unreadable manifests are skipped.
        if let Ok((manifest, _)) = store.manifest_of(audience, generation).await {
            highest = highest.max(manifest.folded().map_or(0, |folded| folded.through));
        }
    }
    Ok(highest)
}

/// Deltas in the order of their last sequence. Keeps one of those with the same sequence: the one
/// with the most keys, which contains the others.
pub fn in_order(deltas: impl IntoIterator<Item = DeltaEntry>) -> Vec<DeltaEntry> {
    let mut deltas: Vec<DeltaEntry> = deltas.into_iter().collect();
    deltas.sort_by_key(|delta| (delta.last, std::cmp::Reverse(delta.keys())));
    deltas.dedup_by_key(|delta| delta.last);
    deltas
}
