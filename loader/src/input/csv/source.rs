//! Bytes of a CSV file on their way to the parser: rows of bounded length, escaped characters
//! hidden, and lines with open quotes left out.

use std::cell::{Cell, RefCell};
use std::io::{self, BufRead as _, BufReader, Read};

use super::super::layout::CellSyntax;
use super::super::open::Opened;

/// Longer than any real row. Memory for a row is a small multiple of this.
const MAX_RECORD_BYTES: u64 = 16 << 20;

/// Position of the reader within a row.
#[derive(Default)]
pub struct RowPosition {
    /// First line of the row, or of the empty lines before it.
    pub(super) line: Cell<u64>,
    pub(super) since_row: Cell<u64>,
    pub(super) ended: Cell<bool>,
}

/// Limits the length of a row, and adds a final line end if it is missing. Every complete row then
/// has one, so a row that reaches the end of the file has an unclosed quote.
pub struct Bounded<'a, R> {
    pub(super) inner: R,
    pub(super) position: &'a RowPosition,
    pub(super) last: u8,
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let since_row = self.position.since_row.get();
        if since_row > MAX_RECORD_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut count = self.inner.read(buffer)?;
        if count == 0 {
            let Some(first) = buffer.first_mut().filter(|_| self.last != b'\n') else {
                self.position.ended.set(true);
                return Ok(0);
            };
            *first = b'\n';
            count = 1;
        }
        self.last = buffer[count - 1];
        self.position.since_row.set(since_row + count as u64);
        Ok(count)
    }
}

/// Hides escaped delimiters, quotes and line ends. The cells that hold them are no ids.
pub struct Escaped<'a> {
    pub(super) inner: &'a mut Opened,
    pub(super) cells: CellSyntax,
    /// The last byte was the escape character.
    pub(super) follows_escape: bool,
}

/// Stands for an escaped character: no id has it.
const SUBSTITUTE: u8 = 0x1a;

impl Read for Escaped<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        let Some(escape) = self.cells.escape else {
            return Ok(count);
        };
        for byte in &mut buffer[..count] {
            if std::mem::take(&mut self.follows_escape) {
                if [self.cells.delimiter, b'"', b'\n'].contains(byte) {
                    *byte = SUBSTITUTE;
                }
            } else {
                self.follows_escape = *byte == escape;
            }
        }
        Ok(count)
    }
}

/// Passes on the lines whose quotes are closed, and an empty line for each other.
pub struct ClosedLines<'a> {
    inner: BufReader<Escaped<'a>>,
    rows: csv_core::Reader,
    line: Vec<u8>,
    /// Bytes of `line` that were read.
    passed: usize,
    number: u64,
    bad: &'a BadLines,
}

/// Numbers and texts of the lines whose quotes are left open, until they are taken.
#[derive(Default)]
pub struct BadLines(pub RefCell<Vec<(u64, Vec<u8>)>>);

impl<'a> ClosedLines<'a> {
    pub fn new(inner: Escaped<'a>, bad: &'a BadLines) -> Self {
        let rows = csv_core::ReaderBuilder::new()
            .delimiter(inner.cells.delimiter)
            .terminator(csv_core::Terminator::Any(b'\n'))
            .build();
        let inner = BufReader::with_capacity(64 << 10, inner);
        Self {
            inner,
            rows,
            line: Vec::new(),
            passed: 0,
            number: 0,
            bad,
        }
    }

    fn next_line(&mut self) -> io::Result<()> {
        (self.passed, self.number) = (0, self.number + 1);
        self.line.clear();
        (&mut self.inner)
            .take(MAX_RECORD_BYTES + 1)
            .read_until(b'\n', &mut self.line)?;
        if self.line.len() as u64 > MAX_RECORD_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        // A header is no row to skip.
        if self.number > 1 && self.is_open() {
            let text = self.line.trim_ascii_end().to_vec();
            self.bad.0.borrow_mut().push((self.number, text));
            self.line = b"\n".to_vec();
        }
        Ok(())
    }

    /// Whether the line ends within quotes.
    fn is_open(&mut self) -> bool {
        if !self.line.contains(&b'"') {
            return false;
        }
        if self.line.last() != Some(&b'\n') {
            self.line.push(b'\n');
        }
        self.rows.reset();
        let (mut cells, mut ends, mut rest) = ([0; 1024], [0; 64], &self.line[..]);
        loop {
            let (read, length, _, _) = self.rows.read_record(rest, &mut cells, &mut ends);
            match read {
                csv_core::ReadRecordResult::InputEmpty => return true,
                csv_core::ReadRecordResult::Record | csv_core::ReadRecordResult::End => {
                    return false;
                }
                _ => rest = &rest[length..],
            }
        }
    }
}

impl Read for ClosedLines<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.passed == self.line.len() {
            self.next_line()?;
        }
        let rest = &self.line[self.passed..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.passed += count;
        Ok(count)
    }
}
