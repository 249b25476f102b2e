//! `chunk` command: builds and stores the chunks of one part from its sorted keys.
//!
//! Retries and concurrent runs are safe: equal keys give equal bytes under the same name.

use std::io::{self, BufReader};

use clap::Args;

use rtad_cli::command_error::CommandError;
use rtad_core::device::DeviceKey;
use rtad_core::filter::FilterSpec;
use rtad_core::snapshot::{AudienceName, BuiltChunk, CHUNK_BYTES, MAX_SHARDS_PER_CHUNK};
use rtad_store::write::StoreWriter;
use tokio::runtime::Runtime;

use super::super::carried::{Carried, CarriedReport};
use super::super::context::{Output, runtime};
use super::super::overlap::LiveSample;
use super::key_stream::KeyStream;
use super::lines::{ChunkLine, PartLine, ReportLine};
use super::part::Part;
use super::spec::Job;
use crate::keys::ShardFilters as _;
use crate::merged_deltas::{CarriedChanges, MergedDeltas};

const BUFFER_BYTES: usize = 1 << 20;

/// Build and store the chunks of one part of an audience: a task of the Spark job.
///
/// Reads the device keys of the part from stdin: 16 bytes each, back to back, sorted, duplicates
/// allowed. Adds the keys that deltas added, and leaves out those that deltas and tombstones
/// removed. Writes one line of JSON for `rtad-loader publish`. Takes 32 bytes of memory per key in
/// deltas, and 150 MB.
///
/// Retries and concurrent runs are safe. Stored chunks take effect only with `rtad-loader publish`.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct ChunkArgs {
    /// Store of the snapshots, as in `rtad-loader build`
    #[arg(long, value_name = "URL")]
    store: String,
    /// First line of `rtad-loader publish`
    #[arg(long, value_name = "JSON", value_parser = Job::parse)]
    job: Job,
    /// Part of the audience: J (from 0) of N equal ranges of its shards, such as 3/256; N is a
    /// power of two up to 4096
    #[arg(long, value_name = "J/N")]
    part: Part,
}

pub fn run(args: &ChunkArgs, output: &Output) -> Result<(), CommandError> {
    let mut store = StoreWriter::open(&args.store)?;
    if args.job.base().current().is_none() {
        store = store.creating_store();
    }
    let runtime = runtime()?;
    let changes = runtime.block_on(Changes::read(args, &store))?;

    let mut line = changes.begin_line(args.part);
    let mut chunks = ChunkRun {
        store: &store,
        runtime: &runtime,
        audience: args.job.audience(),
        filter: args.job.filter(),
        keys: Vec::new(),
        filter_bytes: 0,
        written: Vec::new(),
    };

    let stdin = BufReader::with_capacity(BUFFER_BYTES, io::stdin().lock());
    let mut stream = KeyStream::new(stdin)?;
    let mut keys = Vec::new();
    for shard in args.part.shards() {
        let shard = u16::try_from(shard).expect("65,536 shards");
        line.read += stream.read_shard(shard, &mut keys)?;
        changes.apply(shard, &mut keys, &mut line);
        chunks.add_shard(&keys)?;
    }
    stream.check_end()?;
    chunks.close()?;

    line.chunks = chunks.written;
    output.step_data(&ReportLine::Chunks(line))
}

/// The store's view of a part: changes by deltas, and a sample of the live filters.
struct Changes {
    merged: MergedDeltas,
    /// `None` if they are unreadable.
    carried: Option<Carried>,
    /// `None` without a readable live generation.
    live: Option<LiveSample>,
}

impl Changes {
    async fn read(args: &ChunkArgs, store: &StoreWriter) -> Result<Self, CommandError> {
        let store = store.store();
        let base = args.job.base();
        let mut merged = MergedDeltas::read(store, &base).await?;
        let carried = Carried::read(args.job.keeps_carried(), &mut merged, store, &base).await?;
        let live = LiveSample::read_shards(store, &base, args.part.shards()).await?;
        Ok(Self {
            merged,
            carried,
            live,
        })
    }

