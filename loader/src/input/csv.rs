//! CSV input: RFC 4180, quoted fields may contain delimiters and line ends. The columns are found by
//! name in the header row, or counted if there is none.
//!
//! Quotes decide where a row ends, so one thread reads all rows of a file and passes on the
//! selected cells. Rows are bounded, because an unclosed quote would turn the rest of the file into
//! one row.
//!
//! A row with more or fewer cells than the first is malformed: its cells may be those of other
//! columns. Empty cells after the last column are accepted: some exports end rows by a delimiter.
//! A quoted cell with line ends may be a text, or rows between two stray quotes: if one of its
//! lines has as many cells as a row, all lines of the row are malformed. A second header, as of
//! joined files, is blank; with its columns in another order it is an error. A row with a hole of
//! zeros is malformed: the hole may have taken the place of many rows, also between two cells that
//! are not selected.
//!
//! Does *not* parse ids. Error messages hide header names that could be ids, as a file without a
//! header begins with ids.

mod escapes;
mod source;

use std::collections::HashSet;
use std::io::{self, Read};

use rtad_core::device::trim;

use super::block::{Block, Pool};
use super::cells::Cells;
use super::content::{could_be_id, hole};
use super::error::InputError;
use super::layout::{CellSyntax, Column};
use super::lines::without_mark;
use super::open::Opened;
use super::rejects::Reason;
use super::value;
use source::{Bounded, Escaped, RowPosition};

/// Columns of a table: of ids, and of the value.
pub type Columns<'a> = (&'a [Column], Option<&'a Column>);

/// Reads all rows and sends blocks of the cells of `columns`, until `send` returns false. Empty
/// lines are skipped.
pub fn read_blocks(
    input: &mut Opened,
    source: usize,
    columns: Columns<'_>,
    syntax: CellSyntax,
    pool: &Pool,
    send: impl FnMut(Block) -> bool,
) -> Result<(), InputError> {
    let name = input.name().to_owned();
    let position = RowPosition::default();
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(syntax.delimiter)
        .quoting(syntax.has_quotes())
        .terminator(csv::Terminator::Any(b'\n'))
        .has_headers(false)
        .flexible(true)
        .buffer_capacity(64 << 10)
        .from_reader(Bounded {
            inner: Escaped {
                inner: &mut *input,
                syntax,
                follows_escape: false,
            },
            position: &position,
            last: b'\n',
        });

    let table = Table {
        name: &name,
        source,
        columns,
        syntax,
    };
    let read = read_rows(&mut reader, &position, &table, pool, send);

    let line = position.line.get();
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

/// An input and its columns.
#[derive(Clone, Copy)]
struct Table<'a> {
    /// The input's name in errors.
    name: &'a str,
    source: usize,
    columns: Columns<'a>,
    syntax: CellSyntax,
}

/// The parts of a table's rows.
struct RowForm {
    /// Indexes of the columns of ids.
    ids: Vec<usize>,
    /// Index of the column of values.
    value: Option<usize>,
    /// Number of cells; a row may have empty ones after them.
    width: usize,
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

impl From<InputError> for ReadError {
    fn from(error: InputError) -> Self {
        Self::Input(error)
    }
}

impl Table<'_> {
    /// The form of the rows, by the first: the header, if there is one.
    fn row_form(&self, first: &csv::ByteRecord) -> Result<RowForm, InputError> {
        let (id_columns, value_column) = self.columns;
        let value_column = value_column.map_or(&[][..], std::slice::from_ref);
        let find = if self.syntax.has_header {
            name_columns
        } else {
            count_columns
        };
        let ids = find(self.name, first, id_columns)?;
        let value = find(self.name, first, value_column)?.first().copied();

        let mut width = first.len();
        if self.syntax.has_header {
            // A header may end with a delimiter. In a row, an empty cell is a null.
            width -= first
                .iter()
                .rev()
                .take_while(|cell| cell.is_empty())
                .count();
        }
        Ok(RowForm { ids, value, width })
    }

    /// Reads the next row. Returns its line; `None` at the end.
    fn read_row<R: Read>(
        &self,
        reader: &mut csv::Reader<Bounded<'_, R>>,
        position: &RowPosition,
        row: &mut csv::ByteRecord,
    ) -> Result<Option<u64>, ReadError> {
        let hidden_before = position.hidden_line_ends.get();
        position.line.set(reader.position().line() + hidden_before);
        position.since_row.set(0);
        position.ended.set(false);
        if !reader.read_byte_record(row)? {
            return Ok(None);
        }

        // Counted back from the end of the row: the reader skips empty lines before it.
        let inner = memchr::memchr_iter(b'\n', row.as_slice()).count() as u64;
        let line = (reader.position().line() + hidden_before).saturating_sub(1 + inner);
        if let Some(escape) = self.syntax.escape {
            let hidden = escapes::hidden_line_ends(row.as_slice(), escape);
            position.hidden_line_ends.set(hidden_before + hidden);
        }
        if position.ended.get() {
            return Err(InputError::RowWithoutEnd {
                input: self.name.to_owned(),
                line: line + 1,
            }
            .into());
        }
        Ok(Some(line))
    }
}

