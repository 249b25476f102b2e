//! Parser: turns blocks of rows into keys, and counts or records the rows without one.
//!
//! One parser per thread. Its buffers are reused for the next block, so a row costs no allocation.
//! The values of some hundred rows wait until their md5s are computed together. The text of a row
//! goes only to the rejects file.

use std::borrow::Cow;
use std::io::Write as _;
use std::mem::take;
use std::sync::mpsc::Receiver;

use parking_lot::Mutex;

use rtad_core::device::{DeviceKey, IdKind, KeyBatch, Reading};

use super::block::{Block, MAX_ROW_BYTES, Pool, Rows};
use super::kinds::Kinds;
use super::layout::{Column, Input, Layout};
use super::lines::{self, without_mark};
use super::ndjson::{self, Members, RowValue};
use super::open::Source;
use super::rejects::{self, PrivateFile, Reason, RowName};
use super::sink::{Counts, InputCounts, KeySink};
use super::value;
use crate::progress::Progress;

/// Stands for the value of a key whose row has none.
const REJECTED: u8 = u8::MAX;

/// Origin of a value.
#[derive(Debug, Clone, Copy)]
struct Position {
    source: usize,
    line: u64,
    /// Index of the column, if rows have several.
    column: Option<usize>,
}

/// A value of the batch.
#[derive(Debug, Clone, Copy)]
struct PendingValue<'b> {
    position: Position,
    kind: IdKind,
    text: &'b [u8],
    /// The value of its row.
    value: Option<u8>,
}

/// One parser thread's state.
#[derive(Debug)]
pub struct Parser<'a> {
    input: &'a Input,
    rejects: Option<&'a PrivateFile>,
    names: Vec<String>,
    /// Of the block.
    counts: Counts,
    pub by_source: InputCounts,
    keys: Vec<DeviceKey>,
    /// The values of `keys`; empty without a column of values.
    values: Vec<u8>,
    batch: KeyBatch,
    rejected: Vec<u8>,
    members: Members,
}

impl<'a> Parser<'a> {
    pub fn new(input: &'a Input, rejects: Option<&'a PrivateFile>) -> Self {
        let names = input.sources.iter().map(Source::name).collect();
        let columns: Vec<Column> = match &input.layout {
            Layout::Ndjson { columns } => columns.iter().chain(&input.value).cloned().collect(),
            _ => Vec::new(),
        };
        Self {
            input,
            rejects,
            names,
            counts: Counts::default(),
            by_source: InputCounts::new(input.sources.len()),
            keys: Vec::new(),
            values: Vec::new(),
            batch: KeyBatch::default(),
            rejected: Vec::new(),
            members: Members::new(&columns),
        }
    }

    pub fn run(
        &mut self,
        blocks: &Mutex<Receiver<Block>>,
        pool: &Pool,
        sink: &mut impl KeySink,
        progress: &Progress,
    ) {
        loop {
            // Held while waiting: the others could get no block either.
            let block = blocks.lock().recv();
            let Ok(block) = block else { return };

            self.parse(&block);
            sink.take(&self.keys, &self.values);
            self.counts.keys += self.keys.len() as u64;
            self.keys.clear();
            self.values.clear();

            let counts = take(&mut self.counts);
            self.by_source.add_to(block.source, &counts);
            if let Some(rejects) = self.rejects {
                rejects.write(&mut self.rejected);
            }
            progress.add(counts.rows);
            pool.give_back(block.bytes);
            if sink.is_closed() {
                return;
            }
        }
    }

    fn parse(&mut self, block: &Block) {
        let bytes = &block.bytes[..block.len];
        let mut pending = Vec::with_capacity(KeyBatch::USUAL_LEN);
        match (&block.rows, &self.input.layout) {
            (Rows::Lines { first }, Layout::Lines { kinds }) => {
                let start = Position {
                    source: block.source,
                    line: *first,
                    column: None,
                };
                self.parse_lines(&mut pending, start, kinds, bytes);
            }
            (Rows::Lines { first }, Layout::Ndjson { columns }) => {
                let mut found =
                    vec![RowValue::Absent; columns.len() + self.input.value.iter().len()];
                self.counts.seen.resize(found.len(), false);
                for (row, line) in (*first..).zip(lines::lines(bytes)) {
                    let position = Position {
                        source: block.source,
                        line: row,
                        column: None,
                    };
                    let line = without_mark(line);
                    self.object(&mut pending, position, columns, line, &mut found);
                }
            }
            (
                Rows::Cells { values, rows },
                Layout::Csv { columns, .. }
                | Layout::Parquet { columns }
                | Layout::Batches { columns },
            ) => {
                let mut start = 0;
                for value in values {
                    let text = &bytes[start..value.end];
                    start = value.end;

                    let mut position = Position {
                        source: block.source,
                        line: value.line,
                        column: None,
                    };
                    if let Some(reason) = value.rejected {
                        self.counts.values += 1;
                        self.reject_now(&mut pending, position, reason, text);
                        continue;
                    }
                    position.column = Some(value.column);
                    let kinds = &columns[value.column].kinds;
                    self.value(&mut pending, position, kinds, text, value.value);
                }
                self.counts.rows += rows;
            }
            _ => unreachable!("each layout has its own form of block"),
        }

        self.finish(&mut pending);
    }

