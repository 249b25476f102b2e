//! `dedup` command: the first occurrence of each id, in input order, and the counts.
//!
//! One thread keeps the order. The memory of seen ids holds device keys (`seen.rs`).

mod first_seen;
mod lines;
mod report;

use std::collections::TryReserveError;
use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use indicatif::HumanCount;

use rtad_cli::command_error::CommandError;
use rtad_cli::exit::{self, CommandFailure, ExitStatus};

use super::context::Output;
use super::input_args::InputArgs;
use super::input_report::InputReport;
use super::reject_args::RejectLimit;
use super::value_parsers::parse_output_file;
use crate::input::{self, Layout, check_output};
use crate::seen::{Bloom, BloomSpec, SeenKeys, Tables};
use first_seen::FirstSeen;
use lines::LineKeys;
use report::DedupReport;

/// Write the first occurrence of each id, in input order, and report the counts.
///
/// Two ids are equal if their device keys are: an IDFA in lower case equals the same IDFA in upper
/// case. Lines are written as read; for formats with columns, the md5 of the id is written. With
/// --text, lines are any text and equal if their md5s are, so letter case and spaces count. Rows
/// without a usable id are counted and not written.
///
/// Exact by default, at about 23 bytes of memory per id (1.5 billion ids: 35 GB). With --bloom
/// memory is fixed, and a new id may count as seen, at the rate in the report; a seen id never
/// counts as new.
///
/// The report goes to stderr, or to stdout with --count; --json writes it as a JSON object.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct DedupArgs {
    #[command(flatten)]
    input: InputArgs,
    /// Compare lines of any text, up to 64 KiB each, instead of ids
    #[arg(long, conflicts_with_all = ["id_kind", "format", "case", "blanks"])]
    text: bool,
    #[command(flatten)]
    limit: RejectLimit,
    /// Write only the report
    #[arg(long)]
    count: bool,
    /// Use a Bloom filter; needs --expected, and --fpr or --bits-per-key with --hashes
    #[arg(long, requires = "expected")]
    bloom: bool,
    /// Number of distinct ids to size the filter for
    #[arg(long, value_name = "N", requires = "bloom")]
    expected: Option<NonZeroU32>,
    /// False-positive rate of the filter with --expected ids, a fraction
    #[arg(
        long,
        value_name = "P",
        default_value_t = 0.0001,
        value_parser = parse_fpr,
        requires = "bloom",
        conflicts_with_all = ["bits_per_key", "hashes"]
    )]
    fpr: f64,
    /// Size of the filter: m/n, 1 to 1000
    #[arg(long, value_name = "M", requires_all = ["bloom", "hashes"], value_parser = parse_bits)]
    bits_per_key: Option<u32>,
    /// Bits set per id: k, 1 to 30
    #[arg(long, value_name = "K", requires_all = ["bloom", "bits_per_key"],
        value_parser = clap::value_parser!(u32).range(1..=30))]
    hashes: Option<u32>,
    /// Write the report to FILE, as JSON
    #[arg(long, value_name = "FILE", value_parser = parse_output_file)]
    report: Option<PathBuf>,
    /// Paths, globs, or `-` for stdin
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<OsString>,
}

pub fn run(args: &DedupArgs, output: &Output) -> Result<(), CommandError> {
    let seen = args.memory()?;
    let input = args.input.resolve(&args.inputs)?;
    args.report
        .as_deref()
        .map_or(Ok(()), |report| check_output(report, &input.sources))?;
    let started = Instant::now();
    let progress = output.progress();
    progress.phase("reading rows");
    let mut first = FirstSeen::new(seen, !args.count);
    let counts = match (&input.layout, args.text) {
        (Layout::Lines { .. }, _) => {
            LineKeys::of(&input, args.text).read(&input.sources, &mut first, &progress)?
        }
        // One sink means one thread, which keeps the order of the rows.
        _ => input::read(&input, std::slice::from_mut(&mut first), None, &progress)?,
    };
    first.finish()?;
    drop(progress);
    let total = counts.total();
    let inputs = InputReport::of(&input, &counts);
    args.limit.warn_of_columns(inputs.columns());
    let report = DedupReport::new(
        (&total, inputs),
        &first.seen,
        first.first_seen,
        started.elapsed(),
    );
    let checked = args.limit.check(&input.sources, &counts, true);
    report.write_file(args.report.as_deref())?;
    // Of a failure, stdout has its own object.
    if checked.is_ok() || !(args.count && output.json) {
        report.write(args.count, output)?;
    }
    if let SeenKeys::Bloom(bloom) = &first.seen {
        warn_over_capacity(bloom);
    }
    Ok(checked?)
}

/// Warns of more ids than `--expected`.
fn warn_over_capacity(bloom: &Bloom) {
    let capacity = bloom.capacity();
    match bloom.distinct_keys() {
        Some(distinct) if distinct <= f64::from(capacity) => {}
        Some(distinct) => exit::write_warning(&format!(
            "about {} distinct ids, but the filter is sized for --expected {capacity}: more new \
             ids than at its rate counted as seen",
            HumanCount(distinct as u64)
        )),
        None => exit::write_warning(&format!(
            "more than eight times --expected {capacity} distinct ids: the filter is full, and \
             nearly every new id counted as seen"
        )),
    }
}

/// A failed deduplication.
#[derive(Debug, thiserror::Error)]
enum DedupError {
    #[error("out of memory for more ids; --bloom uses a fixed amount of memory")]
    Memory(#[source] TryReserveError),
}

impl CommandFailure for DedupError {
    fn exit(&self) -> ExitStatus {
        match self {
            Self::Memory(_) => ExitStatus::Unexpected,
        }
    }
}

impl DedupArgs {
    /// Whether stdout is for ids, not for the report.
    pub const fn writes_ids(&self) -> bool {
        !self.count
    }

    fn memory(&self) -> Result<SeenKeys, CommandError> {
        let (true, Some(expected)) = (self.bloom, self.expected) else {
            return Ok(SeenKeys::Exact(Tables::default()));
        };
        let spec = match (self.hashes, self.bits_per_key) {
            (Some(hashes), Some(millibits_per_key)) => BloomSpec {
                hashes,
                millibits_per_key,
            },
            _ => BloomSpec::for_fpr(self.fpr),
        };
        Ok(SeenKeys::Bloom(
            Bloom::new(spec, expected.get()).map_err(DedupError::Memory)?,
        ))
    }
}

fn parse_fpr(text: &str) -> Result<f64, &'static str> {
    let fpr = text
        .parse::<f64>()
        .ok()
        .filter(|fpr| (1e-7..=0.1).contains(fpr));
    fpr.ok_or("accepted: a fraction from 1e-7 to 0.1")
}

/// Bits per key, in thousandths.
fn parse_bits(text: &str) -> Result<u32, &'static str> {
    let bits = text
        .parse::<f64>()
        .ok()
        .filter(|bits| (1.0..=1000.0).contains(bits));
    bits.map(|bits| (bits * 1000.0).round() as u32)
        .ok_or("accepted: a number from 1 to 1000")
}
