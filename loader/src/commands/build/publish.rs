//! A generation from keys: chunks are written to the store as they are built, a few at a time, then
//! the manifest.
//!
//! The cut depends on the exact number of distinct keys. For keys on disk it is known only after
//! all were sorted, and their chunks are then built as well; so it is estimated, and a wrong
//! estimate builds all chunks again. Unused chunks are removed by gc.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::runtime::Runtime;

use rtad_core::device::SHARDS;
use rtad_core::filter::FilterSpec;
use rtad_core::snapshot::{AudienceName, BuildReport, ChunkRecord, Manifest, ManifestBuilder};
use rtad_store::write::Publication;

use super::super::context::now_unix_seconds;
use super::super::error::{CommandError, UsageError};
use super::chunks::{Made, Making, Room};
use super::gate::Gate;
use super::journal::{Group, Journal, JournalLocation};
use crate::input::Counts;
use crate::keys::{
    Budget, Distinct, SHARDS_PER_PARTITION, ShardKeys, Sorted, SpillError, Spilled, Unwanted,
    Worker,
};
use crate::merged_deltas::MergedDeltas;
use crate::progress::Progress;

/// Chunks written at a time: each is a request to a distant store.
const PARALLEL_PUTS: usize = 4;
/// A dry run has no generation; its manifest is never written.
const NO_GENERATION: u64 = 0;

/// Shards per chunk, by the number of keys.
pub(super) type Cut = fn(&FilterSpec, u64) -> u32;

/// The intended generation.
pub(super) struct Plan<'a> {
    pub(super) audience: &'a AudienceName,
    pub(super) filter: FilterSpec,
    pub(super) target_fpr: f64,
    pub(super) budget: Budget,
    pub(super) counts: Counts,
    pub(super) fold: &'a MergedDeltas,
    pub(super) gate: Gate,
    /// Time until expiry.
    pub(super) expires: Option<Duration>,
    pub(super) runtime: &'a Runtime,
    pub(super) progress: &'a Progress,
    pub(super) cut: Cut,
    /// Location of the journal of chunks.
    pub(super) journal: Option<JournalLocation<'a>>,
}

/// Destination.
pub(super) enum ChunkSink<'s> {
    Store(Box<Publication<'s>>),
    /// A dry run.
    Nowhere,
}

/// Built generation.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) manifest: Manifest,
    /// Chunks that the store did not have.
    pub(super) chunks_written: u64,
    pub(super) distinct: Distinct,
}

/// Chunks built and written.
struct Built {
    manifest: ManifestBuilder,
    chunks_written: u64,
    distinct: Distinct,
}

/// Written chunks.
enum Put {
    Chunk(usize, ChunkRecord, bool),
    End(usize, usize, Distinct),
}

