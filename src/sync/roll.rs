//! Serves a new generation chunk by chunk, for pods whose memory cannot hold two snapshots.
//!
//! 1. Every chunk that is missing is fetched into the cache and verified there, without memory for its filters. Until all
//!    are on the disk nothing changes.
//! 2. In shard order each is read from the disk, and verified again; a catalog is served in which its shards lie in it
//!    (`snapshot/mixed.rs`); what they lay in before is waited for to be freed; and so on with the next.
//!
//! So memory holds one snapshot and a chunk or two more, and each key's answer is of one generation all along. The new
//! manifest is reported with the last chunk.
//!
//! If a file that was right in the first step is not in the second, and the store cannot give the chunk, what is served stays
//! mixed and the failure is counted; the next look goes on from there, also to a newer generation or back to the old one.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};

use super::cache::Cache;
use super::load::{Chunks, Loader, PARALLEL_CHUNKS, assemble, delta_bytes, held};
use super::{Sync, SyncError};
use crate::catalog::Audience;
use crate::config::SwapMode;
use crate::telemetry::ChunkSource;
use rtad_core::snapshot::{
    AudienceName, Chunk, ChunkEntry, ChunkVerifier, Current, Manifest, Overlay, Snapshot,
};

/// For so long is waited until what a chunk replaced is freed. No request takes nearly as long; if one should, the next chunk is
/// read all the same, if there is room for it.
const LINGER: Duration = Duration::from_secs(30);

/// One chunk to be read, and the shards that are then of the new generation: its own, and those before it that are not yet.
#[derive(Debug)]
struct Step {
    missing: ChunkEntry,
    shards: Range<usize>,
    /// Chunks of the new generation in `shards` that are in memory already.
    held: Vec<Arc<Chunk>>,
}

/// The way from what is served to a new generation.
#[derive(Debug)]
struct RollPlan {
    steps: Vec<Step>,
    /// Of the new generation.
    held: Chunks,
    /// Most that is ever held more than at the beginning.
    peak_bytes: u64,
}

impl RollPlan {
    fn new(served: &Snapshot, manifest: &Manifest) -> Self {
        let held = held(Some(served), manifest);
        let mut steps = Vec::new();
        let (mut begin, mut between) = (0, Vec::new());
        for entry in manifest.chunks() {
            if let Some(chunk) =
                held.get(&entry.digest).filter(|chunk| chunk.matches(manifest.filter(), entry))
            {
                between.push(Arc::clone(chunk));
                continue;
            }
            let end = (entry.first_shard + entry.shard_count) as usize;
            steps.push(Step {
                missing: entry.clone(),
                shards: begin..end,
                held: std::mem::take(&mut between),
            });
            begin = end;
        }
        let peak_bytes = peak_bytes(&steps, served, &held);
        Self { steps, held, peak_bytes }
    }
}

/// Most that is held at once beyond what is held now. Chunks of the old generation go when the steps are past their last shard.
fn peak_bytes(steps: &[Step], served: &Snapshot, held: &Chunks) -> u64 {
    let leaving = served.chunks().iter().filter(|chunk| !held.contains_key(chunk.digest()));
    let last_shard =
        |chunk: &Chunk| chunk.shards().last().map_or(0, |(shard, _)| usize::from(shard));
    let mut leaving: Vec<(usize, i128)> =
        leaving.map(|chunk| (last_shard(chunk), chunk.filters().len() as i128)).collect();
    leaving.sort_unstable();
    let mut leaving = leaving.into_iter().peekable();
    let (mut more, mut peak) = (0, 0);
    for step in steps {
        more += i128::from(step.missing.filter_bytes());
        peak = peak.max(more);
        while let Some((_, bytes)) = leaving.next_if(|(last, _)| *last < step.shards.end) {
            more -= bytes;
        }
    }
    u64::try_from(peak).unwrap_or(u64::MAX)
}

