//! `keys` command: converts ids to device keys with the readers of `build`.

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use clap::Args;
use parking_lot::Mutex;

use rtad_cli::command_error::CommandError;
use rtad_core::device::DeviceKey;

use super::super::context::Output;
use super::super::input_args::InputArgs;
use super::super::input_report;
use super::super::value_parsers::parse_output_file;
use super::distinct::sort_distinct;
use super::lines::{self, KeysLine, ReportLine};
use crate::frames::{self, FrameContent};
use crate::input::{self, Input, KeySink, check_output};

/// Keys per thread between sorted writes: 32 MiB.
const BATCH_KEYS: usize = 2 << 20;

/// Convert device ids to device keys on stdout, 16 bytes each, back to back: a step of a
/// distributed build.
///
/// The counts of rows, keys and rejected values by reason go to stderr as one line of JSON, or to
/// --report. Memory is independent of the input: with --frames about 40 MB, plus 33 MB per thread.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct KeysArgs {
    #[command(flatten)]
    input: InputArgs,
    /// Write frames for `rtad-loader distinct`: a header of 8 bytes (u16 bucket, u16 0, u32 count,
    /// little-endian), then the sorted, distinct keys that start with the 12 bits of the bucket
    #[arg(long)]
    frames: bool,
    /// Write the report to FILE instead of stderr
    #[arg(long, value_name = "FILE", value_parser = parse_output_file)]
    report: Option<PathBuf>,
    /// Paths, globs, or `-` for stdin
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<OsString>,
}

pub fn run(args: &KeysArgs, output: &Output) -> Result<(), CommandError> {
    let input = Input {
        is_part: true,
        ..args.input.resolve(&args.inputs)?
    };
    args.report
        .as_deref()
        .map_or(Ok(()), |report| check_output(report, &input.sources))?;
    let progress = output.progress();
    progress.phase("reading rows");
    let out = Mutex::new(SharedStdout {
        file: BufWriter::with_capacity(1 << 20, io::stdout()),
        failed: None,
    });
    let batch = if args.frames { BATCH_KEYS } else { 0 };
    let mut sinks: Vec<_> = (0..args.input.threads())
        .map(|_| KeyWriter {
            out: &out,
            keys: Vec::new(),
            batch,
        })
        .collect();
    let counts = input::read(&input, &mut sinks, None, &progress)?.total();
    let columns = input_report::columns(&input.layout, &counts);
    sinks.iter_mut().for_each(KeyWriter::flush);
    drop(progress);
    let mut out = out.into_inner();
    let flushed = out.failed.take().map_or_else(|| out.file.flush(), Err);
    flushed.map_err(CommandError::data_output)?;
    let absent = input::absent_members(&input, &counts)
        .map(str::to_owned)
        .collect();
    lines::report(
        &ReportLine::Keys(KeysLine::of(&counts, columns, absent)),
        args.report.as_deref(),
    )
}

/// Stdout, shared by all threads.
struct SharedStdout {
    file: BufWriter<io::Stdout>,
    /// First error, kept because parsers cannot return one.
    failed: Option<io::Error>,
}

/// Keys of one parser, until written.
struct KeyWriter<'a> {
    out: &'a Mutex<SharedStdout>,
    keys: Vec<DeviceKey>,
    /// Keys per sorted write; 0 writes keys unsorted and without frames.
    batch: usize,
}

impl KeySink for KeyWriter<'_> {
    fn take(&mut self, keys: &[DeviceKey], _values: &[u8]) {
        if self.batch == 0 {
            self.write(keys);
            return;
        }
        self.keys.reserve(keys.len().min(self.batch));
        for keys in keys.chunks(self.batch) {
            if self.keys.len() + keys.len() > self.batch {
                self.flush();
            }
            self.keys.extend_from_slice(keys);
        }
    }

    fn is_closed(&self) -> bool {
        self.out.lock().failed.is_some()
    }
}

impl KeyWriter<'_> {
    fn flush(&mut self) {
        let mut keys = std::mem::take(&mut self.keys);
        sort_distinct(&mut keys);
        self.write(&keys);
        keys.clear();
        self.keys = keys;
    }

    fn write(&self, keys: &[DeviceKey]) {
        let mut out = self.out.lock();
        if out.failed.is_some() {
            return;
        }
        let written = match self.batch {
            0 => keys
                .iter()
                .try_for_each(|key| out.file.write_all(key.as_bytes())),
            _ => frames::write(&mut out.file, FrameContent::Ids, keys),
        };
        out.failed = written.err();
    }
}