fn read_rows<R: Read>(
    reader: &mut csv::Reader<Bounded<'_, R>>,
    position: &RowPosition,
    table: &Table<'_>,
    pool: &Pool,
    mut send: impl FnMut(Block) -> bool,
) -> Result<(), ReadError> {
    let Table {
        name,
        source,
        syntax,
        ..
    } = *table;
    let delimiter = syntax.delimiter;
    let mut record = csv::ByteRecord::new();
    let mut next_line = table.read_row(reader, position, &mut record)?;
    if next_line.is_none() && !syntax.has_header {
        return Ok(());
    }
    let form = table.row_form(&record)?;

    let mut cells = Cells::new(pool);
    let mut header = csv::ByteRecord::new();
    if syntax.has_header {
        header.clone_from(&record);
        if hole(header.as_slice()).is_some() {
            add_bad_lines(&mut cells, 1, Reason::Malformed, &header, syntax);
        }
        next_line = table.read_row(reader, position, &mut record)?;
    }
    // A blank cell is no name, though a header may end with a delimiter.
    let mut names: HashSet<&[u8]> = HashSet::new();
    for cell in &header {
        let name = trim(cell);
        if !name.is_empty() {
            names.insert(name);
        }
    }

    let mut decoded = Vec::new();
    while let Some(line) = next_line {
        let first = record.get(form.ids[0]).unwrap_or_default();
        let is_header = names.contains(name_in(first)) && is_of_names(&record, &names);
        if is_header && !has_order_of(&header, &record) {
            let input = name.to_owned();
            return Err(InputError::OtherHeader { input, line }.into());
        }

        let width = form.width;
        let has_line_end = record.as_slice().contains(&b'\n');
        if is_header {
            for column in 0..form.ids.len() {
                cells.add(line, column, b"", Some(0));
            }
            cells.end_row();
        } else if hole(record.as_slice()).is_some() {
            add_bad_lines(&mut cells, line, Reason::Malformed, &record, syntax);
        } else if record.len() < width || record.iter().skip(width).any(|cell| !cell.is_empty()) {
            add_bad_lines(&mut cells, line, Reason::RowLength, &record, syntax);
        } else if has_line_end && has_row_in_quotes(&record, width, delimiter) {
            add_bad_lines(&mut cells, line, Reason::OpenQuote, &record, syntax);
        } else {
            let value = match form.value {
                Some(index) => value::parse(&record[index]),
                None => Some(0),
            };
            for (column, index) in form.ids.iter().enumerate() {
                let cell = match syntax.escape {
                    Some(escape) if record[*index].contains(&escape) => {
                        escapes::decode(&record[*index], escape, delimiter, &mut decoded);
                        &decoded[..]
                    }
                    _ => &record[*index],
                };
                cells.add(line, column, cell, value);
            }
            cells.end_row();
        }
        if cells.is_full() && !send(cells.take_block(source, pool)) {
            return Ok(());
        }
        next_line = table.read_row(reader, position, &mut record)?;
    }
    send(cells.take_block(source, pool));
    Ok(())
}

/// Whether a row has names of the header alone.
#[cold]
fn is_of_names(row: &csv::ByteRecord, names: &HashSet<&[u8]>) -> bool {
    row.iter()
        .map(name_in)
        .all(|cell| cell.is_empty() || names.contains(cell))
}

/// Whether a row of names is the header again.
#[cold]
fn has_order_of(header: &csv::ByteRecord, row: &csv::ByteRecord) -> bool {
    let names = header.iter().map(trim);
    row.iter().map(name_in).eq(names)
}

/// A cell as the name of a column. A byte order mark before a quote makes the quotes a part of the
/// cell.
fn name_in(cell: &[u8]) -> &[u8] {
    let name = without_mark(cell);
    let quoted = if name.len() < cell.len() {
        trim(name)
    } else {
        &[]
    };
    let inner = quoted
        .strip_prefix(b"\"")
        .and_then(|rest| rest.strip_suffix(b"\""));
    trim(inner.unwrap_or(name))
}

/// Whether a line of a row is one by itself: it has as many cells, any others are empty, and a
/// delimiter is within quotes.
fn has_row_in_quotes(row: &csv::ByteRecord, width: usize, delimiter: u8) -> bool {
    row.iter().enumerate().any(|(index, cell)| {
        let last = cell.iter().filter(|byte| **byte == b'\n').count();
        last > 0
            && cell
                .split(|byte| *byte == b'\n')
                .enumerate()
                .any(|(number, line)| {
                    let is_divided = line.contains(&delimiter);
                    let before = if number == 0 { index } else { 0 };
                    let after = row
                        .iter()
                        .skip(if number == last { index + 1 } else { row.len() });
                    let cells = line.split(|byte| *byte == delimiter).chain(after);
                    before + cells.clone().count() >= width
                        && cells.skip(width - before).all(<[u8]>::is_empty)
                        && (is_divided || width == 1)
                })
    })
}

