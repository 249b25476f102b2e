//! Input errors: inputs that are missing, unreadable or of the wrong form.

use std::io;

use arrow_schema::ArrowError;
use rtad_store::StoreError;

use super::arrow::UnsupportedType;
use super::parquet::ParquetFault;
use super::remote::store_error;
use crate::progress::Stopped;

/// An input that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    #[error("input {input}: no such file, and no file matches it as a pattern")]
    Missing { input: String },
    #[error(
        "input {input}: no such file, and no file matches it as a pattern; names that begin with _ \
         or . match only if the pattern begins so"
    )]
    NoMatch { input: String },
    #[error(
        "input {input}: belongs to the {format} table in {folder}, whose files also hold rows that \
         the table has removed: expected plain files; write the table's rows to Parquet elsewhere, \
         with {reader}"
    )]
    Table {
        input: String,
        folder: String,
        format: &'static str,
        /// Programs that read such tables.
        reader: &'static str,
    },
    #[error(
        "input {input}: {reason}; accepted: a path, a pattern, `-`, file:///path, a key or a prefix/ \
         as in s3://bucket/key, gs://, az://, oss:// or cos://, https://host/path or http://host/path"
    )]
    Url { input: String, reason: &'static str },
    #[error("input {input}: could not list its objects")]
    List {
        input: String,
        source: Box<StoreError>,
    },
    #[error(
        "input {input}: nothing is below it: expected a file or an object whose name and folders do \
         not begin with _ or ., found {found} others"
    )]
    NoFile { input: String, found: usize },
    #[error("input {input}: could not fetch it after byte {offset}")]
    Fetch {
        input: String,
        offset: u64,
        source: Box<StoreError>,
    },
    #[error("input -: stdin can be read only once")]
    StdinTwice,
    #[error("input {input}: not a pattern")]
    Pattern {
        input: String,
        source: glob::PatternError,
    },
    #[error("input {input}: could not open it")]
    Open { input: String, source: io::Error },
    #[error(
        "input {input}: is a directory: expected files, or a folder by its name, which does not begin \
         with _"
    )]
    Directory { input: String },
    #[error(
        "input {input}: is {found}: expected rows of text in UTF-8 or another superset of ASCII, \
         plain or compressed by gzip or zstd"
    )]
    Foreign { input: String, found: &'static str },
    #[error("input {input}: could not read it after byte {offset}")]
    Read {
        input: String,
        offset: u64,
        source: io::Error,
    },
    #[error("input {input}: {encoding} data is cut short or corrupt after {offset} bytes of text")]
    Corrupt {
        input: String,
        encoding: &'static str,
        offset: u64,
        source: io::Error,
    },
    #[error(
        "input {input}: zstd data needs a window of over 128 MiB; compress it with --long=27 at \
         most"
    )]
    Window { input: String },
    #[error("input {input}: has no column {column:?}; columns found: {found}")]
    Column {
        input: String,
        column: String,
        found: String,
    },
    #[error(
        "input {input}: has no column {column}: its first row has {cells} cells, which --no-header \
         counts from 1"
    )]
    ColumnNumber {
        input: String,
        column: String,
        cells: usize,
    },
    #[error("input {input}: has more than one column {column:?}")]
    ColumnTwice { input: String, column: String },
    #[error(
        "input {input}: line {line} has the names of the header in another order; accepted: files \
         with one header each, as inputs of their own"
    )]
    OtherHeader { input: String, line: u64 },
    #[error("input {input}: the row at line {line} does not end; is a quote left open?")]
    RowWithoutEnd { input: String, line: u64 },
    #[error("none of {rows} rows is a JSON object: expected one object on each line")]
    NoObject { rows: u64 },
    #[error(
        "no row of {rows} has a member {column:?}; device.idfa is the member idfa of device, \
         device\\.idfa a member whose name has a dot"
    )]
    NoMember { column: String, rows: u64 },
    #[error(transparent)]
    Stopped(#[from] Stopped),
    #[error("input {input}")]
    ColumnType {
        input: String,
        source: UnsupportedType,
    },
    #[error("input {input}: column {column:?} could not be read")]
    ColumnValues {
        input: String,
        column: String,
        source: ArrowError,
    },
    #[error("input {input}")]
    Parquet { input: String, source: ParquetFault },
}

impl InputError {
    /// A failure to open the input, or to read its first bytes.
    pub fn open(input: &str, error: io::Error) -> Self {
        let input = input.to_owned();
        match store_error(error) {
            Ok(source) => Self::Fetch {
                input,
                offset: 0,
                source,
            },
            Err(source) => Self::Open { input, source },
        }
    }

    /// A failure to read the input after `offset` bytes.
    pub fn read(input: &str, offset: u64, error: io::Error) -> Self {
        let input = input.to_owned();
        match store_error(error) {
            Ok(source) => Self::Fetch {
                input,
                offset,
                source,
            },
            Err(source) => Self::Read {
                input,
                offset,
                source,
            },
        }
    }
}
