//! Input layout: the sources of a run, their format and their id columns.

use rtad_core::device::{Case, KeyMaker};

use super::kinds::Kinds;
use super::open::Source;

/// A column and the kinds of id in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub kinds: Kinds,
}

/// Syntax of CSV.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CellSyntax {
    /// Whether the first row has the names of the columns. Their names are numbers without it.
    pub has_header: bool,
    pub delimiter: u8,
    /// Character before one that is part of a cell.
    pub escape: Option<u8>,
}

impl CellSyntax {
    /// Whether quotes may enclose a cell. Programs that put control characters between cells write
    /// quotes as they are: Hive, and with escapes ClickHouse, MySQL and PostgreSQL. Excel has tabs
    /// and quotes, without escapes.
    pub const fn has_quotes(self) -> bool {
        // Spark quotes cells that have a tab or a line end: these rows are malformed then.
        let is_tab_of_spreadsheet = self.delimiter == b'\t' && self.escape.is_none();
        is_tab_of_spreadsheet || !self.delimiter.is_ascii_control()
    }
}

/// Format of the rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// One id per line.
    Lines { kinds: Kinds },
    /// Rows of cells.
    Csv {
        columns: Vec<Column>,
        cells: CellSyntax,
    },
    /// One JSON object per line.
    Ndjson { columns: Vec<Column> },
    /// Columns in row groups.
    Parquet { columns: Vec<Column> },
    /// Columns of batches from the program around the loader.
    Batches { columns: Vec<Column> },
}

impl Layout {
    /// The columns; none of lines.
    pub fn columns(&self) -> &[Column] {
        match self {
            Self::Lines { .. } => &[],
            Self::Csv { columns, .. }
            | Self::Ndjson { columns }
            | Self::Parquet { columns }
            | Self::Batches { columns } => columns,
        }
    }
}

/// Sources and their format.
#[derive(Debug)]
pub struct Input {
    pub sources: Vec<Source>,
    pub layout: Layout,
    /// The column with the value of each row's devices; only with a layout of columns.
    pub value: Option<Column>,
    /// Overrides the kinds' canonical case.
    pub case: Option<Case>,
    pub keys: KeyMaker,
}
