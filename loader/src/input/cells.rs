//! Cells: column values that a reader collects into a block for the parsers.

use super::block::{BLOCK_BYTES, Block, Cell, MAX_ROW_BYTES, Pool, Rows};
use super::content::hole;
use super::rejects::Reason;

/// A block being filled.
pub struct Cells {
    bytes: Vec<u8>,
    values: Vec<Cell>,
    rows: u64,
}

impl Cells {
    pub fn new(pool: &Pool) -> Self {
        let mut bytes = pool.take(0);
        bytes.clear();
        Self {
            bytes,
            values: Vec::new(),
            rows: 0,
        }
    }

    /// Adds a row's cell. A cell over the limit is truncated just beyond it, and so rejected later.
    pub fn add(&mut self, line: u64, column: usize, cell: &[u8], value: Option<u8>) {
        self.bytes
            .extend_from_slice(&cell[..cell.len().min(MAX_ROW_BYTES + 1)]);
        self.values.push(Cell {
            line,
            column,
            end: self.bytes.len(),
            value,
            rejected: None,
        });
    }

    /// Adds a row without cells. A text with a hole begins there, so that the hole is not cut off.
    pub fn add_bad_row(&mut self, line: u64, reason: Reason, text: &[u8]) {
        let text = &text[hole(text).unwrap_or(0)..];
        self.bytes
            .extend_from_slice(&text[..text.len().min(MAX_ROW_BYTES)]);
        self.values.push(Cell {
            line,
            column: 0,
            end: self.bytes.len(),
            value: None,
            rejected: Some(reason),
        });
        self.end_row();
    }

    /// Counts a row.
    pub fn end_row(&mut self) {
        self.rows += 1;
    }

    pub fn is_full(&self) -> bool {
        self.bytes.len() >= BLOCK_BYTES || self.values.len() >= BLOCK_BYTES / 32
    }

    /// Returns the block and starts another.
    pub fn take_block(&mut self, source: usize, pool: &Pool) -> Block {
        let full = std::mem::replace(self, Self::new(pool));
        let rows = Rows::Cells {
            values: full.values,
            rows: full.rows,
        };
        Block {
            source,
            len: full.bytes.len(),
            bytes: full.bytes,
            rows,
        }
    }
}
