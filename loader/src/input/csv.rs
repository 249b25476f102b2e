//! CSV input with a header row: RFC 4180, quoted fields may contain delimiters and line ends.
//!
//! Quotes decide where a row ends, so one thread reads all rows of a file and passes on the
//! selected cells. Rows are bounded, because an unclosed quote would turn the rest of the file into
//! one row.
//!
//! Does *not* parse ids. Error messages hide header names that could be ids, as a file without a
//! header begins with ids.

use std::cell::Cell;
use std::io::{self, Read};

use super::block::{Block, Pool};
use super::cells::Cells;
use super::error::InputError;
use super::layout::Column;
use super::open::Opened;

/// Longer than any real row. Memory for a row is a small multiple of this.
const MAX_RECORD_BYTES: u64 = 16 << 20;

/// Position of the reader within a row.
#[derive(Default)]
struct Position {
    /// First line of the row, or of the empty lines before it.
    line: Cell<u64>,
    since_row: Cell<u64>,
    ended: Cell<bool>,
}

/// Limits the length of a row, and adds a final line end if it is missing. Every complete row then
/// has one, so a row that reaches the end of the file has an unclosed quote.
struct Bounded<'a> {
    inner: &'a mut Opened,
    position: &'a Position,
    last: u8,
}

impl Read for Bounded<'_> {
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

/// Reads all rows and sends blocks of the cells of `columns`, until `send` returns false. Empty
/// lines are skipped.
pub(super) fn read_blocks(
    input: &mut Opened,
    source: usize,
    (columns, delimiter): (&[Column], u8),
    pool: &Pool,
    send: impl FnMut(Block) -> bool,
) -> Result<(), InputError> {
    let name = input.name().to_owned();
    let position = Position::default();
    // The carriage return of a CRLF stays in the last cell, which is trimmed like any other.
    // Treating both as line ends would shift the line numbers of such files.
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(delimiter)
        .terminator(csv::Terminator::Any(b'\n'))
        .flexible(true)
        .buffer_capacity(64 << 10)
        .from_reader(Bounded { inner: input, position: &position, last: b'\n' });
    let read = read_rows(&mut reader, &position, (&name, source), columns, pool, send);
    let line = position.line.get();
    drop(reader);
    read.map_err(|error| match error {
        ReadError::Input(error) => error,
        ReadError::Csv(error) => match error.into_kind() {
            csv::ErrorKind::Io(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                InputError::RowWithoutEnd { input: name, line }
            }
            csv::ErrorKind::Io(error) => input.failed(error),
            // Byte records of flexible length have no other errors.
            _ => input.failed(io::ErrorKind::InvalidData.into()),
        },
    })
}

enum ReadError {
    Input(InputError),
    Csv(csv::Error),
}

impl From<csv::Error> for ReadError {
    fn from(error: csv::Error) -> Self {
        Self::Csv(error)
    }
}

fn read_rows(
    reader: &mut csv::Reader<Bounded<'_>>,
    position: &Position,
    (name, source): (&str, usize),
    columns: &[Column],
    pool: &Pool,
    mut send: impl FnMut(Block) -> bool,
) -> Result<(), ReadError> {
    let indexes = find_columns(name, reader.byte_headers()?, columns).map_err(ReadError::Input)?;
    let mut record = csv::ByteRecord::new();
    let mut cells = Cells::new(pool);
    loop {
        position.line.set(reader.position().line());
        position.since_row.set(0);
        position.ended.set(false);
        if !reader.read_byte_record(&mut record)? {
            break;
        }
        // Counted back from the end of the row: the reader skips empty lines before it.
        let inner = record.as_slice().iter().filter(|byte| **byte == b'\n').count() as u64;
        let line = reader.position().line().saturating_sub(1 + inner);
        if position.ended.get() {
            return Err(ReadError::Input(InputError::RowWithoutEnd {
                input: name.to_owned(),
                line: line + 1,
            }));
        }
        if record.len() == 1 && &record[0] == b"\r" {
            continue;
        }
        for (column, index) in indexes.iter().enumerate() {
            cells.add(line, column, record.get(*index));
        }
        cells.end_row();
        if cells.is_full() && !send(cells.take_block(source, pool)) {
            return Ok(());
        }
    }
    send(cells.take_block(source, pool));
    Ok(())
}

fn find_columns(
    name: &str,
    header: &csv::ByteRecord,
    columns: &[Column],
) -> Result<Vec<usize>, InputError> {
    let names: Vec<_> =
        header.iter().map(|cell| String::from_utf8_lossy(cell.trim_ascii())).collect();
    let find = |column: &Column| {
        let mut found = (0..names.len()).filter(|index| names[*index] == column.name.as_str());
        match (found.next(), found.next()) {
            (Some(index), None) => Ok(index),
            (Some(_), Some(_)) => {
                Err(InputError::ColumnTwice { input: name.to_owned(), column: column.name.clone() })
            }
            (None, _) => Err(InputError::Column {
                input: name.to_owned(),
                column: column.name.clone(),
                found: match names.len() {
                    0 => "none: it is empty".to_owned(),
                    count => listed(names.iter(), count),
                },
            }),
        }
    };
    columns.iter().map(find).collect()
}

/// The first of `count` names, on one line.
pub(super) fn listed<N: AsRef<str>>(names: impl Iterator<Item = N>, count: usize) -> String {
    /// A table may have thousands of columns.
    const MAX_NAMES: usize = 50;
    let mut listed: Vec<_> =
        names.take(MAX_NAMES).map(|name| shown(name.as_ref()).escape_debug().to_string()).collect();
    if count > MAX_NAMES {
        listed.push(format!("and {} more", count - MAX_NAMES));
    }
    listed.join(", ")
}

/// A header's name, or a note instead of one that could be an id.
fn shown(name: &str) -> &str {
    let digits = name.bytes().filter(u8::is_ascii_digit).count();
    let hex = name.bytes().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b'-' | b':'));
    // A base64 openid has 28 characters and may have no digit. Real column names are shorter.
    let id_like = digits >= 4 || name.len() > 24 || hex && name.len() >= 12;
    if id_like { "(hidden: looks like an id, is the header row missing?)" } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_of_names_is_one_short_line() {
        let listed = |names: &[&str]| listed(names.iter(), names.len());
        assert_eq!(listed(&["id\tname", "a\nb", "设备"]), "id\\tname, a\\nb, 设备");
        let names = listed(&["x"; 1000]);
        assert!(names.len() < 200 && names.ends_with(", x, and 950 more"), "{names}");
    }

    #[test]
    fn header_that_could_be_an_id_is_hidden() {
        for name in ["idfa", "IMEI (md5)", "a", "device_id", "设备"] {
            assert_eq!(shown(name), name);
        }
        let ids = [
            "8d3ebd3654fb46a2832296669cf1b536",
            "3E0046F7-8BD4-4F3E-9F91-358B137D2BF0",
            "868049039501257",
            "10:2A:B3:D1:52:F4",
            "aabbccddeeffaabb",
        ];
        for id in ids {
            assert!(shown(id).starts_with("(hidden"));
        }
    }
}
