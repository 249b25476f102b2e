//! Batch reader: columns of Arrow arrays as blocks of cells.

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, StructArray};
use arrow_schema::{ArrowError, DataType, FieldRef, Fields};
use rtad_core::device::IdKind;

use super::arrow::{IdArray, ValueForm, column_of};
use super::block::{Block, Pool};
use super::cells::Cells;
use super::csv::{Columns, listed};
use super::error::InputError;
use super::layout::Column;
use super::member;
use super::open::Source;
use super::value;

/// Reads all batches and sends blocks of their cells, until `send` returns false.
pub fn read_blocks(
    source: &Source,
    index: usize,
    (columns, value): Columns<'_>,
    pool: &Pool,
    send: impl FnMut(Block) -> bool,
) -> Result<(), InputError> {
    let Source::Batches(batches) = source else {
        unreachable!("the layout is of batches")
    };
    let name = source.name();
    // The text of a value is its digits, whatever the kind of the ids.
    let value_column = value.map(|value| Column {
        name: value.name.clone(),
        kinds: IdKind::Openid.into(),
    });
    // Missing columns are an error also of a table without rows.
    for column in columns.iter().chain(&value_column) {
        find_column(&name, batches.fields(), column)?;
    }

    let mut sender = RowSender::new(index, pool, send);
    while let Some(table) = batches.next() {
        let mut ids = Vec::with_capacity(columns.len());
        for column in columns {
            ids.push(read_column(&name, &table, column)?);
        }
        let values = match &value_column {
            Some(column) => Some(read_column(&name, &table, column)?),
            None => None,
        };

        if !sender.send_rows(&ids, values.as_ref()) {
            return Ok(());
        }
    }
    sender.finish();
    Ok(())
}

/// A column of a table, or a member of one.
struct FoundColumn {
    /// Index in the table, then in each struct.
    path: Vec<usize>,
    field: FieldRef,
}

/// Finds a column by its name, or else a member of a struct by its path.
fn find_column(input: &str, fields: &Fields, column: &Column) -> Result<FoundColumn, InputError> {
    if let Some(index) = find_field(input, fields, &column.name, column)? {
        return Ok(FoundColumn {
            path: vec![index],
            field: fields[index].clone(),
        });
    }

    let mut path = Vec::new();
    let mut field = None;
    let mut inside = fields;
    let none = Fields::empty();
    for name in member::path(&column.name) {
        let Some(index) = find_field(input, inside, &name, column)? else {
            return Err(InputError::Column {
                input: input.to_owned(),
                column: column.name.clone(),
                found: listed_members(fields),
            });
        };
        path.push(index);
        field = Some(inside[index].clone());
        inside = match inside[index].data_type() {
            DataType::Struct(members) => members,
            _ => &none,
        };
    }
    let field = field.expect("a path has a name");
    Ok(FoundColumn { path, field })
}

/// The index of the only field of a name.
fn find_field(
    input: &str,
    fields: &Fields,
    name: &str,
    column: &Column,
) -> Result<Option<usize>, InputError> {
    let mut found = None;
    for (index, field) in fields.iter().enumerate() {
        if field.name().trim() != name.trim() {
            continue;
        }
        if found.is_some() {
            return Err(InputError::ColumnTwice {
                input: input.to_owned(),
                column: column.name.clone(),
            });
        }
        found = Some(index);
    }
    Ok(found)
}

/// Names of the columns, and of the members of structs.
fn listed_members(fields: &Fields) -> String {
    let mut names = Vec::new();
    for field in fields {
        append_names("", field, &mut names);
    }
    if names.is_empty() {
        return "none: it is empty".to_owned();
    }
    listed(names.iter(), names.len())
}

fn append_names(outside: &str, field: &FieldRef, names: &mut Vec<String>) {
    let name = format!("{outside}{}", field.name().trim());
    match field.data_type() {
        DataType::Struct(members) => {
            for member in members {
                append_names(&format!("{name}."), member, names);
            }
        }
        _ => names.push(name),
    }
}

fn read_column(name: &str, table: &StructArray, column: &Column) -> Result<IdArray, InputError> {
    // Tables of one stream may have the members of a struct in another order.
    let found = find_column(name, table.fields(), column)?;
    let form = ValueForm::of(&found.field).map_err(|source| InputError::ColumnType {
        input: name.to_owned(),
        source,
    })?;

    array_at(table, &found.path)
        .and_then(|array| IdArray::new(&array, form, &column.kinds))
        .map_err(|source| InputError::ColumnValues {
            input: name.to_owned(),
            column: column.name.clone(),
            source,
        })
}

fn array_at(table: &StructArray, path: &[usize]) -> Result<ArrayRef, ArrowError> {
    let mut array = column_of(table, path[0])?;
    for index in &path[1..] {
        array = column_of(array.as_struct(), *index)?;
    }
    Ok(array)
}

/// Sends the cells of rows in blocks.
pub struct RowSender<'p, F> {
    source: usize,
    pool: &'p Pool,
    send: F,
    cells: Cells,
    next_row: u64,
}

impl<'p, F: FnMut(Block) -> bool> RowSender<'p, F> {
    pub fn new(source: usize, pool: &'p Pool, send: F) -> Self {
        Self {
            source,
            pool,
            send,
            cells: Cells::new(pool),
            next_row: 1,
        }
    }

    /// Adds the next rows: all columns of ids, and the values if the input has them. False if no
    /// more are wanted.
    pub fn send_rows(&mut self, columns: &[IdArray], values: Option<&IdArray>) -> bool {
        let rows = columns.first().map_or(0, IdArray::len);
        let mut digits = [0; 32];

        for (number, ids) in columns.iter().enumerate() {
            for row in 0..rows {
                let value = match values {
                    None => Some(0),
                    Some(values) => value::parse(values.bytes(row)),
                };
                let text = ids.text(row, &mut digits);
                self.cells
                    .add(self.next_row + row as u64, number, text, value);
                if number == 0 {
                    self.cells.end_row();
                }

                if self.cells.is_full() && !self.send_block() {
                    return false;
                }
            }
        }
        self.next_row += rows as u64;
        true
    }

    /// Sends the rest.
    pub fn finish(&mut self) {
        self.send_block();
    }

    fn send_block(&mut self) -> bool {
        let block = self.cells.take_block(self.source, self.pool);
        (self.send)(block)
    }
}
