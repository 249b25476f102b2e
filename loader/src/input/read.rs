//! Reader and parser threads: sources to blocks to keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, SyncSender};

use parking_lot::Mutex;

use super::block::{Block, Pool};
use super::error::InputError;
use super::layout::{Input, Layout};
use super::open::{Opened, Source};
use super::parser::Parser;
use super::rejects::PrivateFile;
use super::sink::{Counts, InputCounts, KeySink};
use super::{batch_reader, csv, lines, parquet};
use crate::progress::{Bytes, Progress};

/// More readers would only wait for the parsers.
const MAX_READERS: usize = 4;
/// Readers of objects mostly wait for their server: while some open an object, others read.
const MAX_REMOTE_READERS: usize = 8;
/// Value of the next source's index after a failure.
const FAILED: usize = usize::MAX / 2;

/// Reads all inputs into `sinks`, one parser thread for each.
///
/// # Errors
///
/// The first input that cannot be read. The contents of the sinks are then incomplete.
pub fn read<S: KeySink>(
    input: &Input,
    sinks: &mut [S],
    rejects: Option<&PrivateFile>,
    progress: &Progress,
) -> Result<InputCounts, InputError> {
    let pool = Pool::default();
    let next_source = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::sync_channel(sinks.len() * 2);
    // Owned by the parsers alone: if all of them panic, sending fails and the readers end.
    let blocks = Arc::new(Mutex::new(receiver));
    expect(progress, &input.sources);

    let most_readers = if input.sources.iter().any(Source::is_remote) {
        MAX_REMOTE_READERS
    } else {
        MAX_READERS.min(sinks.len())
    };

    std::thread::scope(|scope| {
        let pool = &pool;
        let next_source = &next_source;
        let mut readers = Vec::new();
        for _ in 0..input.sources.len().min(most_readers) {
            let sender = sender.clone();
            readers.push(
                scope.spawn(move || read_sources(input, next_source, pool, progress, sender)),
            );
        }
        drop(sender);

        let mut parsers = Vec::with_capacity(sinks.len());
        for sink in sinks {
            let mut parser = Parser::new(input, rejects);
            let blocks = Arc::clone(&blocks);
            parsers.push(scope.spawn(move || {
                parser.run(&blocks, pool, sink, progress);
                parser.by_source
            }));
        }
        drop(blocks);

        let mut counts = InputCounts::new(input.sources.len());
        for parser in parsers {
            let counted = parser
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            counts.add(&counted);
        }
        for reader in readers {
            reader
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }

        progress.check()?;
        check_members(input, &counts.total())?;
        Ok(counts)
    })
}

/// Tells the progress the size of the sources, if all have one.
pub fn expect<'a>(progress: &Progress, sources: impl IntoIterator<Item = &'a Source>) {
    let sizes = sources.into_iter().map(|source| source.stored().size_bytes);
    progress.expect_bytes(sizes.sum::<Option<u64>>().unwrap_or(0));
}

/// Rejects columns found in no row. Members are optional, so a misspelled name is not an error per
/// row.
fn check_members(input: &Input, counts: &Counts) -> Result<(), InputError> {
    let in_columns: u64 = counts.columns.iter().map(|column| column.malformed).sum();
    let no_object = counts.malformed() - in_columns;
    let objects = counts.rows - no_object.min(counts.rows);
    match absent_member(input, counts) {
        Some(_) if objects == 0 && counts.rows > 0 => {
            Err(InputError::NoObject { rows: counts.rows })
        }
        Some(column) if counts.rows > 0 => Err(InputError::NoMember {
            column: column.to_owned(),
            rows: counts.rows,
        }),
        _ => Ok(()),
    }
}

/// The first column of NDJSON that no row has.
fn absent_member<'i>(input: &'i Input, counts: &Counts) -> Option<&'i str> {
    let Layout::Ndjson { columns } = &input.layout else {
        return None;
    };
    for (index, column) in columns.iter().chain(&input.value).enumerate() {
        if counts.seen.get(index) != Some(&true) {
            return Some(&column.name);
        }
    }
    None
}

/// Reads sources until none is left. An error stops the other readers too.
fn read_sources(
    input: &Input,
    next: &AtomicUsize,
    pool: &Pool,
    progress: &Progress,
    sender: SyncSender<Block>,
) -> Result<(), InputError> {
    loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        let Some(source) = input.sources.get(index) else {
            return Ok(());
        };
        let read = read_source(input, index, source, pool, progress.bytes(), |block| {
            let is_wanted = next.load(Ordering::Relaxed) < FAILED && !progress.is_stopped();
            is_wanted && sender.send(block).is_ok()
        });
        if read.is_err() {
            next.store(FAILED, Ordering::Relaxed);
            return read;
        }
    }
}

/// Reads one source, until `send` returns false.
fn read_source(
    input: &Input,
    index: usize,
    source: &Source,
    pool: &Pool,
    bytes: &Arc<Bytes>,
    send: impl FnMut(Block) -> bool,
) -> Result<(), InputError> {
    let value = input.value.as_ref();
    match &input.layout {
        Layout::Lines { .. } | Layout::Ndjson { .. } => {
            let mut opened = Opened::open(source, bytes, None)?;
            lines::read_blocks(&mut opened, index, pool, send).map_err(|error| opened.failed(error))
        }
        Layout::Csv { columns, cells } => {
            let mut opened = Opened::open(source, bytes, Some(cells.delimiter))?;
            csv::read_blocks(&mut opened, index, (columns, value), *cells, pool, send)
        }
        Layout::Parquet { columns } => {
            parquet::read_blocks(source, index, (columns, value), pool, bytes, send)
        }
        Layout::Batches { columns } => {
            batch_reader::read_blocks(source, index, (columns, value), pool, send)
        }
    }
}
