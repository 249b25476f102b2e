//! Publish step of `build`: stores chunks as they are built, then commits the manifest.
//!
//! Chunk boundaries depend on the exact number of distinct keys. That number is known in advance
//! for keys in memory. The number for keys on disk is known only after all were sorted, which also
//! builds their chunks. It is therefore estimated, and a wrong estimate rebuilds all chunks. No
//! manifest names the chunks of a wrong estimate, so `gc` removes them.

use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::runtime::Runtime;

use rtad_cli::command_error::CommandError;
use rtad_core::device::SHARDS;
use rtad_core::filter::FilterSpec;
use rtad_core::snapshot::{
    AudienceName, BuildReport, ChunkRecord, FilterCheck, GenerationFacts, Lineage, Manifest,
    ManifestBuilder,
};
use rtad_store::write::Publication;

use super::super::carried::Carried;
use super::super::context::TOOL;
use super::super::expiry_args::ExpiryArgs;
use super::super::gate::Gate;
use super::super::overlap::{LiveSample, Overlap};
use super::super::stage_args::PodShare;
use super::chunks::{ChunkPipeline, MemoryPool, PipelineItem};
use super::error::BuildError;
use crate::input::Counts;
use crate::interrupts;
use crate::keys::{
    Budget, Builders, Distinct, KeyChecks, SHARDS_PER_PARTITION, ShardFilters, ShardKeys, Sorted,
    Spilled, Worker,
};
use crate::merged_deltas::MergedDeltas;
use crate::progress::Progress;

/// Concurrent chunk uploads, to hide the latency of a remote store.
const PARALLEL_PUTS: usize = 4;

/// Shards per chunk for a number of keys.
pub type ChunkRule = fn(&FilterSpec, u64) -> u32;

pub struct BuildPlan<'a> {
    pub audience: &'a AudienceName,
    pub filter: FilterSpec,
    pub target_fpr: f64,
    pub budget: Budget,
    pub counts: Counts,
    pub merged: &'a MergedDeltas,
    pub carried: Option<&'a Carried>,
    pub gate: &'a Gate,
    pub live: Option<&'a LiveSample>,
    pub lineage: Lineage,
    pub expiry: ExpiryArgs,
    pub stage: Option<PodShare>,
    pub runtime: &'a Runtime,
    pub progress: &'a Progress,
    pub chunk_rule: ChunkRule,
}

pub enum ChunkSink<'s> {
    Store(Box<Publication<'s>>),
    /// A dry run.
    Nowhere,
}

#[derive(Debug)]
pub struct BuildOutcome {
    pub manifest: Manifest,
    pub check: FilterCheck,
    /// Chunks new to the store.
    pub chunks_written: u64,
    pub distinct: Distinct,
}

/// All chunks of a build, stored.
struct StoredChunks {
    manifest: ManifestBuilder,
    chunks_written: u64,
    distinct: Distinct,
}

enum StoredItem {
    Chunk { record: ChunkRecord, is_new: bool },
    Keys(Distinct),
}

impl ChunkSink<'_> {
    async fn put(&self, made: PipelineItem<'_>) -> Result<StoredItem, CommandError> {
        match made {
            PipelineItem::Chunk(chunk, _lease) => {
                let record = chunk.record();
                let is_new = match self {
                    Self::Store(publication) => publication.put_chunk(chunk).await?,
                    Self::Nowhere => false,
                };
                Ok(StoredItem::Chunk { record, is_new })
            }
            PipelineItem::Keys(distinct) => Ok(StoredItem::Keys(distinct)),
        }
    }
}

