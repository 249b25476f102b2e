//! `dedup`: each id at its first occurrence, in input order, and their number.
//!
//! One thread reads and decides, to keep the order. `seen.rs` stores one device key per id.

mod first;
mod lines;
mod report;

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;

use rtad_core::filter::{FilterKind, FilterSpec};

use super::context::Output;
use super::error::{CommandError, UsageError};
use super::input_args::InputArgs;
use crate::input::{self, Layout};
use crate::seen::{Bloom, Seen, Tables};
use first::First;
use lines::LineKeys;
use report::DedupReport;

/// Write each id at its first occurrence, in input order, and report their number.
///
/// Ids with one device key are equal: an IDFA in lower case equals the same in upper case. The
/// output is
/// the id as read; for --format csv and other formats with columns, the md5 of the id. With --text,
/// lines
/// are any text, compared by their md5. Rows without a usable id are counted, and not written.
///
/// Exact by default: about 23 bytes of memory per id (35 GB for 1.5 billion). With --bloom, memory
/// is
/// fixed, and a new id may count as seen, as often as the report estimates; never the reverse.
///
/// The report goes to stderr, or with --count to stdout; --json makes it a JSON object.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct DedupArgs {
    #[command(flatten)]
    input: InputArgs,
    /// Read lines of any text, up to 64 KiB, instead of ids
    #[arg(long, conflicts_with_all = ["id_kind", "format", "case", "blanks"])]
    text: bool,
    /// Write the report only
    #[arg(long)]
    count: bool,
    /// Use a Bloom filter; takes --expected, and --fpr or --bits-per-key with --hashes
    #[arg(long, requires = "expected")]
    bloom: bool,
    /// Distinct ids that the filter is sized for
    #[arg(long, value_name = "N", requires = "bloom")]
    expected: Option<NonZeroU32>,
    /// False-positive rate of the filter with --expected ids, a fraction
    #[arg(long, value_name = "P", default_value_t = 0.0001, requires = "bloom", conflicts_with_all = ["bits_per_key", "hashes"])]
    fpr: f64,
    /// Size of the filter: m/n, 1 to 1000
    #[arg(long, value_name = "M", requires_all = ["bloom", "hashes"], value_parser = parse_bits)]
    bits_per_key: Option<u32>,
    /// Bits set per id: k, 1 to 30
    #[arg(long, value_name = "K", requires_all = ["bloom", "bits_per_key"])]
    hashes: Option<u32>,
    /// Write the report to FILE, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Paths, globs, or `-` for stdin
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<OsString>,
}

pub(super) fn run(args: &DedupArgs, output: &Output) -> Result<(), CommandError> {
    let seen = args.memory()?;
    let input = args.input.resolve(&args.inputs)?;
    let started = Instant::now();
    let progress = output.progress();
    progress.phase("reading rows");
    let mut first = First::new(seen, !args.count);
    let counts = match (&input.layout, args.text) {
        (Layout::Lines { .. }, _) => {
            LineKeys::of(&input, args.text).read(&input.sources, &mut first, &progress)?
        }
        // One sink means one thread, which keeps the order.
        _ => input::read(&input, std::slice::from_mut(&mut first), None, &progress)?,
    };
    first.finish()?;
    drop(progress);
    let report = DedupReport::new(&counts, &first.seen, first.first_seen, started.elapsed());
    report.give(args.report.as_deref(), args.count, output)
}

impl DedupArgs {
    fn memory(&self) -> Result<Seen, CommandError> {
        let (true, Some(expected)) = (self.bloom, self.expected) else {
            return Ok(Seen::Exact(Tables::default()));
        };
        let spec = match (self.hashes, self.bits_per_key) {
            (Some(hashes), Some(millibits)) => {
                FilterSpec::new(FilterKind::Classic, hashes, millibits)
            }
            _ => FilterSpec::for_fpr(FilterKind::Classic, self.fpr),
        };
        let spec = spec.map_err(UsageError::Fpr)?;
        Ok(Seen::Bloom(Bloom::new(spec, expected.get()).map_err(CommandError::Memory)?))
    }
}

/// In thousandths.
fn parse_bits(text: &str) -> Result<u32, &'static str> {
    let bits = text.parse::<f64>().ok().filter(|bits| (1.0..=1000.0).contains(bits));
    bits.map(|bits| (bits * 1000.0).round() as u32).ok_or("accepted: a number from 1 to 1000")
}