impl ChunkSink<'_> {
    /// Whether all chunks of a group are written.
    async fn holds(&self, group: &Group) -> Result<bool, CommandError> {
        let Self::Store(publication) = self else { return Ok(false) };
        for chunk in &group.chunks {
            if !publication.holds_chunk(&chunk.entry).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn put(&self, made: Made<'_>) -> Result<Put, CommandError> {
        match made {
            Made::Chunk(group, chunk, _room) => {
                let record = chunk.record();
                let is_new = match self {
                    Self::Store(publication) => publication.put_chunk(chunk).await?,
                    Self::Nowhere => false,
                };
                Ok(Put::Chunk(group, record, is_new))
            }
            Made::End(group, chunks, distinct) => Ok(Put::End(group, chunks, distinct)),
        }
    }
}

impl Plan<'_> {
    /// Builds keys in memory, where they take `held_bytes`.
    pub(super) fn build_sorted<'s>(
        &self,
        keys: &Sorted<'_>,
        held_bytes: u64,
        sink: impl FnOnce() -> Result<ChunkSink<'s>, CommandError>,
    ) -> Result<Done, CommandError> {
        let distinct = keys.distinct();
        self.check(distinct.left)?;
        let sink = sink()?;
        let room = self.budget.chunks_beside(held_bytes, keys.largest_partition_bytes());
        let cut = (self.cut)(&self.filter, distinct.left);
        let built = self.make(keys, 0, &Room::of(room), cut, &sink)?;
        self.finish(Built { distinct, ..built }, sink)
    }

    /// Builds keys on disk.
    pub(super) fn build_spilled<'s>(
        &self,
        keys: &Spilled<'_>,
        sink: impl FnOnce() -> Result<ChunkSink<'s>, CommandError>,
    ) -> Result<Done, CommandError> {
        // An upper limit, duplicates included.
        self.gate.check_keys(keys.keys())?;
        let sink = sink()?;
        let unwanted = self.unwanted();
        let unit_bytes = self.budget.units(0).0;
        let estimate = keys.units(unit_bytes, unwanted).estimate(&mut Worker::new(unit_bytes))?;
        let mut cut = (self.cut)(&self.filter, estimate);
        let built = loop {
            let largest = largest_chunk(&self.filter, cut, |shard| keys.most_keys(shard));
            let (unit_bytes, room) = self.budget.units(largest);
            let units = keys.units(unit_bytes, unwanted);
            let built = self.make(&units, unit_bytes, &Room::of(room), cut, &sink)?;
            let exact = (self.cut)(&self.filter, built.distinct.left);
            if exact == cut {
                break built;
            }
            cut = exact;
        };
        self.check(built.distinct.left)?;
        self.finish(built, sink)
    }

    pub(super) fn unwanted(&self) -> Unwanted<'_> {
        self.fold.removed()
    }

    /// Largest memory of a chunk of these keys, given by partition.
    pub(super) fn largest_chunk(&self, partitions: &[u64]) -> u64 {
        let cut = (self.cut)(&self.filter, partitions.iter().sum()) as usize;
        let runs = partitions.chunks((cut / SHARDS_PER_PARTITION).max(1));
        let most = runs.map(|run| run.iter().sum::<u64>()).max().unwrap_or(0);
        most * u64::from(self.filter.millibits_per_key()) / 8000
    }

    /// Checks that need only the number of distinct keys.
    fn check(&self, keys: u64) -> Result<(), CommandError> {
        let (kind, fpr) = (self.filter.kind(), self.target_fpr);
        let min_keys = FilterSpec::min_keys(kind, fpr);
        if keys > 0 && keys < min_keys {
            return Err(UsageError::TooFewKeys { fpr, keys, min_keys }.into());
        }
        Ok(self.gate.check_keys(keys)?)
    }

    /// Builds all chunks and writes them to the sink.
    fn make(
        &self,
        keys: &dyn ShardKeys,
        unit_bytes: usize,
        room: &Room,
        shards_per_chunk: u32,
        sink: &ChunkSink<'_>,
    ) -> Result<Built, CommandError> {
        self.progress.phase("building chunks");
        let (filter, threads) = (&self.filter, self.budget.threads());
        let making = Making { filter, shards_per_chunk, threads, keys, unit_bytes, room };
        let mut puts = Puts::begin(self, sink, shards_per_chunk)?;
        let done: Vec<usize> = puts.done.iter().map(|group| group.group).collect();
        making.run(&done, |mut receiver| {
            let all = async {
                let made = stream::poll_fn(|context| receiver.poll_recv(context));
                let mut made =
                    made.map(async |made| sink.put(made?).await).buffer_unordered(PARALLEL_PUTS);
                while let Some(put) = made.try_next().await? {
                    puts.add(put, self.progress)?;
                }
                Ok::<_, CommandError>(())
            };
            self.runtime.block_on(all)
        })?;
        Ok(puts.end(self))
    }

    /// Makes the generation live, if it passes the gate.
    fn finish(&self, built: Built, sink: ChunkSink<'_>) -> Result<Done, CommandError> {
        let Built { manifest, chunks_written, distinct } = built;
        let generation = match &sink {
            ChunkSink::Store(publication) => publication.generation(),
            ChunkSink::Nowhere => NO_GENERATION,
        };
        let manifest = self.manifest(manifest, generation, distinct.found);
        // Checked as readers check it: chunks came from many threads, and some from an interrupted build.
        Manifest::parse(&manifest.to_bytes(), self.audience, generation)
            .map_err(CommandError::Refused)?;
        self.gate.check(&manifest)?;
        if let ChunkSink::Store(publication) = sink {
            self.runtime.block_on(publication.commit(&manifest))?;
        }
        Ok(Done { manifest, chunks_written, distinct })
    }

    fn manifest(&self, chunks: ManifestBuilder, generation: u64, found: u64) -> Manifest {
        let now = now_unix_seconds();
        let build = BuildReport {
            tool: concat!("rtad-loader ", env!("CARGO_PKG_VERSION")).to_owned(),
            rows: self.counts.rows,
            // A stream that was partly read before an interruption may have left keys that it no longer has.
            duplicates: (self.counts.keys + self.fold.added().len() as u64).saturating_sub(found),
            rejected: self.counts.rejected.iter().sum(),
        };
        let manifest = chunks.finish(self.audience.clone(), generation, now, build);
        let manifest = match &self.fold.folded {
            Some(folded) => manifest.with_folded(folded.clone()),
            None => manifest,
        };
        match self.expires {
            Some(lifetime) => manifest.expiring_at(now + lifetime.as_secs()),
            None => manifest,
        }
    }
}

