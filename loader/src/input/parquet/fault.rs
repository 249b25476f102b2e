//! Parquet faults: files, columns and pages that cannot be read.

use std::io;

/// A Parquet file that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ParquetFault {
    #[error(
        "a Parquet file is read from its end, and a pipe cannot be; \
         write it to a file, or pass its URL"
    )]
    Pipe,
    #[error("is no Parquet file, or not the whole of one: {reason}")]
    Foreign { reason: &'static str },
    #[error("its metadata {reason}")]
    Metadata { reason: String },
    #[error("has no column {column:?}; columns found: {found}")]
    Column { column: String, found: String },
    #[error("has more than one column {column:?}")]
    ColumnTwice { column: String },
    #[error(
        "column {column:?} is {found}; accepted: text, binary, fixed binary and integers, \
         not in a list or a map; a member of a group is named group.member"
    )]
    ColumnType { column: String, found: String },
    #[error("row group {row_group}, column {column:?}: {reason}")]
    Data {
        row_group: usize,
        column: String,
        reason: String,
    },
}

/// A page or metadata that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PageFault {
    #[error("could not be read")]
    Read(#[source] io::Error),
    #[error("{0}")]
    Corrupt(String),
}
