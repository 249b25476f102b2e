//! `keys`: device keys from ids, read as `build` does.

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::Mutex;

use clap::Args;

use rtad_core::device::DeviceKey;

use super::super::context::Output;
use super::super::error::CommandError;
use super::super::input_args::InputArgs;
use super::lines::{self, KeysLine, Line};
use crate::frames::{self, Content};
use crate::input::{self, Input, KeySink};

/// Keys that a thread collects before they are sorted and written: 32 MiB.
const BATCH_KEYS: usize = 2 << 20;

/// Turn device ids into device keys, on stdout: 16 bytes each, back to back; a step of a build on
/// many
/// machines.
///
/// Counts of rows, keys and rejects by reason go to stderr as one line of JSON, or to --report.
/// Memory is
/// bounded: with --frames about 40 MB and 33 MB per thread.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(in super::super) struct KeysArgs {
    #[command(flatten)]
    input: InputArgs,
    /// Write frames: a header of 8 bytes (u16 bucket, u16 0, u32 count, little-endian) and keys
    /// that begin with the bucket's 12 bits, sorted, each once per frame; for `rtad-loader
    /// distinct`
    #[arg(long)]
    frames: bool,
    /// File for the report, instead of stderr
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Paths, globs, or `-` for stdin
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<OsString>,
}

pub(in super::super) fn run(args: &KeysArgs, output: &Output) -> Result<(), CommandError> {
    let input = Input { is_part: true, ..args.input.resolve(&args.inputs)? };
    let progress = output.progress();
    progress.phase("reading rows");
    let out =
        Mutex::new(Out { file: BufWriter::with_capacity(1 << 20, io::stdout()), failed: None });
    let batch = if args.frames { BATCH_KEYS } else { 0 };
    let mut sinks: Vec<_> =
        (0..args.input.threads()).map(|_| Sink { out: &out, keys: Vec::new(), batch }).collect();
    let counts = input::read(&input, &mut sinks, None, &progress)?;
    sinks.iter_mut().for_each(Sink::flush);
    drop(progress);
    let mut out = out.into_inner().expect("nothing panics under this lock");
    let flushed = out.failed.take().map_or_else(|| out.file.flush(), Err);
    flushed.map_err(CommandError::Output)?;
    lines::report(&Line::Keys(KeysLine::of(&counts)), args.report.as_deref())
}

/// Stdout, shared by all threads.
struct Out {
    file: BufWriter<io::Stdout>,
    /// First write error, returned at the end.
    failed: Option<io::Error>,
}

/// Keys of one parser, until they are written.
struct Sink<'a> {
    out: &'a Mutex<Out>,
    keys: Vec<DeviceKey>,
    /// 0 writes them unsorted.
    batch: usize,
}

impl KeySink for Sink<'_> {
    fn take(&mut self, keys: &[DeviceKey]) {
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
        self.out.lock().expect("nothing panics under this lock").failed.is_some()
    }
}

impl Sink<'_> {
    fn flush(&mut self) {
        let mut keys = std::mem::take(&mut self.keys);
        keys.sort_unstable_by_key(|key| u128::from_be_bytes(*key.as_bytes()));
        keys.dedup();
        self.write(&keys);
        keys.clear();
        self.keys = keys;
    }

    fn write(&self, keys: &[DeviceKey]) {
        let mut out = self.out.lock().expect("nothing panics under this lock");
        if out.failed.is_some() {
            return;
        }
        let written = match self.batch {
            0 => keys.iter().try_for_each(|key| out.file.write_all(key.as_bytes())),
            _ => frames::write(&mut out.file, Content::Ids, keys),
        };
        out.failed = written.err();
    }
}
