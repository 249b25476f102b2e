//! Columns of a CSV file with a header row: RFC 4180, with quoted fields that may hold delimiters and line
//! ends.
//!
//! Quotes decide where a row ends, so one thread reads a file's rows and hands on the cells that were asked
//! for. A quote that is never closed would make one row of the rest of the file; a row is therefore bounded.
//!
//! Does *not* look at ids, and does not repeat a header's name that could be one: a file without a header
//! begins with ids.

use std::cell::Cell;
use std::io::{self, Read};

use super::cells::Cells;
use super::{Block, Column, InputError, Opened, Pool};

/// Longer than any row that somebody means; memory for a row stays under a few times this.
const MAX_RECORD_BYTES: u64 = 16 << 20;

/// How far the reader is in a row.
#[derive(Default)]
struct Place {
    /// Where the row begins, or the empty lines before it.
    line: Cell<u64>,
    since_row: Cell<u64>,
    ended: Cell<bool>,
}

/// Ends the reading of a row that does not end, and gives the last row its line end if it has none: so every
/// row has one, and a row that goes on to the end of the file is known to be open.
struct Bounded<'a> {
    inner: &'a mut Opened,
    place: &'a Place,
    last: u8,
}

impl Read for Bounded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let since_row = self.place.since_row.get();
        if since_row > MAX_RECORD_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut count = self.inner.read(buffer)?;
        if count == 0 {
            let Some(first) = buffer.first_mut().filter(|_| self.last != b'\n') else {
                self.place.ended.set(true);
                return Ok(0);
            };
            *first = b'\n';
            count = 1;
        }
        self.last = buffer[count - 1];
        self.place.since_row.set(since_row + count as u64);
        Ok(count)
    }
}

/// Reads all rows, handing over blocks of the cells of `columns`. Stops early, without an error, if `send`
/// says that nobody wants more. Empty lines are no rows.
pub(super) fn read_blocks(
    input: &mut Opened,
    source: usize,
    (columns, delimiter): (&[Column], u8),
    pool: &Pool,
    send: impl FnMut(Block) -> bool,
) -> Result<(), InputError> {
    let name = input.name().to_owned();
    let place = Place::default();
    // The carriage return of a CRLF stays in the last cell, which is trimmed like any other; to take both for
    // line ends would make the line numbers of such files wrong by one.
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(delimiter)
        .terminator(csv::Terminator::Any(b'\n'))
        .flexible(true)
        .buffer_capacity(64 << 10)
        .from_reader(Bounded { inner: input, place: &place, last: b'\n' });
    let read = read_rows(&mut reader, &place, (&name, source), columns, pool, send);
    let line = place.line.get();
    drop(reader);
    read.map_err(|error| match error {
        ReadError::Input(error) => error,
        ReadError::Csv(error) => match error.into_kind() {
            csv::ErrorKind::Io(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                InputError::RowWithoutEnd { input: name, line }
            }
            csv::ErrorKind::Io(error) => input.failed(error),
            // Bytes are read, of rows of any length: nothing else can be wrong with them.
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
    place: &Place,
    (name, source): (&str, usize),
    columns: &[Column],
    pool: &Pool,
    mut send: impl FnMut(Block) -> bool,
) -> Result<(), ReadError> {
    let places = find_columns(name, reader.byte_headers()?, columns).map_err(ReadError::Input)?;
    let mut record = csv::ByteRecord::new();
    let mut cells = Cells::new(pool);
    loop {
        place.line.set(reader.position().line());
        place.since_row.set(0);
        place.ended.set(false);
        if !reader.read_byte_record(&mut record)? {
            break;
        }
        // Counted from its end: the reader skips empty lines before a row.
        let inner = record.as_slice().iter().filter(|byte| **byte == b'\n').count() as u64;
        let line = reader.position().line().saturating_sub(1 + inner);
        if place.ended.get() {
            return Err(ReadError::Input(InputError::RowWithoutEnd {
                input: name.to_owned(),
                line: line + 1,
            }));
        }
        if record.len() == 1 && &record[0] == b"\r" {
            continue;
        }
        for (column, place) in places.iter().enumerate() {
            cells.add(line, column, record.get(*place));
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
        let mut places = (0..names.len()).filter(|place| names[*place] == column.name.as_str());
        match (places.next(), places.next()) {
            (Some(place), None) => Ok(place),
            (Some(_), Some(_)) => {
                Err(InputError::ColumnTwice { input: name.to_owned(), column: column.name.clone() })
            }
            (None, _) => Err(InputError::Column {
                input: name.to_owned(),
                column: column.name.clone(),
                found: if names.is_empty() {
                    "none: it is empty".to_owned()
                } else {
                    names.iter().map(|name| shown(name)).collect::<Vec<_>>().join(", ")
                },
            }),
        }
    };
    columns.iter().map(find).collect()
}

/// A header's name, unless it could be an id.
pub(super) fn shown(name: &str) -> &str {
    let digits = name.bytes().filter(u8::is_ascii_digit).count();
    let hex = name.bytes().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b'-' | b':'));
    // A base64 openid has 28 characters and may have no digit; no column that is meant needs so many.
    let id_like = digits >= 4 || name.len() > 24 || hex && name.len() >= 12;
    if id_like { "(hidden: looks like an id, is the header row missing?)" } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_that_could_be_an_id_is_not_repeated() {
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
