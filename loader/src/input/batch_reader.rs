//! Batch reader: columns of Arrow arrays as blocks of cells.

use arrow_array::StructArray;
use rtad_core::device::IdKind;

use super::arrow::{IdArray, ValueForm, column_of};
use super::block::{Block, Pool};
use super::cells::Cells;
use super::csv::{Columns, find_columns};
use super::error::InputError;
use super::kinds::Kinds;
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
    let header = csv::ByteRecord::from(batches.header().to_vec());
    let id_indexes = find_columns(&name, &header, columns)?;
    let value_index = match value {
        Some(value) => Some(find_columns(&name, &header, std::slice::from_ref(value))?[0]),
        None => None,
    };

    let mut sender = RowSender::new(index, pool, send);
    while let Some(table) = batches.next() {
        let mut ids = Vec::with_capacity(columns.len());
        for (column, index) in columns.iter().zip(&id_indexes) {
            ids.push(read_column(&name, &table, *index, &column.kinds)?);
        }
        let values = match value_index {
            // The text of a value is its digits, whatever the kind of the ids.
            Some(index) => Some(read_column(&name, &table, index, &IdKind::Openid.into())?),
            None => None,
        };

        if !sender.send_rows(&ids, values.as_ref()) {
            return Ok(());
        }
    }
    sender.finish();
    Ok(())
}

fn read_column(
    name: &str,
    table: &StructArray,
    index: usize,
    kinds: &Kinds,
) -> Result<IdArray, InputError> {
    let field = &table.fields()[index];
    let form = ValueForm::of(field).map_err(|source| InputError::ColumnType {
        input: name.to_owned(),
        source,
    })?;

    column_of(table, index)
        .and_then(|array| IdArray::new(&array, form, kinds))
        .map_err(|source| InputError::ColumnValues {
            input: name.to_owned(),
            column: field.name().clone(),
            source,
        })
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