    /// The report of a part before any key is read.
    fn begin_line(&self, part: Part) -> PartLine {
        let removed = self.merged.removed().map(|removed| removed.to_vec());
        let carried = self.carried.as_ref().map(|carried| {
            let CarriedChanges { added, removed, .. } = carried.changes();
            let added = part.count(added);
            CarriedReport {
                added,
                removed: part.count(removed),
                // Those that the input has are taken off.
                dropped: added,
                ..CarriedReport::default()
            }
        });

        PartLine {
            part: part.index,
            parts: part.parts,
            added: part.count(self.merged.added()),
            removed: part.count(removed.as_deref().unwrap_or_default()),
            carried,
            in_live: self.live.as_ref().map(|_| 0),
            ..PartLine::default()
        }
    }

    /// Applies the deltas to the sorted, distinct keys of a shard, and counts them.
    fn apply(&self, shard: u16, keys: &mut Vec<DeviceKey>, line: &mut PartLine) {
        let added = of_shard(self.merged.added(), shard);
        if !added.is_empty() {
            keys.extend_from_slice(added);
            keys.sort_unstable();
            keys.dedup();
        }
        line.found += keys.len() as u64;

        if let Some(removed) = self.merged.removed() {
            keys.retain(|key| !removed.contains(key));
        }
        line.keys += keys.len() as u64;

        if let (Some(carried), Some(report)) = (&self.carried, &mut line.carried) {
            let CarriedChanges { added, removed, .. } = carried.changes();
            report.dropped -= members(of_shard(added, shard), keys);
            report.returned += members(of_shard(removed, shard), keys);
        }
        if let (Some(live), Some(in_live)) = (&self.live, &mut line.in_live) {
            *in_live += live.filters.count(&mut keys.iter().copied());
        }
    }
}

/// The index of the largest range of shards that a chunk may have.
const fn run_of(shard: u16) -> u32 {
    shard as u32 / MAX_SHARDS_PER_CHUNK
}

/// The keys of a shard among sorted keys.
fn of_shard(keys: &[DeviceKey], shard: u16) -> &[DeviceKey] {
    let start = keys.partition_point(|key| key.shard() < shard);
    let end = keys.partition_point(|key| key.shard() <= shard);
    &keys[start..end]
}

/// Number of keys that are among the sorted `keys`.
fn members(some: &[DeviceKey], keys: &[DeviceKey]) -> u64 {
    let mut count = 0;
    for key in some {
        count += u64::from(keys.binary_search(key).is_ok());
    }
    count
}

/// The chunks of a part, one after the other.
struct ChunkRun<'a> {
    store: &'a StoreWriter,
    runtime: &'a Runtime,
    audience: &'a AudienceName,
    filter: FilterSpec,
    /// Those of the open chunk.
    keys: Vec<DeviceKey>,
    filter_bytes: u64,
    written: Vec<ChunkLine>,
}

impl ChunkRun<'_> {
    /// Adds the sorted, distinct keys of the next shard.
    fn add_shard(&mut self, keys: &[DeviceKey]) -> Result<(), CommandError> {
        let Some(key) = keys.first() else {
            return Ok(());
        };
        let filter_bytes = self.filter.filter_bytes(keys.len() as u32);
        if self.is_full(key.shard(), filter_bytes) {
            self.close()?;
        }
        self.keys.extend_from_slice(keys);
        self.filter_bytes += filter_bytes;
        Ok(())
    }

    /// Whether the shard belongs to the next chunk. A chunk ends when it is full, not at a shard
    /// that follows from the number of all keys, as nobody knows that yet.
    fn is_full(&self, shard: u16, filter_bytes: u64) -> bool {
        let Some(first) = self.keys.first() else {
            return false;
        };
        self.filter_bytes + filter_bytes > CHUNK_BYTES || run_of(shard) != run_of(first.shard())
    }

    /// Builds and stores the open chunk, if it has keys.
    fn close(&mut self) -> Result<(), CommandError> {
        if self.keys.is_empty() {
            return Ok(());
        }
        let chunk = BuiltChunk::build(&self.filter, &self.keys);
        self.keys.clear();
        self.filter_bytes = 0;

        let record = chunk.record();
        let putting = self.store.put_chunk_ahead(self.audience, chunk);
        let put = self.runtime.block_on(putting)?;
        self.written.push(ChunkLine {
            record,
            written: put.is_written,
            renewed: put.is_renewed,
        });
        Ok(())
    }
}
