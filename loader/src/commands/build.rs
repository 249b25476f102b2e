//! `build` command: reads id exports and publishes a new generation.
//!
//! The live generation is recorded before the input is read. The store is written to only after
//! all input was read and passed the gate (`gate.rs`). A build that fails, or that loses to
//! another publisher, changes nothing. The bytes of the chunks depend on the set of keys only.

mod chunks;
mod disk_space;
mod error;
mod memory_args;
mod publish;
mod report;
mod stages;

use std::ffi::OsString;

use clap::Args;

use rtad_cli::command_error::CommandError;
use rtad_cli::{SignArgs, TrustArgs};
use rtad_core::device::DeviceKey;
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::{Lineage, shards_per_chunk};
use rtad_store::write::{Base, StoreWriter};
use tokio::runtime::Runtime;

use super::carried::{Carried, CarriedArgs};
use super::context::{Output, Target, runtime};
use super::error::CommonError;
use super::expiry_args::ExpiryArgs;
use super::gate::{Gate, GateArgs};
use super::input_args::InputArgs;
use super::input_report;
use super::lineage_args::LineageArgs;
use super::overlap::LiveSample;
use super::reject_args::RejectArgs;
use super::skew::Skew;
use super::stage_args::StageArgs;
use super::value_parsers::parse_column;
use crate::input::{self, Batches, Counts, Input, KeySink, PrivateFile};
use crate::keys::{Budget, Filler, Keys, Slab, SpillDir, appended_values};
use crate::merged_deltas::MergedDeltas;
use crate::progress::Progress;
use error::BuildError;
use memory_args::MemoryArgs;
use publish::{BuildPlan, ChunkSink};
use report::{BuildSummary, Changes, Finished};
use stages::Stages;

/// Build an audience from exports of device ids and publish it.
///
/// Rows without a usable id are counted by reason and skipped: `blank` values mean "no id",
/// `malformed` ones do not fit their kind. Duplicates are harmless. Files in .gz and .zst are
/// detected by content.
///
/// Keys stay in memory while they fit --memory. Beyond that they are spilled to unnamed files in
/// TMPDIR, or /tmp: 16 bytes per usable id, duplicates included.
///
/// Devices appended or removed since the previous build stay so, whatever the input contains. About
/// changes from before the previous build the input decides: the report counts those that it
/// undoes, --keep-carried carries them on. Devices with a tombstone are left out. Deltas appended
/// during the build apply to the new generation. An audience of appended devices alone is built by
/// --keep-carried --allow-empty of an empty input.
///
/// The same set of ids gives byte-identical chunks. Input order, duplicates, threads and memory
/// have no effect.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct BuildArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    trust: TrustArgs,
    #[command(flatten)]
    input: InputArgs,
    /// Target false-positive rate of the filters, a fraction
    #[arg(long, value_name = "P", default_value_t = 0.0001)]
    fpr: f64,
    /// Kind of filter: block512 (one cache line per lookup), ribbon (two fifths smaller; built a
    /// quarter as fast; rates from 1.6e-5 to 2.5e-4)
    #[arg(long, value_name = "KIND", default_value = "block512")]
    filter: FilterKind,
    /// csv, ndjson, parquet: the column with the devices' value, a whole number from 0 to 15, which
    /// needs --filter ribbon. Rows without one are rejected as `value`, which counts towards
    /// --max-reject-ratio. A device with several has the largest
    #[arg(long, value_name = "COLUMN", value_parser = parse_column)]
    value: Option<String>,
    #[command(flatten)]
    rejects: RejectArgs,
    /// Accept inputs of blank values only, and publish even without any usable id; over a
    /// generation with keys this also needs --max-change any
    #[arg(long)]
    allow_empty: bool,
    #[command(flatten)]
    memory: MemoryArgs,
    #[command(flatten)]
    gate: GateArgs,
    #[command(flatten)]
    carried: CarriedArgs,
    #[command(flatten)]
    sign: SignArgs,
    #[command(flatten)]
    expiry: ExpiryArgs,
    #[command(flatten)]
    stage: StageArgs,
    #[command(flatten)]
    lineage: LineageArgs,
    /// Publish nothing unless the audience has a live generation: for a nightly job, whose mistyped
    /// --store or --audience would begin a new one
    #[arg(long)]
    require_live: bool,
    /// Read and build, but write nothing to the store
    #[arg(long)]
    dry_run: bool,
    /// Paths, folders, globs, `-` for stdin, or URLs: an object or a prefix/ in s3://, gs://,
    /// az://, oss:// or cos://, a file at https:// or http://
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<OsString>,
}