/// Adds each line of a row as a bad row.
fn add_bad_lines(
    cells: &mut Cells,
    line: u64,
    reason: Reason,
    row: &csv::ByteRecord,
    syntax: CellSyntax,
) {
    let row = row.iter().collect::<Vec<_>>().join(&syntax.delimiter);
    for (number, text) in (line..).zip(row.split(|byte| *byte == b'\n')) {
        let mut text = text.to_vec();
        if let Some(escape) = syntax.escape {
            escapes::reveal(&mut text, escape, syntax.delimiter);
        }
        cells.add_bad_row(number, reason, &text);
    }
}

/// The index of each column in the header.
pub fn find_columns(
    name: &str,
    header: &csv::ByteRecord,
    columns: &[Column],
) -> Result<Vec<usize>, InputError> {
    let names: Vec<_> = header
        .iter()
        .map(|cell| String::from_utf8_lossy(trim(cell)))
        .collect();

    let mut indexes = Vec::with_capacity(columns.len());
    for column in columns {
        let wanted = trim(column.name.as_bytes());
        let mut found = (0..names.len()).filter(|index| names[*index].as_bytes() == wanted);
        match (found.next(), found.next()) {
            (Some(index), None) => indexes.push(index),
            (Some(_), Some(_)) => {
                return Err(InputError::ColumnTwice {
                    input: name.to_owned(),
                    column: column.name.clone(),
                });
            }
            (None, _) => {
                return Err(InputError::Column {
                    input: name.to_owned(),
                    column: column.name.clone(),
                    found: match names.len() {
                        0 => "none: it is empty".to_owned(),
                        count => listed(names.iter(), count),
                    },
                });
            }
        }
    }
    Ok(indexes)
}

/// The same in a file, which may lack the header.
fn name_columns(
    name: &str,
    first: &csv::ByteRecord,
    columns: &[Column],
) -> Result<Vec<usize>, InputError> {
    let mut indexes = find_columns(name, first, columns);
    if let Err(InputError::Column { column, found, .. }) = &mut indexes {
        let mut cells = first.iter();
        let id = cells.position(|cell| could_be_id(&String::from_utf8_lossy(trim(cell))));
        let index = id.or_else(|| column_index(column));
        if let Some(index) = index {
            let number = index + 1;
            *found += &format!("; without a header row: --no-header --column {number}");
        }
    }
    indexes
}

/// The index of a column that is named by its number, from 1.
pub fn column_index(name: &str) -> Option<usize> {
    let number: usize = name.parse().ok()?;
    if number.to_string() != name {
        return None;
    }
    number.checked_sub(1)
}

/// The index of each column in rows without a header.
fn count_columns(
    name: &str,
    first: &csv::ByteRecord,
    columns: &[Column],
) -> Result<Vec<usize>, InputError> {
    let mut indexes = Vec::new();
    for column in columns {
        match column_index(&column.name) {
            Some(index) if index < first.len() => indexes.push(index),
            _ => {
                return Err(InputError::ColumnNumber {
                    input: name.to_owned(),
                    column: column.name.clone(),
                    cells: first.len(),
                });
            }
        }
    }
    Ok(indexes)
}

/// The first of `count` names, on one line.
pub fn listed<N: AsRef<str>>(names: impl Iterator<Item = N>, count: usize) -> String {
    /// A table may have thousands of columns.
    const MAX_NAMES: usize = 50;
    let mut listed: Vec<_> = names
        .take(MAX_NAMES)
        .map(|name| visible(shown(name.as_ref())))
        .collect();
    if count > MAX_NAMES {
        listed.push(format!("and {} more", count - MAX_NAMES));
    }
    listed.join(", ")
}

/// A name on one line, as a flag has it: its quotes and backslashes are no escapes.
fn visible(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for letter in name.chars() {
        match letter {
            '"' | '\'' | '\\' => text.push(letter),
            _ => text.extend(letter.escape_debug()),
        }
    }
    text
}

/// A header's name, or a note instead of one that could be an id.
fn shown(name: &str) -> &str {
    if could_be_id(name) {
        "(hidden: looks like an id, is the header row missing?)"
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_of_names_is_one_short_line() {
        let listed = |names: &[&str]| listed(names.iter(), names.len());
        assert_eq!(
            listed(&["id\tname", "a\nb", "设备", r#" "a\.b""#, "\u{feff}c"]),
            r#"id\tname, a\nb, 设备,  "a\.b", \u{feff}c"#
        );
        let names = listed(&["x"; 1000]);
        assert!(
            names.len() < 200 && names.ends_with(", x, and 950 more"),
            "{names}"
        );
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
