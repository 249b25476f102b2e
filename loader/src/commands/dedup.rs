//! `dedup` command: the first occurrence of each id, in input order, and the counts.
//!
//! One thread keeps the order, and a set in memory has the device keys of all ids so far.

mod first_seen;
mod report;

use std::collections::TryReserveError;
use std::ffi::OsString;

use clap::Args;

use rtad_cli::command_error::CommandError;
use rtad_cli::exit::{CommandFailure, ExitStatus};
use rtad_core::device::{DeviceKey, Reading, Unusable};

use super::context::Output;
use super::input_args::InputArgs;
use super::input_report::InputReport;
use super::reject_args::RejectLimit;
use crate::input::{
    self, Counts, Input, InputCounts, Kinds, Layout, Reason, Source, each_line, expect,
};
use crate::progress::Progress;
use first_seen::FirstSeen;
use report::DedupReport;

/// Longest line; longer ones are malformed.
const MAX_LINE_BYTES: usize = 64 << 10;
/// Rows between two updates of the progress.
const ROWS_PER_UPDATE: u64 = 1 << 16;

/// Write the first occurrence of each id, in input order, and report the counts.
///
/// Two ids are equal if their device keys are: an IDFA in lower case equals the same IDFA in upper
/// case. Lines are written as read; for formats with columns, the md5 of the id is written. Rows
/// without a usable id are counted and not written.
///
/// Takes 20 to 39 bytes of memory per distinct id, and half as much again while it grows. To count
/// more ids than memory holds, use `rtad-loader build --dry-run`.
///
/// The report goes to stderr. With --json it goes to stdout, in place of the ids.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct DedupArgs {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    limit: RejectLimit,
    /// Paths, globs, or `-` for stdin
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<OsString>,
}

/// A failed deduplication.
#[derive(Debug, thiserror::Error)]
enum DedupError {
    #[error(
        "out of memory after {ids} distinct ids: `rtad-loader build --dry-run` counts them in \
         bounded memory"
    )]
    Memory {
        ids: usize,
        #[source]
        source: TryReserveError,
    },
}

impl CommandFailure for DedupError {
    fn exit(&self) -> ExitStatus {
        match self {
            Self::Memory { .. } => ExitStatus::Unexpected,
        }
    }
}

pub fn run(args: &DedupArgs, output: &Output) -> Result<(), CommandError> {
    let input = args.input.resolve(&args.inputs)?;
    let progress = output.progress();
    progress.phase("reading rows");

    let mut first = FirstSeen::new(!output.json);
    let counts = if let Layout::Lines { kinds } = &input.layout {
        read_lines(&input, kinds, &mut first, &progress)?
    } else {
        // One sink means one thread, which keeps the order of the rows.
        input::read(&input, std::slice::from_mut(&mut first), None, &progress)?
    };
    first.finish()?;
    drop(progress);

    let inputs = InputReport::of(&input, &counts);
    let report = DedupReport::new(&counts.total(), inputs, first.first_seen());
    let checked = args.limit.check(&input, &counts, true);

    // Of a failure, stdout has its own object.
    if checked.is_ok() || !output.json {
        report.write(output)?;
    }
    Ok(checked?)
}

/// Passes each new line on as it was read. The parsers of `input` give keys only.
fn read_lines(
    input: &Input,
    kinds: &Kinds,
    first: &mut FirstSeen,
    progress: &Progress,
) -> Result<InputCounts, CommandError> {
    let mut counts = InputCounts::new(input.sources.len());
    expect(progress, &input.sources);
    for (index, source) in input.sources.iter().enumerate() {
        let source_counts = read_source(input, kinds, source, first, progress)?;
        counts.add_to(index, &source_counts);
    }
    Ok(counts)
}

fn read_source(
    input: &Input,
    kinds: &Kinds,
    source: &Source,
    first: &mut FirstSeen,
    progress: &Progress,
) -> Result<Counts, CommandError> {
    let mut counts = Counts::default();
    let mut keys = Vec::new();

    each_line(source, progress.bytes(), |text| {
        keys.clear();
        match keys_of_line(input, kinds, text, &mut keys) {
            Ok(()) => {
                counts.accept(kinds.reading(text).kind, None, text);
                first.take_line(text, &keys);
            }
            Err(reason) => counts.reject(reason, None, text),
        }

        counts.rows += 1;
        counts.values += 1;
        counts.keys += keys.len() as u64;
        if counts.rows.is_multiple_of(ROWS_PER_UPDATE) {
            progress.add(ROWS_PER_UPDATE);
        }
        !first.has_failed()
    })?;
    Ok(counts)
}

fn keys_of_line(
    input: &Input,
    kinds: &Kinds,
    text: &[u8],
    keys: &mut Vec<DeviceKey>,
) -> Result<(), Reason> {
    if text.len() > MAX_LINE_BYTES {
        return Err(Reason::TooLong);
    }
    let Reading { kind, case } = kinds.reading(text);
    let case = input.case.unwrap_or(case);
    input
        .keys
        .keys(kind, case, text, keys)
        .map_err(|unusable| match unusable {
            Unusable::Blank => Reason::Blank,
            Unusable::Malformed => Reason::Malformed,
        })
}