impl BuildArgs {
    pub fn set_batches(&mut self, batches: Batches) {
        self.input.set_batches(batches);
    }
}

pub fn run(args: BuildArgs, output: &Output) -> Result<(), CommandError> {
    let dir = SpillDir::temporary();
    let mut build = Prepared::new(&args, &dir)?;
    let mut stages = Stages::begin(&build.budget);
    let progress = output.progress();

    progress.phase("reading rows");
    let mut slab =
        Slab::of(build.budget.segments()).map_err(|source| BuildError::NoMemory { source })?;
    let keys = Keys::new(&mut slab, &build.budget, &dir);
    let (counts, lineage) = build.read_keys(&args, &keys, &progress)?;
    stages.read();

    let Prepared {
        filter,
        writer,
        budget,
        runtime,
        base,
        gate,
        live,
        merged,
        carried,
        ..
    } = &build;
    let columns = input_report::columns(&build.input.layout, &counts);
    let plan = BuildPlan {
        audience: &args.target.audience,
        filter: *filter,
        target_fpr: args.fpr,
        budget: *budget,
        counts,
        merged,
        carried: carried.as_ref(),
        gate,
        live: live.as_ref(),
        lineage,
        expiry: args.expiry,
        stage: args.stage.stage,
        runtime,
        progress: &progress,
        chunk_rule: shards_per_chunk as _,
    };
    let sink = || {
        if args.dry_run {
            return Ok(ChunkSink::Nowhere);
        }
        let publication = runtime.block_on(writer.publish(base.clone()))?;
        Ok(ChunkSink::Store(Box::new(publication)))
    };
    let done = if keys.fit(budget, |partitions| plan.largest_chunk(partitions)) {
        progress.phase("sorting keys");
        progress.expect(plan.counts.keys);
        let held_bytes = keys.held_bytes();
        let keys = keys.into_sorted(budget.threads(), plan.checks(), |keys| progress.add(keys));
        stages.sorted(0);
        plan.build_sorted(&keys, held_bytes, sink)?
    } else {
        let keys = keys.into_spilled()?;
        drop(slab);
        stages.sorted(keys.bytes());
        plan.build_spilled(&keys, sink)?
    };
    progress.clear();

    let audience = args.target.audience.as_str();
    Skew::of(&done.manifest).warn(audience);
    let carried = carried
        .as_ref()
        .map(|carried| carried.report(&done.distinct));
    if let Some(carried) = carried {
        carried.warn(audience);
    }

    let summary = BuildSummary::of(Finished {
        outcome: &done,
        counts: &plan.counts,
        columns,
        deltas: Changes {
            added: merged.added().len() as u64,
            removed: done.distinct.found - done.distinct.left,
        },
        carried,
        overlap: live
            .as_ref()
            .map(|live| live.overlap(done.distinct.in_live)),
        gate: gate.clone(),
        dry_run: args.dry_run,
        stage: args.stage.stage,
        signed: writer.signs() && !args.dry_run,
        stages: stages.end(),
    });
    output.report(&summary.headline(), &summary)
}

