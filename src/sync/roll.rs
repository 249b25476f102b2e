//! Rolling swap: a new generation served chunk by chunk, for pods whose memory cannot hold two.
//!
//! 1. All missing chunks are fetched into the cache and verified there, without loading their
//!    filters. Nothing changes until all are on disk.
//! 2. Chunks are read from the disk in shard order and verified again. The catalog is swapped, and
//!    the replaced chunks are freed before the next step ([`Snapshot::with_chunks`]).
//!
//! Memory holds one snapshot and one or two chunks more. Each key is answered by one generation at
//! any time. The new manifest is reported after the last chunk.
//!
//! If step 2 finds a damaged file and the store is unavailable, the audience stays mixed and the
//! failure is counted. The next poll continues from there, to a newer generation or back to the old
//! one.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};

use super::cache::Cache;
use super::error::SyncError;
use super::load::{Chunks, Loader, PARALLEL_CHUNKS, assemble, held};
use super::state::Syncer;
use crate::config::SwapMode;
use crate::telemetry::ChunkSource;
use rtad_core::filter::FilterKind;
use rtad_core::snapshot::{AudienceName, Chunk, ChunkEntry, ChunkVerifier, Manifest, Snapshot};

/// Maximum time to wait until replaced chunks are freed. Requests take far less. The next chunk is
/// then read anyway if memory allows.
const FREE_TIMEOUT: Duration = Duration::from_secs(30);

/// One chunk to read, and the shards that it moves to the new generation: its own, and the ones
/// before it since the last step.
#[derive(Debug)]
struct RollStep {
    missing: ChunkEntry,
    shards: Range<usize>,
    /// Chunks of the new generation in `shards` that are in memory already.
    held: Vec<Arc<Chunk>>,
}

/// Steps from the served snapshot to a new generation.
#[derive(Debug)]
struct RollPlan {
    steps: Vec<RollStep>,
    /// Chunks of the new generation that are in memory already.
    held: Chunks,
    /// Peak memory use above that before the roll.
    peak_bytes: u64,
}

impl RollPlan {
    fn new(served: &Snapshot, manifest: &Manifest) -> Self {
        let held = held(Some(served), manifest);
        let mut steps = Vec::new();
        let mut begin = 0;
        let mut between = Vec::new();
        for entry in manifest.chunks() {
            if let Some(chunk) = held.get(&entry.digest)
                && chunk.matches(manifest.filter(), entry)
            {
                between.push(Arc::clone(chunk));
                continue;
            }
            let end = (entry.first_shard + entry.shard_count) as usize;
            steps.push(RollStep {
                missing: entry.clone(),
                shards: begin..end,
                held: std::mem::take(&mut between),
            });
            begin = end;
        }
        // Held chunks after the last step are served with the whole generation.
        let peak_bytes = peak_bytes(&steps, manifest.filter().kind(), served, &held);
        Self {
            steps,
            held,
            peak_bytes,
        }
    }
}

/// Largest memory use above the present one. A chunk of the old generation is freed when the steps
/// pass its last shard.
fn peak_bytes(steps: &[RollStep], kind: FilterKind, served: &Snapshot, held: &Chunks) -> u64 {
    let mut leaving = Vec::new();
    for chunk in served.chunks() {
        if !held.contains_key(chunk.digest()) {
            let last_shard = chunk.shards().last().map_or(0, usize::from);
            leaving.push((last_shard, chunk.filters().len() as i128));
        }
    }
    leaving.sort_unstable();

    let mut leaving = leaving.into_iter().peekable();
    let mut more = 0;
    let mut peak = 0;
    for step in steps {
        more += i128::from(step.missing.filter_bytes(kind));
        peak = peak.max(more);
        while let Some((_, bytes)) = leaving.next_if(|(last, _)| *last < step.shards.end) {
            more -= bytes;
        }
    }
    u64::try_from(peak).unwrap_or(u64::MAX)
}

impl Syncer {
    /// Whether a new generation of the audience is swapped chunk by chunk.
    pub(super) fn rolls(&self) -> bool {
        self.settings().swap == SwapMode::Rolling && self.cache.is_some()
    }

    /// Replaces the served generation with the one of a manifest, and returns it, without deltas,
    /// when all its chunks are served. Takes the served snapshot by value, as its chunks must be
    /// freed. Its deltas and those of the new generation are served already.
    pub(super) async fn roll(
        &self,
        name: &AudienceName,
        served: Arc<Snapshot>,
        manifest: Manifest,
        manifest_file: Vec<u8>,
    ) -> Result<Snapshot, SyncError> {
        let loader = self.loader();
        let Some(cache) = &self.cache else {
            return Err(SyncError::Internal);
        };
        let plan = RollPlan::new(&served, &manifest);
        drop(served);
        let _reserved = self.memory.reserve(plan.peak_bytes).await?;
        cache.put_manifest(&manifest, manifest_file).await;
        loader.fetch(cache, &manifest, &plan.steps).await?;
        if !plan.steps.is_empty() {
            let generation = manifest.generation();
            let chunks = plan.steps.len();
            tracing::debug!(
                audience = name.as_str(),
                generation,
                chunks,
                "chunks fetched; roll started"
            );
        }
        let mut chunks = plan.held;
        for RollStep {
            missing,
            shards,
            held: mut replacing,
        } in plan.steps
        {
            // Memory may have been allocated elsewhere, or replaced chunks may not be freed yet.
            self.memory
                .check(missing.filter_bytes(manifest.filter().kind()))?;
            let chunk = Arc::new(loader.chunk(&manifest, &missing).await?);
            chunks.insert(missing.digest, Arc::clone(&chunk));
            replacing.push(chunk);
            let retired = self.update(name, |served| {
                served.with_chunks(shards.clone(), &replacing)
            });
            drop(replacing);
            // The replaced chunks are freed, or stay in use for longer than requests take.
            if let Some(retired) = retired {
                let _ = tokio::time::timeout(FREE_TIMEOUT, retired).await;
            }
        }
        Ok(assemble(manifest, &chunks))
    }
}

impl Loader<'_> {
    /// Writes every missing chunk to the cache, verified.
    async fn fetch(
        &self,
        cache: &Cache,
        manifest: &Manifest,
        steps: &[RollStep],
    ) -> Result<(), SyncError> {
        if !steps.is_empty() {
            self.spread_out().await;
        }
        let fetches = steps
            .iter()
            .map(|step| self.fetch_one(cache, manifest, &step.missing));
        let mut fetches = stream::iter(fetches).buffer_unordered(PARALLEL_CHUNKS);
        while let Some(fetched) = fetches.next().await {
            fetched?;
        }
        Ok(())
    }

    async fn fetch_one(
        &self,
        cache: &Cache,
        manifest: &Manifest,
        entry: &ChunkEntry,
    ) -> Result<(), SyncError> {
        if cache.holds(manifest, entry).await {
            return Ok(());
        }
        let begin = || {
            let verifier = ChunkVerifier::new(manifest.filter(), entry);
            (verifier, cache.copy(manifest, entry))
        };
        let audience = manifest.audience();
        let ((), copy) = self.stores.chunk_copied(audience, entry, begin).await?;
        self.telemetry.chunk_read(ChunkSource::Store);
        let folder = cache.folder(manifest.audience());
        copy.keep()
            .map_err(|source| SyncError::Cache { folder, source })
    }
}

#[cfg(test)]
mod tests;
