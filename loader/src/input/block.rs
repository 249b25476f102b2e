//! Blocks: whole rows of one input, passed from readers to parsers.

use parking_lot::Mutex;

use super::rejects::Reason;

pub const BLOCK_BYTES: usize = 1 << 20;
/// Longer rows are rejected.
pub const MAX_ROW_BYTES: usize = 64 << 10;

/// One cell of a block. It starts at the end of the previous one.
#[derive(Debug)]
pub struct Cell {
    pub line: u64,
    pub column: usize,
    pub end: usize,
    /// The value of its row, if that has a valid one; 0 in inputs without values.
    pub value: Option<u8>,
    /// Why the reader rejects it; `None` if it is to be parsed.
    pub rejected: Option<Reason>,
}

#[derive(Debug)]
pub enum Rows {
    Lines { first: u64 },
    Cells { values: Vec<Cell>, rows: u64 },
}

/// Some whole rows of one input.
#[derive(Debug)]
pub struct Block {
    pub source: usize,
    pub bytes: Vec<u8>,
    pub len: usize,
    pub rows: Rows,
}

/// Reusable buffers for blocks.
#[derive(Debug, Default)]
pub struct Pool(Mutex<Vec<Vec<u8>>>);

impl Pool {
    pub fn take(&self, len: usize) -> Vec<u8> {
        let mut bytes = self.0.lock().pop().unwrap_or_default();
        if bytes.len() < len {
            bytes.resize(len, 0);
        }
        bytes
    }

    pub fn give_back(&self, bytes: Vec<u8>) {
        self.0.lock().push(bytes);
    }
}
