//! `build`: dumps in, a new generation out.
//!
//! What is live is noted before the input is read, and the store is written to only when all input was read
//! and found good enough (`gate.rs`): a build that fails, or that comes second, changes nothing. The bytes of the chunks
//! depend on the set of keys only.

mod gate;
mod publish;
mod report;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;

use rtad::filter::{FilterKind, FilterSpec};
use rtad::store::Store;

use super::input_args::InputArgs;
use super::{CommandError, Output, Target, UsageError, runtime};
use crate::input::{self, Counts, Rejects};
use crate::partition::Partitions;
use crate::sign::Signer;
pub(crate) use gate::GateError;
use gate::{Gate, GateArgs};
use publish::Plan;
use report::BuildSummary;

/// Build an audience from dumps of device ids and publish it.
///
/// Reads files, globs and stdin (`-`); .gz and .zst are told by content. Rows without a usable id are counted
/// by reason and left out: `blank` ones say "no id" (empty, zeros, null, an unexpanded macro, or the md5 of
/// one), `malformed` ones cannot be of their kind. Only malformed ones count towards --max-reject-ratio, as
/// exports with many empty ids are normal. A line longer than 64 KiB is one malformed row. Duplicates are
/// harmless.
///
/// All keys are held in memory: 16 bytes per usable id (duplicates included), and some 200 MB besides; 1.8 GB
/// were measured for 100 million.
///
/// The same set of ids gives byte-identical chunks, whatever the order of the input, its duplicates or the
/// number of threads.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct BuildArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    input: InputArgs,
    /// False-positive rate to size the filters for, a fraction
    #[arg(long, value_name = "P", default_value_t = 0.0001)]
    fpr: f64,
    /// Kind of filter: block512 (one cache line per look-up, any size), classic (an eighth smaller, from 328 million
    /// keys on at the default rate)
    #[arg(long, value_name = "KIND", default_value = "block512")]
    filter: FilterKind,
    /// Keep rows without a usable id in FILE: input, line, reason, text (its first KiB), separated by tabs;
    /// readable by its owner only; written in a dry run too
    #[arg(long, value_name = "FILE")]
    rejects: Option<PathBuf>,
    /// Publish nothing if more than this fraction of the values is malformed; blank ones do not count
    #[arg(long, value_name = "RATIO", default_value_t = 0.01, value_parser = parse_ratio)]
    max_reject_ratio: f64,
    /// Publish even if there is no usable id at all; over a generation that has keys also needs --max-shrink 1
    #[arg(long)]
    allow_empty: bool,
    #[command(flatten)]
    gate: GateArgs,
    /// Sign what is published with this secret key of minisign; its password, if it has one, is read from the environment
    /// variable RTAD_SIGN_PASSWORD
    #[arg(long, value_name = "FILE")]
    sign_key: Option<PathBuf>,
    /// Read and build all the same, but write nothing to the store
    #[arg(long)]
    dry_run: bool,
    /// Paths, globs, or `-` for stdin
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<OsString>,
}

pub(super) fn run(args: BuildArgs, output: &Output) -> Result<(), CommandError> {
    let filter = FilterSpec::for_fpr(args.filter, args.fpr).map_err(UsageError::Fpr)?;
    let store = signing(&args)?;
    let input = args.input.resolve(&args.inputs)?;
    let threads = args.input.threads();
    let runtime = runtime()?;
    let base = runtime.block_on(store.base(&args.target.audience))?;
    let gate = runtime.block_on(Gate::open(&args.gate, &filter, args.fpr, &store, &base))?;
    let rejects = args.rejects.as_deref().map(|path| Rejects::create(path, &input.sources)).transpose()?;

    let started = Instant::now();
    let progress = output.progress();
    progress.phase("reading rows");
    let mut parsers: Vec<_> = (0..threads).map(|_| Partitions::default()).collect();
    let counts = input::read(&input, &mut parsers, rejects.as_ref(), &progress)?;
    rejects.map_or(Ok(()), Rejects::finish)?;
    check(&args, &counts)?;
    let read_seconds = started.elapsed().as_secs_f64();

    progress.phase("sorting keys");
    let mut keys = Partitions::merge(parsers);
    let distinct = keys.sort_and_dedup(threads, |keys| progress.add(keys));
    let min_keys = FilterSpec::min_keys(args.filter, args.fpr);
    if distinct > 0 && distinct < min_keys {
        return Err(UsageError::TooFewKeys { fpr: args.fpr, keys: distinct, min_keys }.into());
    }
    gate.check_keys(distinct)?;
    let plan = Plan { filter, target_fpr: args.fpr, keys: distinct, counts, threads, gate };
    progress.phase("building chunks");
    let done = match args.dry_run {
        true => {
            let done = plan.pretend(&mut keys, &args.target.audience, &progress);
            gate.check(&done.manifest)?;
            done
        }
        false => plan.publish(&mut keys, &store, base, &runtime, &progress)?,
    };
    drop(progress);
    let seconds = (read_seconds, started.elapsed().as_secs_f64());
    output.report(&BuildSummary::new(&done, &counts, gate, args.dry_run, seconds), BuildSummary::write_text)
}

/// The store, with the signer if there is one. A key that does not fit ends this here, not after an hour of reading.
fn signing(args: &BuildArgs) -> Result<Store, CommandError> {
    let store = args.target.open()?;
    let Some(key) = &args.sign_key else {
        return if args.target.trust.is_given() { Err(UsageError::Unsigned.into()) } else { Ok(store) };
    };
    let store = store.with_signer(Signer::read(key)?);
    store.check_signer()?;
    Ok(store)
}

/// Whether what was read may be published.
fn check(args: &BuildArgs, counts: &Counts) -> Result<(), CommandError> {
    let (malformed, values, max_ratio) = (counts.malformed(), counts.values, args.max_reject_ratio);
    if malformed as f64 > max_ratio * values as f64 {
        return Err(CommandError::TooManyRejects { malformed, values, max_ratio });
    }
    if counts.keys == 0 && !args.allow_empty {
        return Err(CommandError::Empty { rows: counts.rows });
    }
    Ok(())
}

fn parse_ratio(text: &str) -> Result<f64, &'static str> {
    let ratio = text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or("accepted: a fraction from 0 to 1")
}