impl Sync {
    /// Whether a new generation of the audience is to be served chunk by chunk. A pod that serves nothing has room for it.
    pub(super) fn rolls(&self, audience: &Audience) -> bool {
        self.swap_mode == SwapMode::Rolling && self.cache.is_some() && audience.snapshot.is_some()
    }

    /// Whether what is served of the audience is of two generations.
    pub(super) fn is_mixed(&self, audience: &str) -> bool {
        let catalog = self.serving.load();
        let snapshot = catalog.audience(audience).and_then(|audience| audience.snapshot.as_ref());
        snapshot.is_some_and(|snapshot| snapshot.is_mixed())
    }

    /// Turns what is served of the audience into the generation that `current` names; returns that, whose chunks are all
    /// being served when it does. The audience is taken by value, as it holds the snapshot whose chunks are to be freed.
    pub(super) async fn roll(
        &self,
        audience: Audience,
        current: &Current,
    ) -> Result<Snapshot, SyncError> {
        let (loader, name) = (self.loader(), audience.name.clone());
        let (manifest, file) = self.store.manifest_named(&name, current).await?;
        loader.check(&manifest, current)?;
        let (Some(cache), Some(served)) = (&self.cache, &audience.snapshot) else {
            return Err(SyncError::Internal);
        };
        let plan = RollPlan::new(served, &manifest);
        loader.check_room(plan.peak_bytes.saturating_add(delta_bytes(&audience, current)))?;
        let overlay = loader.overlay(&audience, current).await?;
        let both = overlay.clone().layered_over(served.overlay());
        drop(audience);
        cache.begin(&manifest, file).await;
        loader.fetch(cache, &manifest, &plan.steps).await?;
        if !plan.steps.is_empty() {
            let (generation, chunks) = (manifest.generation(), plan.steps.len());
            tracing::info!(
                audience = name.as_str(),
                generation,
                chunks,
                "all chunks are on the disk: rolling"
            );
        }
        let mut chunks = plan.held;
        for Step { missing, shards, held: mut replacing } in plan.steps {
            // Somebody else may have taken the room meanwhile, or what was replaced may not be freed yet.
            loader.check_room(missing.filter_bytes())?;
            let chunk = Arc::new(loader.chunk(&manifest, &missing).await?);
            chunks.insert(missing.digest, Arc::clone(&chunk));
            replacing.push(chunk);
            self.replace(&name, shards, &replacing, &both).await;
        }
        Ok(assemble(manifest, &chunks).with_overlay(overlay))
    }

    /// Serves these chunks in the place of what their shards lie in, which is freed on return.
    async fn replace(
        &self,
        name: &AudienceName,
        shards: Range<usize>,
        chunks: &[Arc<Chunk>],
        overlay: &Overlay,
    ) {
        let catalog = self.serving.load().with_audiences(|old| {
            let snapshot = old.snapshot.as_ref().filter(|_| old.name == *name)?;
            let mixed = snapshot.with_chunks(shards.clone(), chunks).with_overlay(overlay.clone());
            Some(Audience { snapshot: Some(Arc::new(mixed)), ..old.clone() })
        });
        let _ = tokio::time::timeout(LINGER, self.swap(catalog)).await;
    }
}

impl Loader<'_> {
    /// Has every missing chunk on the disk, verified.
    async fn fetch(
        &self,
        cache: &Cache,
        manifest: &Manifest,
        steps: &[Step],
    ) -> Result<(), SyncError> {
        if !steps.is_empty() {
            self.spread_out().await;
        }
        let fetches = steps.iter().map(|step| self.fetch_one(cache, manifest, &step.missing));
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
        let verifier = ChunkVerifier::new(manifest.filter(), entry);
        let copy = cache.copy(manifest, entry);
        let ((), copy) =
            self.store.chunk_copied(manifest.audience(), entry, verifier, copy).await?;
        self.telemetry.chunk_read(ChunkSource::Store);
        let folder = cache.folder(manifest.audience());
        copy.keep().map_err(|source| SyncError::Cache { folder, source })
    }
}

#[cfg(test)]
mod tests;