/// A build whose inputs, store and limits are checked, before any row is read.
struct Prepared {
    filter: FilterSpec,
    writer: StoreWriter,
    input: Input,
    budget: Budget,
    runtime: Runtime,
    base: Base,
    gate: Gate,
    /// `None` without a readable live generation.
    live: Option<LiveSample>,
    merged: MergedDeltas,
    /// `None` if they are unreadable.
    carried: Option<Carried>,
    rejects: Option<PrivateFile>,
}

impl Prepared {
    fn new(args: &BuildArgs, dir: &SpillDir) -> Result<Self, CommandError> {
        let filter = match args.value {
            Some(_) => FilterSpec::with_values_for_fpr(args.filter, args.fpr),
            None => FilterSpec::for_fpr(args.filter, args.fpr),
        };
        let filter = filter.map_err(CommonError::Fpr)?;
        let store = args.trust.applied_to(args.target.open()?)?;
        let mut writer = args.sign.writer(store, &args.trust)?;
        if !args.require_live {
            writer = writer.creating_store();
        }
        let input = args
            .input
            .resolve_with_value(&args.inputs, args.value.as_deref())?;
        let budget = args.memory.budget()?;
        let runtime = runtime()?;

        let base = runtime.block_on(args.gate.base(&writer, &args.target.audience))?;
        if args.require_live && base.with_generation().is_none() {
            return Err(CommonError::not_published(&args.target.audience));
        }
        if let Some(current) = base.with_generation() {
            let refused = CommonError::refuse_followed(writer.store(), base.audience(), current);
            runtime.block_on(refused)?;
        }

        let opened_gate = Gate::open(&args.gate, &filter, args.fpr, writer.store(), &base);
        let gate = runtime.block_on(opened_gate)?;
        let live = runtime.block_on(LiveSample::read(writer.store(), &base))?;
        let mut merged = runtime.block_on(MergedDeltas::read(writer.store(), &base))?;
        let is_kept = args.carried.keep_carried;
        let read_carried = Carried::read(is_kept, &mut merged, writer.store(), &base);
        let carried = runtime.block_on(read_carried)?;

        disk_space::check(&input, dir, &budget)?;
        let rejects = args.rejects.create(&input)?;
        Ok(Self {
            filter,
            writer,
            input,
            budget,
            runtime,
            base,
            gate,
            live,
            merged,
            carried,
            rejects,
        })
    }

    /// Reads the input, and the keys that deltas added, into `keys`.
    fn read_keys<'k>(
        &mut self,
        args: &BuildArgs,
        keys: &'k Keys<'_, 'k>,
        progress: &Progress,
    ) -> Result<(Counts, Lineage), CommandError> {
        let rejects = self.rejects.take();
        let mut fillers: Vec<_> = (0..self.budget.threads())
            .map(|_| Filler::new(keys))
            .collect();
        let read = input::read(&self.input, &mut fillers, rejects.as_ref(), progress);
        // A full disk ends reading early, which is not an error of the input.
        keys.check()?;
        let counts = read?;
        rejects.map_or(Ok(()), PrivateFile::finish)?;

        args.rejects.check(&self.input, &counts, args.allow_empty)?;
        let lineage = args.lineage.lineage(&self.input.sources, &counts);

        let counts = counts.total();
        if counts.keys == 0 && !args.allow_empty {
            return Err(CommonError::Empty { rows: counts.rows }.into());
        }

        let values = self
            .input
            .value
            .as_ref()
            .map(|_| appended_values(self.merged.values()));
        fillers[0].take(self.merged.added(), &values.unwrap_or_default());
        fillers.iter_mut().for_each(Filler::flush);
        drop(fillers);
        keys.check()?;
        Ok((counts, lineage))
    }
}

impl KeySink for Filler<'_, '_> {
    fn take(&mut self, keys: &[DeviceKey], values: &[u8]) {
        Filler::take(self, keys, values);
    }

    fn is_closed(&self) -> bool {
        Filler::is_closed(self)
    }
}
