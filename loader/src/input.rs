//! From dumps of device ids to device keys, on all cores.
//!
//! ```text
//! readers ── blocks of about 1 MiB, cut at row ends ──▶ parsers ── keys ──▶ one sink per parser
//! ```
//!
//! A row that gives no key is counted by its reason and never fatal: [`Counts`] says how many there were, the
//! caller decides what is too many. What cannot be read at all is an [`InputError`]. Memory is bounded by the
//! number of threads.
//!
//! Ids are personal data: the only place that a row's text goes to is the rejects file, which its owner asked
//! for.

mod cells;
mod csv;
mod lines;
mod member;
mod ndjson;
mod open;
mod parquet;
mod parser;
mod rejects;
mod remote;

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

use rtad_core::device::{Case, DeviceKey, IdKind, KeyMaker};
use rtad_store::StoreError;

pub(crate) use lines::lines;
pub(crate) use open::{Opened, Source, expand};
use parser::Parser;
pub(crate) use rejects::{Reason, RejectError, Rejects};

use crate::progress::Progress;

const BLOCK_BYTES: usize = 1 << 20;
/// A longer row is no id, nor a line of ids.
const MAX_ROW_BYTES: usize = 64 << 10;
/// More readers would only wait for the parsers.
const MAX_READERS: usize = 4;
/// What the number of the next source is set to when reading has failed.
const FAILED: usize = usize::MAX / 2;

/// An input that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum InputError {
    #[error("input {input}: there is no such file, and none matches it as a pattern")]
    Missing { input: String },
    #[error(
        "input {input}: {reason}; accepted: a path, a pattern, `-`, file:///path, s3://bucket/key, gs://bucket/key, \
         az://container/key, https://host/path or http://host/path"
    )]
    Url { input: String, reason: &'static str },
    #[error("input {input}: could not fetch it after byte {offset}")]
    Fetch { input: String, offset: u64, source: Box<StoreError> },
    #[error("input -: stdin can be read only once")]
    StdinTwice,
    #[error("input {input}: not a pattern")]
    Pattern { input: String, source: glob::PatternError },
    #[error("input {input}: could not open it")]
    Open { input: String, source: io::Error },
    #[error("input {input}: is a directory; name its files, as in {input}/*")]
    Directory { input: String },
    #[error("input {input}: could not read it after byte {offset}")]
    Read { input: String, offset: u64, source: io::Error },
    #[error("input {input}: {encoding} data is cut short or corrupt after {offset} bytes of text")]
    Corrupt { input: String, encoding: &'static str, offset: u64, source: io::Error },
    #[error("input {input}: has no column {column:?}; columns found: {found}")]
    Column { input: String, column: String, found: String },
    #[error("input {input}: has more than one column {column:?}")]
    ColumnTwice { input: String, column: String },
    #[error("input {input}: the row at line {line} does not end; is a quote left open?")]
    RowWithoutEnd { input: String, line: u64 },
    #[error(
        "no row of {rows} has a member {column:?}; device.idfa is a member of a member, device\\.idfa one whose name \
         has a dot"
    )]
    NoMember { column: String, rows: u64 },
    #[error("input {input}")]
    Parquet { input: String, source: parquet::Fault },
}

/// A column and the kind of id in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: IdKind,
}

/// How rows are told apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One id per line.
    Lines { kind: IdKind },
    /// A header row, then rows of cells.
    Csv { columns: Vec<Column>, delimiter: u8 },
    /// One JSON object per line.
    Ndjson { columns: Vec<Column> },
    /// Columns in row groups.
    Parquet { columns: Vec<Column> },
}

/// What is to be read, and how.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) sources: Vec<Source>,
    pub(crate) layout: Layout,
    /// Overrides the kinds' canonical case.
    pub(crate) case: Option<Case>,
    pub(crate) keys: KeyMaker,
    /// Other rows were read before, or are read elsewhere: what none of these has may be in those.
    pub(crate) is_part: bool,
}

/// Where a parser's keys go. Each parser has its own, so no key waits for a lock.
pub(crate) trait KeySink: Send {
    fn take(&mut self, keys: &[DeviceKey]);

    /// The keys of a block were taken, in which there was so much.
    fn parsed(&mut self, _source: usize, _counts: &Counts) {}

    /// A source was read to its end: it has so many blocks, some of which may still be with other sinks.
    fn ended(&mut self, _source: usize, _blocks: u64) {}

    /// Whether it takes no more, so that reading may end. Its owner knows why.
    fn is_closed(&self) -> bool {
        false
    }
}

/// What was read. A value is what one row holds in one column; with one column there are as many as rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) rows: u64,
    pub(crate) values: u64,
    /// Keys handed to the sinks, those that came up before included.
    pub(crate) keys: u64,
    pub(crate) rejected: [u64; Reason::ALL.len()],
}

impl Counts {
    pub(crate) const fn of(&self, reason: Reason) -> u64 {
        self.rejected[reason as usize]
    }

    /// Values that are broken, as distinct from those that say "no id".
    pub(crate) fn malformed(&self) -> u64 {
        self.rejected.iter().sum::<u64>() - self.of(Reason::Blank)
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        self.values += other.values;
        self.keys += other.keys;
        for (sum, count) in self.rejected.iter_mut().zip(other.rejected) {
            *sum += count;
        }
    }
}

