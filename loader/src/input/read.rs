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
use crate::progress::Progress;

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
    let readers = input.sources.len().min(most_readers);
    std::thread::scope(|scope| {
        let (pool, next_source) = ((&pool, progress), &next_source);
        let readers: Vec<_> = (0..readers)
            .map(|_| {
                let sender = sender.clone();
                scope.spawn(move || read_sources(input, next_source, pool, sender))
            })
            .collect();
        drop(sender);
        let parsers: Vec<_> = sinks
            .iter_mut()
            .map(|sink| {
                let mut parser = Parser::new(input, rejects);
                let blocks = Arc::clone(&blocks);
                scope.spawn(move || {
                    parser.run(&blocks, pool.0, sink, progress);
                    parser.by_source
                })
            })
            .collect();
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
    match absent_members(input, counts).next() {
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

/// Columns of NDJSON that no row has.
fn absent_members<'i>(input: &'i Input, counts: &Counts) -> impl Iterator<Item = &'i str> {
    let columns = match &input.layout {
        Layout::Ndjson { columns } => columns.iter().chain(&input.value),
        _ => [].iter().chain(&None),
    };
    let seen = counts.seen.iter().copied().chain(std::iter::repeat(false));
    columns
        .zip(seen)
        .filter(|(_, seen)| !seen)
        .map(|(column, _)| &*column.name)
}

/// Reads sources until none is left. An error stops the other readers too.
fn read_sources(
    input: &Input,
    next: &AtomicUsize,
    (pool, progress): (&Pool, &Progress),
    sender: SyncSender<Block>,
) -> Result<(), InputError> {
    let bytes = progress.bytes();
    loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        let Some(source) = input.sources.get(index) else {
            return Ok(());
        };
        let send = |block| {
            let is_wanted = next.load(Ordering::Relaxed) < FAILED && !progress.is_stopped();
            is_wanted && sender.send(block).is_ok()
        };
        let read = match &input.layout {
            Layout::Lines { .. } | Layout::Ndjson { .. } => Opened::open(source, bytes, None)
                .and_then(|mut opened| {
                    lines::read_blocks(&mut opened, index, pool, send)
                        .map_err(|error| opened.failed(error))
                }),
            Layout::Csv { columns, cells } => Opened::open(source, bytes, Some(cells.delimiter))
                .and_then(|mut opened| {
                    let columns = (&columns[..], input.value.as_ref());
                    csv::read_blocks(&mut opened, index, columns, *cells, pool, send)
                }),
            Layout::Parquet { columns } => {
                let columns = (&columns[..], input.value.as_ref());
                parquet::read_blocks(source, index, columns, (pool, bytes), send)
            }
            Layout::Batches { columns } => {
                let columns = (&columns[..], input.value.as_ref());
                batch_reader::read_blocks(source, index, columns, pool, send)
            }
        };
        if read.is_err() {
            next.store(FAILED, Ordering::Relaxed);
            return read;
        }
    }
}
