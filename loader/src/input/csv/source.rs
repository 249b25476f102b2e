//! Bytes of a CSV file on their way to the parser: rows of bounded length, escaped characters
//! hidden.

use std::cell::Cell;
use std::io::{self, Read};

use super::super::layout::CellSyntax;
use super::super::open::Opened;
use super::escapes::{HIDDEN_DELIMITER, HIDDEN_LINE_END, HIDDEN_QUOTE};

/// Longer than any real row. Memory for a row is a small multiple of this.
const MAX_RECORD_BYTES: u64 = 16 << 20;

/// Position of the reader within a row.
#[derive(Default)]
pub struct RowPosition {
    /// First line of the row, or of the empty lines before it.
    pub line: Cell<u64>,
    pub since_row: Cell<u64>,
    pub ended: Cell<bool>,
    /// Escaped line ends of the rows before, which the parser does not see.
    pub hidden_line_ends: Cell<u64>,
}

/// Limits the length of a row, and adds a final line end if it is missing. Every complete row then
/// has one, so a row that reaches the end of the file has an unclosed quote.
pub struct Bounded<'a, R> {
    pub inner: R,
    pub position: &'a RowPosition,
    pub last: u8,
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let since_row = self.position.since_row.get();
        if since_row > MAX_RECORD_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut count = self.inner.read(buffer)?;
        if count == 0 {
            if self.last == b'\n' || buffer.is_empty() {
                self.position.ended.set(true);
                return Ok(0);
            }
            buffer[0] = b'\n';
            count = 1;
        }

        self.last = buffer[count - 1];
        self.position.since_row.set(since_row + count as u64);
        Ok(count)
    }
}

/// Hides escaped delimiters, quotes and line ends from the parser.
pub struct Escaped<'a> {
    pub inner: &'a mut Opened,
    pub syntax: CellSyntax,
    /// The last byte was the escape character.
    pub follows_escape: bool,
}

impl Read for Escaped<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        let Some(escape) = self.syntax.escape else {
            return Ok(count);
        };
        for byte in &mut buffer[..count] {
            if std::mem::take(&mut self.follows_escape) {
                if *byte == self.syntax.delimiter {
                    *byte = HIDDEN_DELIMITER;
                } else if *byte == b'"' {
                    *byte = HIDDEN_QUOTE;
                } else if *byte == b'\n' {
                    *byte = HIDDEN_LINE_END;
                }
            } else {
                self.follows_escape = *byte == escape;
            }
        }
        Ok(count)
    }
}