    /// Parses lines of one id each, the first of which is at `start`.
    fn parse_lines<'b>(
        &mut self,
        pending: &mut Vec<PendingValue<'b>>,
        start: Position,
        kinds: &Kinds,
        bytes: &'b [u8],
    ) {
        let is_list_of_md5s = kinds.only() == Some(IdKind::Md5);
        let mut plain_digests = 0;
        let mut position = start;
        let mut rest = bytes;

        loop {
            // Nearly every line of such a list: nothing to trim or to tell apart, and the block
            // counts these together.
            if is_list_of_md5s
                && let Some((key, after)) = lines::first_digest(rest)
                && self.input.keys.usable(key).is_ok()
            {
                self.keys.push(key);
                plain_digests += 1;
                rest = after;
            } else if let Some((line, after)) = lines::first_line(rest) {
                self.value(pending, position, kinds, without_mark(line), Some(0));
                rest = after;
            } else {
                break;
            }
            position.line += 1;
        }

        self.counts.rows += position.line - start.line;
        self.counts.values += plain_digests;
        self.counts.usable.add(IdKind::Md5, plain_digests);
    }

    /// Parses a line of NDJSON. A line that is too long or not an object counts as one rejected
    /// value.
    fn object<'b>(
        &mut self,
        pending: &mut Vec<PendingValue<'b>>,
        row: Position,
        columns: &'a [Column],
        line: &'b [u8],
        found: &mut [RowValue<'b>],
    ) {
        if line.trim_ascii().is_empty() {
            return;
        }
        self.counts.rows += 1;
        let reason = if line.len() > MAX_ROW_BYTES {
            Some(Reason::TooLong)
        } else if self.members.find(line, found).is_err() {
            Some(Reason::Malformed)
        } else {
            None
        };
        if let Some(reason) = reason {
            for _ in 0..ndjson::elements(line) {
                self.counts.values += 1;
                self.reject_now(pending, row, reason, line);
            }
            return;
        }

        for (seen, found) in self.counts.seen.iter_mut().zip(&*found) {
            *seen |= *found != RowValue::Absent;
        }
        let value = match found.get(columns.len()) {
            None => Some(0),
            Some(RowValue::Text(text)) => value::parse(text.as_bytes()),
            Some(RowValue::Integer(number)) => value::parse(number.to_string().as_bytes()),
            Some(_) => None,
        };

        for (index, column) in columns.iter().enumerate() {
            let position = Position {
                column: Some(index),
                ..row
            };
            match &found[index] {
                RowValue::Text(Cow::Borrowed(text)) => {
                    self.value(pending, position, &column.kinds, text.as_bytes(), value);
                }
                RowValue::Text(Cow::Owned(text)) => {
                    self.value_now(pending, position, &column.kinds, text.as_bytes(), value);
                }
                RowValue::Absent | RowValue::Null => {
                    self.value(pending, position, &column.kinds, b"", value);
                }
                RowValue::Integer(number) => {
                    let mut digits = [0; 40];
                    let mut rest = &mut digits[..];
                    write!(rest, "{number}").expect("an i128 has 40 characters at most");
                    let left = rest.len();
                    let digits = &digits[..digits.len() - left];
                    self.value_now(pending, position, &column.kinds, digits, value);
                }
                RowValue::Fraction => {
                    self.counts.values += 1;
                    self.finish(pending);
                    self.counts.reject_fraction(index, line);
                    self.record(position, Reason::Malformed, line);
                }
                RowValue::NotAnId => {
                    self.counts.values += 1;
                    self.reject_now(pending, position, Reason::Malformed, line);
                }
                RowValue::List(count) => {
                    for _ in 0..(*count).max(1) {
                        self.counts.values += 1;
                        self.reject_now(pending, position, Reason::Malformed, line);
                    }
                }
            }
        }
    }

    /// Adds an id, with the value of its row, to the batch.
    #[inline]
    fn value<'b>(
        &mut self,
        pending: &mut Vec<PendingValue<'b>>,
        position: Position,
        kinds: &Kinds,
        text: &'b [u8],
        value: Option<u8>,
    ) {
        self.counts.values += 1;
        if text.len() > MAX_ROW_BYTES {
            return self.reject_now(pending, position, Reason::TooLong, text);
        }

        let Reading { kind, case } = kinds.reading(text);
        let case = self.input.case.unwrap_or(case);
        // A digest waits for no hash, and only to keep the order of rows.
        if kind == IdKind::Md5 && pending.is_empty() {
            let Some(value) = value else {
                // Rare: the same by the batch, which finds out whether the id is usable.
                self.batch.push(&self.input.keys, kind, case, text);
                pending.push(PendingValue {
                    position,
                    kind,
                    text,
                    value,
                });
                return self.finish(pending);
            };
            return match self.input.keys.keys(kind, case, text, &mut self.keys) {
                Ok(()) => {
                    self.counts.accept_as(IdKind::Md5, position.column);
                    if self.input.value.is_some() {
                        self.values.push(value);
                    }
                }
                Err(unusable) => self.reject(position, unusable.into(), text),
            };
        }

        self.batch.push(&self.input.keys, kind, case, text);
        pending.push(PendingValue {
            position,
            kind,
            text,
            value,
        });
        if pending.len() == KeyBatch::USUAL_LEN {
            self.finish(pending);
        }
    }

    /// The same for a value that does not outlive its row.
    fn value_now(
        &mut self,
        pending: &mut Vec<PendingValue<'_>>,
        position: Position,
        kinds: &Kinds,
        text: &[u8],
        value: Option<u8>,
    ) {
        self.finish(pending);
        let mut pending = Vec::with_capacity(1);
        self.value(&mut pending, position, kinds, text, value);
        self.finish(&mut pending);
    }

    /// Rejects a value after those of the batch, as the rows of a block are in order.
    #[cold]
    fn reject_now(
        &mut self,
        pending: &mut Vec<PendingValue<'_>>,
        position: Position,
        reason: Reason,
        text: &[u8],
    ) {
        self.finish(pending);
        self.reject(position, reason, text);
    }

    /// Appends the batch's keys, and counts or records its values without one.
    fn finish(&mut self, pending: &mut Vec<PendingValue<'_>>) {
        let mut values = pending.drain(..);
        let mut batch = take(&mut self.batch);
        let mut keys = take(&mut self.keys);
        let begin = keys.len();
        let mut has_rejected = false;

        batch.finish(&self.input.keys, &mut keys, |result| {
            let PendingValue {
                position,
                kind,
                text,
                value,
            } = values
                .next()
                .expect("the batch has as many ids as values are pending");
            match (result, value) {
                (Ok(()), Some(value)) => {
                    self.counts.accept(kind, position.column, text);
                    if self.input.value.is_some() {
                        self.values.push(value);
                    }
                }
                (Ok(()), None) => {
                    self.reject(position, Reason::Value, text);
                    self.values.push(REJECTED);
                    has_rejected = true;
                }
                (Err(unusable), _) => self.reject(position, unusable.into(), text),
            }
        });

        if has_rejected {
            // An input with values has one key per usable id.
            let mut kept = begin;
            for index in begin..keys.len() {
                if self.values[index] != REJECTED {
                    keys[kept] = keys[index];
                    self.values[kept] = self.values[index];
                    kept += 1;
                }
            }
            keys.truncate(kept);
            self.values.truncate(kept);
        }

        self.batch = batch;
        self.keys = keys;
    }

    #[cold]
    fn reject(&mut self, position: Position, reason: Reason, text: &[u8]) {
        self.counts.reject(reason, position.column, text);
        self.record(position, reason, text);
    }

    /// Keeps a rejected row for the file of `--rejects`, if there is one.
    fn record(&mut self, position: Position, reason: Reason, text: &[u8]) {
        // Exports may have millions of blank values, which are no mistakes.
        if self.rejects.is_some() && reason != Reason::Blank {
            let Position {
                source,
                line,
                column,
            } = position;
            let row = RowName {
                input: &self.names[source],
                line,
                column: column.map(|index| &*self.input.layout.columns()[index].name),
            };
            rejects::append_row(&mut self.rejected, row, reason, text);
        }
    }
}

#[cfg(test)]
mod tests;
