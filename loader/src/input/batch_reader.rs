//! Batch reader: batches of rows as blocks of cells.

use super::block::{Block, Pool};
use super::cells::Cells;
use super::csv::{Columns, find_columns};
use super::error::InputError;
use super::open::Source;
use super::value;

/// Reads all batches and sends blocks of their cells, until `send` returns false.
pub fn read_blocks(
    source: &Source,
    index: usize,
    (columns, value): Columns<'_>,
    pool: &Pool,
    mut send: impl FnMut(Block) -> bool,
) -> Result<(), InputError> {
    let Source::Batches(batches) = source else {
        unreachable!("the layout is of batches")
    };
    let name = source.name();
    let header = csv::ByteRecord::from(batches.header().to_vec());
    let columns = find_columns(&name, &header, columns)?;
    let value = value.map(|value| find_columns(&name, &header, std::slice::from_ref(value)));
    let value = value.transpose()?.map(|found| found[0]);
    let mut cells = Cells::new(pool);
    let mut first_row = 1;
    while let Some(batch) = batches.next() {
        for (number, column) in columns.iter().enumerate() {
            for row in 0..batch.rows() {
                let value = match value {
                    None => Some(0),
                    Some(value) => value::parse(batch.text(value, row)),
                };
                cells.add(
                    first_row + row as u64,
                    number,
                    batch.text(*column, row),
                    value,
                );
                if number == 0 {
                    cells.end_row();
                }
                if cells.is_full() && !send(cells.take_block(index, pool)) {
                    return Ok(());
                }
            }
        }
        first_row += batch.rows() as u64;
    }
    send(cells.take_block(index, pool));
    Ok(())
}
