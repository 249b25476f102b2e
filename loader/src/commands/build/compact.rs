//! `build --compact`: adds the keys of deltas to the live filters, without an export.
//!
//! Filters hold no keys and cannot be rebuilt. Added keys are inserted, so filters become fuller.
//! Removed keys cannot be deleted and stay in a residual delta of the new generation. A full
//! build avoids both; it is due when the gate rejects a compaction.

use indicatif::HumanCount;
use serde::Serialize;
use std::io::{self, Write};

use rtad_cli::command_error::CommandError;
use rtad_core::clock::now_unix_seconds;
use rtad_core::device::DeviceKey;
use rtad_core::snapshot::{
    BuildReport, BuiltChunk, BuiltDelta, FilterCheck, Folded, Lineage, Manifest, ManifestBuilder,
    Overlay,
};
use rtad_core::snapshot::{ChunkEntry, MAX_DELTA_KEYS, SortedKeys, chunk_runs, shards_per_chunk};
use rtad_store::write::{Base, Publication, StoreWriter};
use rtad_store::{Store, StoreError};

use super::super::error::CommonError;
use super::super::expiry_args::ExpiryArgs;
use super::super::gate::{Gate, GateArgs};
use super::super::lineage_args::rfc3339;
use super::error::BuildError;
use crate::progress::Progress;

/// The JSON object of `build --compact --json`.
#[derive(Debug, Serialize)]
pub struct CompactReport {
    audience: String,
    /// `None` in a dry run, or without deltas.
    generation: Option<u64>,
    dry_run: bool,
    /// Keys added by deltas, and how many of them exceed the size of the filters.
    added: u64,
    inserted: u64,
    /// Keys removed by deltas; they stay in a delta.
    removed: u64,
    expected_fpr: f64,
    chunks_written: u64,
}

struct GrownChunks {
    chunks: ManifestBuilder,
    inserted: u64,
    chunks_written: u64,
}

pub async fn run(
    writer: &StoreWriter,
    base: Base,
    gate: &GateArgs,
    (expiry, labels): (ExpiryArgs, Lineage),
    dry_run: bool,
    progress: &Progress,
) -> Result<CompactReport, CommandError> {
    let (store, audience) = (writer.store(), base.audience().clone());
    let (Some(current), Some(folded)) = (base.with_generation().cloned(), base.folded()) else {
        return Err(CommonError::not_published(&audience));
    };
    let old = store.manifest(&audience, &current).await?;
    if !old.filter().kind().is_growable() {
        return Err(BuildError::CompactRibbon { audience }.into());
    }
    let filter = (old.filter(), old.target_fpr());
    let gate = Gate::open(gate, filter, old.key_digest(), store, &base).await?;
    let overlay = store
        .overlay(&audience, &current, &Overlay::default())
        .await?;
    // Compaction does not extend the lifetime of the data.
    let expires = || {
        expiry
            .end(now_unix_seconds())
            .or(old.expires_unix_seconds())
    };
    if expires().is_some_and(|end| end <= now_unix_seconds()) {
        return Err(CommonError::Expired {
            audience,
            generation: old.generation(),
        }
        .into());
    }
    let created = old.created_unix_seconds();
    if let Some(end) = expires().filter(|end| *end <= created) {
        let (created, end) = (rfc3339(created), rfc3339(end));
        return Err(BuildError::ExpiresEarly {
            audience,
            created,
            end,
        }
        .into());
    }
    // Not the sequence of `CURRENT`: the generation must be known to contain exactly these deltas.
    let last = overlay
        .deltas()
        .last()
        .map_or(0, |newest| newest.entry().last);
    let changes = BuiltDelta::merged(last, overlay.deltas().map(|delta| &**delta));
    let Some(BuiltDelta { delta: changes, .. }) = changes else {
        return Ok(CompactReport::nothing(&old, dry_run));
    };
    let keys = changes.removed().len() as u64;
    if keys > MAX_DELTA_KEYS {
        return Err(StoreError::TooManyDeltas { audience, keys }.into());
    }
    progress.phase("growing chunks");
    let publication = if dry_run {
        None
    } else {
        Some(writer.publish(base).await?)
    };
    // Erased devices must not return to a filter.
    let is_erased = |key: &DeviceKey| {
        overlay
            .tombstones()
            .is_some_and(|gone| gone.removed().contains(key))
    };
    let added = SortedKeys::sort(
        changes
            .added()
            .iter()
            .filter(|key| !is_erased(key))
            .copied()
            .collect(),
    );
    let grown = grow(store, &old, &added, publication.as_ref(), progress).await?;
    let generation = publication
        .as_ref()
        .map_or(old.generation(), Publication::generation);
    let build = BuildReport {
        tool: concat!("rtad-loader ", env!("CARGO_PKG_VERSION"), " --compact").to_owned(),
        ..old.build().clone()
    };
    let manifest = grown.chunks.finish(audience, generation, created, build);
    let mut lineage = old.lineage().cloned().unwrap_or_default();
    lineage.labels.extend(labels.labels);
    let manifest = manifest
        .with_lineage(lineage)
        .with_key_digest(old.key_digest());
    let manifest = match expires() {
        Some(end) => manifest.expiring_at(end),
        None => manifest,
    };
    gate.check(&manifest, &FilterCheck::default())?;
    let compacted = CompactReport {
        audience: manifest.audience().as_str().to_owned(),
        generation: (!dry_run).then_some(generation),
        dry_run,
        added: added.len() as u64,
        inserted: grown.inserted,
        removed: changes.removed().len() as u64,
        expected_fpr: manifest.expected_fpr(),
        chunks_written: grown.chunks_written,
    };
    let Some(publication) = publication else {
        return Ok(compacted);
    };
    let residual = BuiltDelta::new(
        changes.entry().first,
        last,
        Vec::new(),
        changes.removed().to_vec(),
    );
    if let Some(residual) = &residual {
        publication.put_delta(residual).await?;
    }
    let inserted_keys = old.folded().map_or(0, |folded| folded.inserted_keys) + grown.inserted;
    let residual = residual.map(|residual| residual.delta.entry().clone());
    // The filters still contain the changes that earlier builds merged.
    let deltas = old
        .folded()
        .map_or_else(Vec::new, |folded| folded.deltas.clone());
    let folded = Folded {
        deltas,
        residual,
        inserted_keys,
        ..folded
    };
    publication.commit(&manifest.with_folded(folded)).await?;
    Ok(compacted)
}