impl BuildPlan<'_> {
    /// Builds from keys in memory, which take `held_bytes`.
    pub fn build_sorted<'s>(
        &self,
        keys: &Sorted<'_>,
        held_bytes: u64,
        sink: impl FnOnce() -> Result<ChunkSink<'s>, CommandError>,
    ) -> Result<BuildOutcome, CommandError> {
        let distinct = keys.distinct();
        self.check(&distinct)?;
        let sink = sink()?;

        let pool_bytes = self
            .budget
            .chunks_beside(held_bytes, keys.largest_partition_bytes());
        let shards_per_chunk = (self.chunk_rule)(&self.filter, distinct.left);
        let builders = self.budget.builders_in_memory();
        let built = self.make(
            keys,
            builders,
            &MemoryPool::of(pool_bytes),
            shards_per_chunk,
            &sink,
        )?;
        self.finish(StoredChunks { distinct, ..built }, sink)
    }

    /// Builds from keys on disk.
    pub fn build_spilled<'s>(
        &self,
        keys: &Spilled<'_>,
        sink: impl FnOnce() -> Result<ChunkSink<'s>, CommandError>,
    ) -> Result<BuildOutcome, CommandError> {
        // An upper bound: duplicates are included.
        self.gate.check_least(keys.keys(), None)?;
        let sink = sink()?;

        let checks = self.checks();
        let partition = keys.largest_partition_bytes();
        let unit_bytes = self.budget.units(0, partition).0.unit_bytes;
        let estimate = keys
            .units(unit_bytes, checks)
            .estimate(&mut Worker::new(unit_bytes))?;
        let mut shards_per_chunk = (self.chunk_rule)(&self.filter, estimate);

        let built = loop {
            let largest = largest_chunk(&self.filter, shards_per_chunk, |shard| {
                keys.most_keys(shard)
            });
            let (builders, pool_bytes) = self.budget.units(largest, partition);
            let units = keys.units(builders.unit_bytes, checks);
            let built = self.make(
                &units,
                builders,
                &MemoryPool::of(pool_bytes),
                shards_per_chunk,
                &sink,
            )?;
            let exact = (self.chunk_rule)(&self.filter, built.distinct.left);
            if exact == shards_per_chunk {
                break built;
            }
            shards_per_chunk = exact;
        };

        self.check(&built.distinct)?;
        self.finish(built, sink)
    }

    pub fn checks(&self) -> KeyChecks<'_> {
        let checks = self
            .carried
            .map_or_else(KeyChecks::default, Carried::checks);
        KeyChecks {
            has_values: self.filter.value_bits() > 0,
            unwanted: self.merged.removed(),
            live: self.live.map(|live| &live.filters as &dyn ShardFilters),
            ..checks
        }
    }

    /// Upper bound of the largest chunk's size, from the number of keys per partition.
    pub fn largest_chunk(&self, partitions: &[u64]) -> u64 {
        let shards_per_chunk = (self.chunk_rule)(&self.filter, partitions.iter().sum()) as usize;
        let runs = partitions.chunks((shards_per_chunk / SHARDS_PER_PARTITION).max(1));
        let most = runs.map(|run| run.iter().sum::<u64>()).max().unwrap_or(0);
        let millibits = self.filter.millibits_per_key() + 1000 * self.filter.value_bits();
        most * u64::from(millibits) / 8000
    }

    fn check(&self, distinct: &Distinct) -> Result<(), CommandError> {
        let overlap = self.overlap(distinct);
        Ok(self.gate.check_change(distinct.left, overlap)?)
    }

    /// `None` without a readable live generation.
    fn overlap(&self, distinct: &Distinct) -> Option<Overlap> {
        self.live.map(|live| live.overlap(distinct.in_live))
    }

    fn make(
        &self,
        keys: &dyn ShardKeys,
        builders: Builders,
        pool: &MemoryPool,
        shards_per_chunk: u32,
        sink: &ChunkSink<'_>,
    ) -> Result<StoredChunks, CommandError> {
        self.progress.phase("building chunks");
        self.progress
            .expect(SHARDS.div_ceil(shards_per_chunk as usize) as u64);
        let filter = &self.filter;
        let pipeline = ChunkPipeline {
            filter,
            shards_per_chunk,
            builders,
            keys,
            pool,
        };
        let mut stored = StoredChunks {
            manifest: ManifestBuilder::new(self.filter, self.target_fpr),
            chunks_written: 0,
            distinct: Distinct::default(),
        };

        pipeline.run(|mut receiver| {
            let all = async {
                let mut made = stream::poll_fn(|context| receiver.poll_recv(context))
                    .map(async |made| sink.put(made?).await)
                    .buffer_unordered(PARALLEL_PUTS);
                while let Some(item) = made.try_next().await? {
                    match item {
                        StoredItem::Chunk { record, is_new } => {
                            self.progress.add(1);
                            stored.manifest.add_record(record);
                            stored.chunks_written += u64::from(is_new);
                        }
                        StoredItem::Keys(distinct) => {
                            stored.distinct = stored.distinct.and(distinct);
                        }
                    }
                    self.progress.check()?;
                }
                Ok::<_, CommandError>(())
            };
            self.runtime.block_on(all)
        })?;
        Ok(stored)
    }

    /// Commits the manifest if it passes the gate.
    fn finish(
        &self,
        built: StoredChunks,
        sink: ChunkSink<'_>,
    ) -> Result<BuildOutcome, CommandError> {
        let StoredChunks {
            manifest,
            chunks_written,
            distinct,
        } = built;
        let check = manifest.check();
        let mut manifest = manifest
            .finish(self.audience.clone(), self.facts(&distinct))
            .map_err(BuildError::InvalidManifest)?;
        self.gate.check_filters(&manifest, &check)?;
        self.progress.check()?;

        if let ChunkSink::Store(publication) = sink {
            interrupts::begin_publish();
            let published = match self.stage {
                Some(share) => {
                    let pods_per_million = share.millionths();
                    let commit = publication.commit_staged(manifest, pods_per_million);
                    self.runtime.block_on(commit)?
                }
                None => self.runtime.block_on(publication.commit(manifest))?,
            };
            manifest = published.manifest;
        }
        Ok(BuildOutcome {
            manifest,
            check,
            chunks_written,
            distinct,
        })
    }

    fn facts(&self, distinct: &Distinct) -> GenerationFacts {
        let facts = GenerationFacts::built_now_by(TOOL);
        GenerationFacts {
            expires_unix_seconds: self.expiry.end(facts.created_unix_seconds),
            build: BuildReport {
                rows: self.counts.rows,
                duplicates: self.counts.keys + self.merged.added().len() as u64 - distinct.found,
                rejected: self.counts.rejected.iter().sum(),
                overlap: self.overlap(distinct).map(|overlap| overlap.ratio),
                recent_keys: self.gate.recent_keys(),
                ..facts.build
            },
            lineage: self.lineage.clone(),
            folded: self.merged.folded.clone(),
            ..facts
        }
    }
}

/// Upper bound of the largest chunk's filter size, for a number of shards per chunk.
pub fn largest_chunk(
    filter: &FilterSpec,
    shards_per_chunk: u32,
    most_keys: impl Fn(usize) -> u64,
) -> u64 {
    let mut shards = Vec::with_capacity(SHARDS);
    for shard in 0..SHARDS {
        let keys = u32::try_from(most_keys(shard)).unwrap_or(u32::MAX);
        shards.push(filter.filter_bytes(keys));
    }
    shards
        .chunks(shards_per_chunk as usize)
        .map(|run| run.iter().sum::<u64>())
        .max()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests;