/// A cell of a block: it starts where the one before it ends.
#[derive(Debug)]
struct Value {
    line: u64,
    column: usize,
    end: usize,
    /// The row ends before this column.
    missing: bool,
}

#[derive(Debug)]
enum Rows {
    Lines {
        first: u64,
    },
    Cells {
        values: Vec<Value>,
        rows: u64,
    },
    /// There are no more of this source: so many blocks came before.
    End {
        blocks: u64,
    },
}

/// Some whole rows of one input.
#[derive(Debug)]
struct Block {
    source: usize,
    bytes: Vec<u8>,
    len: usize,
    rows: Rows,
}

/// Blocks' memory, used again.
#[derive(Debug, Default)]
struct Pool(Mutex<Vec<Vec<u8>>>);

impl Pool {
    fn take(&self, len: usize) -> Vec<u8> {
        let mut bytes =
            self.0.lock().expect("nothing panics under this lock").pop().unwrap_or_default();
        if bytes.len() < len {
            bytes.resize(len, 0);
        }
        bytes
    }

    fn give_back(&self, bytes: Vec<u8>) {
        self.0.lock().expect("nothing panics under this lock").push(bytes);
    }
}

/// Reads all inputs into `sinks`, one parser thread for each.
///
/// # Errors
///
/// The first input that cannot be read; what the sinks hold is then of no use.
pub(crate) fn read<S: KeySink>(
    input: &Input,
    sinks: &mut [S],
    rejects: Option<&Rejects>,
    progress: &Progress,
) -> Result<Counts, InputError> {
    read_rest(input, &[], sinks, rejects, progress)
}

/// The same without those sources, by their place and sorted, that were read before.
pub(crate) fn read_rest<S: KeySink>(
    input: &Input,
    ended: &[usize],
    sinks: &mut [S],
    rejects: Option<&Rejects>,
    progress: &Progress,
) -> Result<Counts, InputError> {
    let pool = Pool::default();
    let next_source = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::sync_channel(sinks.len() * 2);
    // Owned by the parsers alone: should all of them panic, the readers find nobody to send to and end too.
    let blocks = Arc::new(Mutex::new(receiver));
    let readers = input.sources.len().min(MAX_READERS).min(sinks.len());
    std::thread::scope(|scope| {
        let (pool, next_source) = (&pool, &next_source);
        let readers: Vec<_> = (0..readers)
            .map(|_| {
                let sender = sender.clone();
                scope.spawn(move || read_sources(input, ended, next_source, pool, sender))
            })
            .collect();
        drop(sender);
        let parsers: Vec<_> = sinks
            .iter_mut()
            .map(|sink| {
                let mut parser = Parser::new(input, rejects);
                let blocks = Arc::clone(&blocks);
                scope.spawn(move || {
                    parser.run(&blocks, pool, sink, progress);
                    (parser.counts, parser.seen)
                })
            })
            .collect();
        drop(blocks);
        let (mut counts, mut seen) = (Counts::default(), Vec::new());
        for parser in parsers {
            let (counted, found) =
                parser.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            counts.add(&counted);
            seen.push(found);
        }
        for reader in readers {
            reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        if !input.is_part && ended.is_empty() {
            check_members(input, &counts, &seen)?;
        }
        Ok(counts)
    })
}

/// Members are optional, so a column's name that is wrong looks like one that every row leaves out.
fn check_members(input: &Input, counts: &Counts, seen: &[Vec<bool>]) -> Result<(), InputError> {
    let Layout::Ndjson { columns } = &input.layout else { return Ok(()) };
    let unseen = |place: &usize| seen.iter().all(|seen| !seen[*place]);
    match (0..columns.len()).find(unseen) {
        Some(place) if counts.rows > 0 => {
            Err(InputError::NoMember { column: columns[place].name.clone(), rows: counts.rows })
        }
        _ => Ok(()),
    }
}

/// Takes sources until there are none; after an error the other readers stop too.
fn read_sources(
    input: &Input,
    ended: &[usize],
    next: &AtomicUsize,
    pool: &Pool,
    sender: SyncSender<Block>,
) -> Result<(), InputError> {
    loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        let Some(source) = input.sources.get(index) else { return Ok(()) };
        if ended.binary_search(&index).is_ok() {
            continue;
        }
        let blocks = Cell::new(0);
        let send = |block| {
            blocks.set(blocks.get() + 1);
            next.load(Ordering::Relaxed) < FAILED && sender.send(block).is_ok()
        };
        let read = match &input.layout {
            Layout::Lines { .. } | Layout::Ndjson { .. } => {
                Opened::open(source).and_then(|mut opened| {
                    lines::read_blocks(&mut opened, index, pool, send)
                        .map_err(|error| opened.failed(error))
                })
            }
            Layout::Csv { columns, delimiter } => Opened::open(source).and_then(|mut opened| {
                csv::read_blocks(&mut opened, index, (columns, *delimiter), pool, send)
            }),
            Layout::Parquet { columns } => parquet::read_blocks(source, index, columns, pool, send),
        };
        if read.is_err() {
            next.store(FAILED, Ordering::Relaxed);
            return read;
        }
        let end = Rows::End { blocks: blocks.get() };
        let _ = sender.send(Block { source: index, bytes: Vec::new(), len: 0, rows: end });
    }
}
