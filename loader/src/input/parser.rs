//! Parser: turns blocks of rows into keys, and counts or records the rows without one.
//!
//! One parser per thread. Its buffers are reused for the next block, so a row costs no allocation.
//! The text of a row goes only to the rejects file.

use std::io::Write as _;
use std::sync::Mutex;
use std::sync::mpsc::Receiver;

use rtad_core::device::{DeviceKey, IdKind, Unusable};

use super::block::{Block, MAX_ROW_BYTES, Pool, Rows};
use super::layout::{Column, Input, Layout};
use super::lines;
use super::ndjson::{Found, Members};
use super::open::Source;
use super::rejects::{self, Reason, Rejects};
use super::sink::{Counts, KeySink};
use crate::progress::Progress;

/// Source, line, and the column if rows have several.
type Position<'a> = (usize, u64, Option<&'a Column>);

/// One parser thread's state.
#[derive(Debug)]
pub(super) struct Parser<'a> {
    input: &'a Input,
    rejects: Option<&'a Rejects>,
    names: Vec<String>,
    pub(super) counts: Counts,
    keys: Vec<DeviceKey>,
    rejected: Vec<u8>,
    members: Members,
    /// NDJSON: whether any row had the column.
    pub(super) seen: Vec<bool>,
}

impl<'a> Parser<'a> {
    pub(super) fn new(input: &'a Input, rejects: Option<&'a Rejects>) -> Self {
        let names = input.sources.iter().map(Source::name).collect();
        let columns = match &input.layout {
            Layout::Ndjson { columns } => &columns[..],
            _ => &[],
        };
        Self {
            input,
            rejects,
            names,
            counts: Counts::default(),
            keys: Vec::new(),
            rejected: Vec::new(),
            members: Members::new(columns),
            seen: vec![false; columns.len()],
        }
    }

    pub(super) fn run(
        &mut self,
        blocks: &Mutex<Receiver<Block>>,
        pool: &Pool,
        sink: &mut impl KeySink,
        progress: &Progress,
    ) {
        loop {
            // Held while waiting: the others could get no block either.
            let block = blocks.lock().expect("nothing panics under this lock").recv();
            let Ok(block) = block else { return };
            if let Rows::End { blocks } = block.rows {
                sink.ended(block.source, blocks);
                continue;
            }
            let before = std::mem::take(&mut self.counts);
            self.parse(&block);
            sink.take(&self.keys);
            self.counts.keys += self.keys.len() as u64;
            self.keys.clear();
            let counts = std::mem::replace(&mut self.counts, before);
            self.counts.add(&counts);
            // Before `parsed`: a resumed build does not read a parsed block again.
            if let Some(rejects) = self.rejects {
                rejects.write(&mut self.rejected);
            }
            sink.parsed(block.source, &counts);
            progress.add(counts.rows);
            pool.give_back(block.bytes);
            if sink.is_closed() {
                return;
            }
        }
    }

    fn parse(&mut self, block: &Block) {
        let bytes = &block.bytes[..block.len];
        match (&block.rows, &self.input.layout) {
            (Rows::Lines { first }, Layout::Lines { kind }) => {
                let mut row = *first;
                for line in lines::lines(without_bom(bytes, *first)) {
                    self.value((block.source, row, None), &[*kind], line);
                    row += 1;
                }
                self.counts.rows += row - first;
            }
            (Rows::Lines { first }, Layout::Ndjson { columns }) => {
                let text = without_bom(bytes, *first);
                let mut found = vec![Found::Absent; columns.len()];
                for (row, line) in (*first..).zip(lines::lines(text)) {
                    self.object(block.source, row, columns, line, &mut found);
                }
            }
            (
                Rows::Cells { values, rows },
                Layout::Csv { columns, .. } | Layout::Parquet { columns },
            ) => {
                let (mut start, mut short_row) = (0, None);
                for value in values {
                    let text = &bytes[start..value.end];
                    start = value.end;
                    let column = &columns[value.column];
                    let position = (block.source, value.line, Some(column));
                    match value.rejected {
                        None => self.value(position, &column.kinds, text),
                        // A row that ends before several columns counts once.
                        Some(Reason::MissingColumn)
                            if short_row.replace(value.line) == Some(value.line) => {}
                        Some(reason) => {
                            self.counts.values += 1;
                            let column = (reason == Reason::MissingColumn).then_some(column);
                            self.reject((block.source, value.line, column), reason, text);
                        }
                    }
                }
                self.counts.rows += rows;
            }
            _ => unreachable!("each layout has its own form of block"),
        }
    }

    /// Parses a line of NDJSON. A line that is too long or not an object counts as one rejected
    /// value.
    fn object<'b>(
        &mut self,
        source: usize,
        row: u64,
        columns: &[Column],
        line: &'b [u8],
        found: &mut [Found<'b>],
    ) {
        if line.trim_ascii().is_empty() {
            return;
        }
        self.counts.rows += 1;
        let reason = match line.len() > MAX_ROW_BYTES {
            true => Some(Reason::TooLong),
            false => self.members.find(line, found).err().map(|_| Reason::Malformed),
        };
        if let Some(reason) = reason {
            self.counts.values += 1;
            return self.reject((source, row, None), reason, line);
        }
        for (index, column) in columns.iter().enumerate() {
            self.seen[index] |= found[index] != Found::Absent;
            let position = (source, row, Some(column));
            match &found[index] {
                Found::Text(text) => self.value(position, &column.kinds, text.as_bytes()),
                Found::Absent | Found::Null => self.value(position, &column.kinds, b""),
                Found::Integer(number) => {
                    let mut digits = [0; 40];
                    let mut rest = &mut digits[..];
                    write!(rest, "{number}").expect("an i128 has 40 characters at most");
                    let left = rest.len();
                    self.value(position, &column.kinds, &digits[..digits.len() - left]);
                }
                Found::NotAnId => {
                    self.counts.values += 1;
                    self.reject(position, Reason::Malformed, line);
                }
            }
        }
    }

    #[inline]
    fn value(&mut self, position: Position<'_>, kinds: &[IdKind], text: &[u8]) {
        self.counts.values += 1;
        let (mut reason, kinds) = match text.len() > MAX_ROW_BYTES {
            true => (Reason::TooLong, &[][..]),
            false => (Reason::Malformed, kinds),
        };
        for kind in kinds.iter().copied() {
            let case = self.input.case.unwrap_or(kind.canonical_case());
            match self.input.keys.keys(kind, case, text, &mut self.keys) {
                Ok(()) => return self.counts.count_raw(kind, text),
                Err(Unusable::Malformed) => {}
                Err(Unusable::Blank) => {
                    reason = Reason::Blank;
                    break;
                }
            }
        }
        self.reject(position, reason, text);
    }

    #[cold]
    fn reject(&mut self, position: Position<'_>, reason: Reason, text: &[u8]) {
        self.counts.rejected[reason as usize] += 1;
        if self.rejects.is_some() {
            let (source, line, column) = position;
            let row = (&*self.names[source], line, column.map(|column| &*column.name));
            rejects::append_row(&mut self.rejected, row, reason, text);
        }
    }
}

/// Strips a byte order mark from the first line.
fn without_bom(bytes: &[u8], first_row: u64) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").filter(|_| first_row == 1).unwrap_or(bytes)
}