/// Adds to every chunk its part of the keys, one chunk at a time. Takes three times the memory
/// of a chunk.
async fn grow(
    store: &Store,
    old: &Manifest,
    keys: &SortedKeys,
    publication: Option<&Publication<'_>>,
    progress: &Progress,
) -> Result<GrownChunks, CommandError> {
    let spec = old.filter();
    let mut grown = GrownChunks {
        chunks: ManifestBuilder::new(*spec, old.target_fpr()),
        inserted: 0,
        chunks_written: 0,
    };
    let mut put = async |(chunk, inserted): (BuiltChunk, u64)| {
        grown.inserted += inserted;
        grown.chunks.add(&chunk);
        progress.add(1);
        if let Some(publication) = publication {
            grown.chunks_written += u64::from(publication.put_chunk(chunk).await?);
        }
        Ok::<_, CommandError>(())
    };
    let entries = old.chunks();
    if entries.is_empty() {
        for run in chunk_runs(keys, shards_per_chunk(spec, keys.len() as u64)) {
            put(BuiltChunk::grown(spec, None, run)).await?;
        }
    }
    for (index, entry) in entries.iter().enumerate() {
        let file = store.chunk_file(old, entry).await?;
        put(BuiltChunk::grown(
            spec,
            Some((entry, &file)),
            part(keys, entries, index),
        ))
        .await?;
    }
    Ok(grown)
}

/// The keys of a chunk: from its first shard to that of the next chunk. The first chunk also
/// takes the keys before it.
fn part<'a>(keys: &'a [DeviceKey], entries: &[ChunkEntry], index: usize) -> &'a [DeviceKey] {
    let before = |shard: u32| keys.partition_point(|key| u32::from(key.shard()) < shard);
    let start = if index == 0 {
        0
    } else {
        before(entries[index].first_shard)
    };
    let end = entries
        .get(index + 1)
        .map_or(keys.len(), |next| before(next.first_shard));
    &keys[start..end]
}

impl CompactReport {
    fn nothing(live: &Manifest, dry_run: bool) -> Self {
        Self {
            audience: live.audience().as_str().to_owned(),
            generation: None,
            dry_run,
            added: 0,
            inserted: 0,
            removed: 0,
            expected_fpr: live.expected_fpr(),
            chunks_written: 0,
        }
    }

    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let Self {
            audience,
            generation,
            added,
            inserted,
            removed,
            expected_fpr,
            ..
        } = self;
        match generation {
            Some(generation) => writeln!(out, "published {audience} generation {generation}")?,
            None if self.dry_run => writeln!(
                out,
                "dry run of {audience}: nothing was written to the store"
            )?,
            None => {
                return writeln!(
                    out,
                    "{audience} has no deltas: nothing was written to the store"
                );
            }
        }
        let (added, inserted) = (HumanCount(*added), HumanCount(*inserted));
        writeln!(
            out,
            "  added       {added} ({inserted} beyond the size of the filters)"
        )?;
        writeln!(
            out,
            "  removed     {} stay in a delta",
            HumanCount(*removed)
        )?;
        writeln!(out, "  written     {} chunks", self.chunks_written)?;
        writeln!(out, "  fpr         {expected_fpr:.3e} expected")
    }
}