/// Largest memory of a chunk's filters at this cut.
pub(super) fn largest_chunk(
    filter: &FilterSpec,
    shards_per_chunk: u32,
    most_keys: impl Fn(usize) -> u64,
) -> u64 {
    let bytes = |shard| filter.filter_bytes(u32::try_from(most_keys(shard)).unwrap_or(u32::MAX));
    let shards: Vec<u64> = (0..SHARDS).map(bytes).collect();
    shards.chunks(shards_per_chunk as usize).map(|run| run.iter().sum()).max().unwrap_or(0)
}

/// Written chunks, by group.
struct Puts<'a> {
    journal: Option<Journal<'a>>,
    open: HashMap<usize, OpenGroup>,
    done: Vec<Group>,
    chunks_written: u64,
}

/// A group with missing chunks.
#[derive(Default)]
struct OpenGroup {
    chunks: Vec<ChunkRecord>,
    /// Number of its chunks and of their keys.
    end: Option<(usize, Distinct)>,
}

impl<'a> Puts<'a> {
    /// Including the chunks of an interrupted build.
    fn begin(
        plan: &Plan<'a>,
        sink: &ChunkSink<'_>,
        shards_per_chunk: u32,
    ) -> Result<Self, CommandError> {
        let mut puts =
            Self { journal: None, open: HashMap::new(), done: Vec::new(), chunks_written: 0 };
        if let (Some(journal), ChunkSink::Store(_)) = (&plan.journal, sink) {
            // A gc may have removed them meanwhile.
            let holds = |group: &Group| plan.runtime.block_on(sink.holds(group));
            let (journal, groups) = journal.open(shards_per_chunk, holds)?;
            (puts.journal, puts.done) = (Some(journal), groups);
        }
        Ok(puts)
    }

    fn add(&mut self, put: Put, progress: &Progress) -> Result<(), SpillError> {
        let group = match put {
            Put::Chunk(group, record, is_new) => {
                progress.add(1);
                self.chunks_written += u64::from(is_new);
                self.open.entry(group).or_default().chunks.push(record);
                group
            }
            Put::End(group, chunks, distinct) => {
                self.open.entry(group).or_default().end = Some((chunks, distinct));
                group
            }
        };
        let open = &self.open[&group];
        if let Some((count, distinct)) = open.end
            && count == open.chunks.len()
        {
            let chunks = self.open.remove(&group).unwrap_or_default().chunks;
            let group = Group { group, distinct, chunks };
            if let Some(journal) = &mut self.journal {
                journal.add(&group)?;
            }
            self.done.push(group);
        }
        Ok(())
    }

    fn end(self, plan: &Plan<'_>) -> Built {
        let mut manifest = ManifestBuilder::new(plan.filter, plan.target_fpr);
        let mut distinct = Distinct::default();
        for group in self.done {
            distinct = distinct.and(group.distinct);
            group.chunks.into_iter().for_each(|chunk| manifest.add_record(chunk));
        }
        Built { manifest, chunks_written: self.chunks_written, distinct }
    }
}

#[cfg(test)]
mod tests;
