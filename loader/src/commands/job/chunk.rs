//! `chunk` command: builds a chunk from device keys and stores it.
//!
//! Retries and concurrent runs are safe: equal keys give equal bytes under the same name.

use std::io::{self, Write};

use clap::Args;
use serde::Serialize;

use rtad_cli::command_error::CommandError;
use rtad_core::device::{DeviceKey, SHARDS};
use rtad_core::filter::FilterSpec;
use rtad_core::snapshot::{BuiltChunk, ChunkRecord, shards_per_chunk};
use rtad_store::write::StoreWriter;

use super::super::context::{Output, runtime};
use super::super::overlap::LiveSample;
use super::distinct::sort_distinct;
use super::error::JobError;
use super::lines::{ChunkLine, ReportLine};
use super::spec::Job;
use crate::frames::{self, FrameContent};
use crate::keys::ShardFilters as _;

/// Bytes per read: a whole number of keys.
const PIECE_BYTES: usize = 1 << 20;

/// Build one chunk and store it under its digest: a step of a distributed build.
///
/// Reads the device keys of the chunk from stdin: 16 bytes each, back to back, in any order,
/// duplicates allowed. Writes one line of JSON for `rtad-loader publish`, or nothing without keys.
/// Chunk boundaries depend on --keys and the filters only; --cut prints them. Takes 16 bytes per
/// key, and the chunk (about 16 MiB) twice: 150 MB without duplicates.
///
/// Retries and concurrent runs are safe. Stored chunks take effect only with `rtad-loader publish`.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct ChunkArgs {
    /// Store of the snapshots, as in `rtad-loader build`
    #[arg(long, value_name = "URL", required_unless_present = "cut")]
    store: Option<String>,
    /// Output of `rtad-loader begin`: the JSON itself, or a file with it
    #[arg(long, value_name = "JOB|FILE", value_parser = Job::parse)]
    job: Job,
    /// Distinct keys of the audience: the sum of `keys` over all reports of `rtad-loader distinct`
    #[arg(long, value_name = "TOTAL")]
    keys: u64,
    /// Read frames of `rtad-loader distinct` for any number of chunks; build each and write a line
    /// for each
    #[arg(long)]
    frames: bool,
    /// Read nothing; print the number of neighboring shards per chunk and the maximum number of
    /// chunks
    #[arg(long, conflicts_with = "frames")]
    cut: bool,
}

/// The JSON object of `chunk --cut`.
#[derive(Debug, Serialize)]
struct ChunkLayout {
    shards_per_chunk: u32,
    chunks: u32,
}

pub fn run(args: &ChunkArgs, output: &Output) -> Result<(), CommandError> {
    let filter = args.job.filter();
    let shards_per_chunk = shards_per_chunk(&filter, args.keys);
    let (true, Some(url)) = (!args.cut, &args.store) else {
        let cut = ChunkLayout {
            shards_per_chunk,
            chunks: SHARDS as u32 / shards_per_chunk,
        };
        return output.step_data(&cut);
    };
    let (store, runtime) = (StoreWriter::open(url)?, runtime()?);
    let live = runtime.block_on(LiveSample::read(store.store(), &args.job.base(), false))?;
    let builder = Builder {
        store,
        runtime,
        live,
        filter,
        shards_per_chunk,
        args,
    };
    if args.frames {
        builder.all()
    } else {
        builder.one()
    }
}

struct Builder<'a> {
    store: StoreWriter,
    runtime: tokio::runtime::Runtime,
    live: Option<LiveSample>,
    filter: FilterSpec,
    shards_per_chunk: u32,
    args: &'a ChunkArgs,
}

impl Builder<'_> {
    /// Builds the chunk of all keys on stdin.
    fn one(&self) -> Result<(), CommandError> {
        let (mut stdin, mut piece) = (io::stdin().lock(), vec![0; PIECE_BYTES]);
        let mut keys = Vec::new();
        loop {
            let filled = frames::fill(&mut stdin, &mut piece).map_err(JobError::Stdin)?;
            let (whole, rest) = piece[..filled].as_chunks::<16>();
            keys.extend(whole.iter().map(|key| DeviceKey::from_bytes(*key)));
            if !rest.is_empty() {
                return Err(JobError::TruncatedKey {
                    bytes: (keys.len() * 16 + rest.len()) as u64,
                }
                .into());
            }
            if filled == 0 {
                break;
            }
        }
        sort_distinct(&mut keys);
        let (Some(first), Some(last)) = (keys.first(), keys.last()) else {
            return Ok(());
        };
        let (one, other) = (self.chunk_of(first), self.chunk_of(last));
        if one != other {
            let shards_per_chunk = self.shards_per_chunk;
            return Err(JobError::TwoChunks {
                one,
                other,
                shards_per_chunk,
            }
            .into());
        }
        self.build(&keys)
    }

    /// Builds chunk after chunk from frames in bucket order.
    fn all(&self) -> Result<(), CommandError> {
        let (mut keys, mut built) = (Vec::<DeviceKey>::new(), Ok(()));
        frames::read("stdin", io::stdin().lock(), |_, content, found| {
            if built.is_err() {
                return;
            }
            let is_next =
                keys.last().is_none_or(|last| *last < found[0]) && found.is_sorted_by(|a, b| a < b);
            if content != FrameContent::Ids || !is_next {
                built = Err(JobError::NotDistinct.into());
                return;
            }
            if keys
                .first()
                .is_some_and(|first| self.chunk_of(first) != self.chunk_of(&found[0]))
            {
                built = self.build(&keys);
                keys.clear();
            }
            keys.extend_from_slice(found);
        })?;
        built?;
        if keys.is_empty() {
            Ok(())
        } else {
            self.build(&keys)
        }
    }

    fn chunk_of(&self, key: &DeviceKey) -> u32 {
        u32::from(key.shard()) / self.shards_per_chunk
    }

    fn build(&self, keys: &[DeviceKey]) -> Result<(), CommandError> {
        let (found, all) = (keys.len() as u64, self.args.keys);
        if found > all {
            return Err(JobError::TooManyKeys { found, keys: all }.into());
        }
        let chunk = BuiltChunk::build(&self.filter, keys);
        let ChunkRecord { entry, stats } = chunk.record();
        let job = &self.args.job;
        let written = self
            .runtime
            .block_on(self.store.put_chunk_ahead(&job.audience, chunk))?;
        let in_live = self.live.as_ref().map(|live| {
            let shards = keys.chunk_by(|a, b| a.shard() == b.shard());
            shards
                .map(|keys| live.filters.count(&mut keys.iter().copied()))
                .sum()
        });
        let (job, keys) = (job.id(), all);
        let line = ReportLine::Chunk(ChunkLine {
            job,
            keys,
            entry,
            stats,
            written,
            in_live,
        });
        let mut text = serde_json::to_vec(&line).expect("plain fields");
        text.push(b'\n');
        let mut out = io::stdout().lock();
        out.write_all(&text)
            .and_then(|()| out.flush())
            .map_err(CommandError::data_output)
    }
}
