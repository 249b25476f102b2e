//! Parquet input: of each row group, only the columns that were asked for.
//!
//! ```text
//! footer ── checked ──▶ for each row group and column: pages ── counts checked ──▶ values ──▶ cells
//! ```
//!
//! The `parquet` crate reads metadata, pages and values. This module finds the footer and the columns,
//! counts rows (from 1 through the whole file) and turns values into texts; a null is blank. A file
//! is read from its end: from disk, or from a URL whose server knows ranges, not from a pipe.
//!
//! A damaged file ends in an error that names the row group and the column; a panic inside the
//! crate is such an error too (`caught.rs`). Counts that decide how much memory the crate allocates
//! are checked first where a page holds them (`checked.rs`). Not bounded, as dumps are the
//! operator's own files; a limit on the process's memory stops a file made to exhaust it:
//!
//! - A page has up to 2 GiB, packed or not. Gzip, Brotli and LZ4 frames that hold more than their
//!   page's header says are unpacked wholly before the error.
//! - A schema nests as deep as the file says, and the stack with it. A group of it that claims 2^31
//!   members reserves 16 GiB of address space before the error.
//! - Texts in DELTA_BYTE_ARRAY repeat any number of bytes of the text before. 1,024 of them are in
//!   memory at once, as of any other encoding.

mod access;
mod caught;
mod checked;
mod chunk;
mod column;
mod lz4;
mod schema;

use std::fs::File;
use std::io;
use std::sync::Arc;

use parquet::file::metadata::{
    ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader, ParquetStatisticsPolicy,
};

use super::cells::Cells;
use super::open::unreadable;
use super::remote::{Remote, store_error};
use super::{Block, Column, InputError, Pool, Source};
use access::Access;
use caught::caught;
use schema::Leaf;

/// Of a file's metadata; a table of thousands of columns and row groups has some tens of MiB.
const MAX_METADATA_BYTES: u64 = 64 << 20;
const MAGIC: &[u8; 4] = b"PAR1";

/// A Parquet file that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Fault {
    #[error(
        "a Parquet file is read from its end, and a pipe cannot be; write it to a file, or name its URL"
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
        "column {column:?} is {found}; accepted: text, binary, fixed binary and integers, not in a list or a map; \
         a member of a group is named group.member"
    )]
    ColumnType { column: String, found: String },
    #[error("row group {row_group}, column {column:?}: {reason}")]
    Data { row_group: usize, column: String, reason: String },
}

/// What goes wrong with a part of a file.
#[derive(Debug, thiserror::Error)]
enum PageFault {
    #[error("could not be read")]
    Read(#[source] io::Error),
    #[error("{0}")]
    Corrupt(String),
}

/// Reads the columns of a file, handing over blocks of their values. Stops early, without an error, if `send` says that nobody wants more.
pub(super) fn read_blocks(
    source: &Source,
    index: usize,
    columns: &[Column],
    pool: &Pool,
    send: impl FnMut(Block) -> bool,
) -> Result<(), InputError> {
    let access = open(source)?;
    let reader = Reader { name: source.name(), access: Arc::new(access), columns };
    reader.read(index, pool, send)
}

fn open(source: &Source) -> Result<Access, InputError> {
    let name = source.name();
    let pipe = || InputError::Parquet { input: name.clone(), source: Fault::Pipe };
    match source {
        Source::Stdin => Err(pipe()),
        Source::Remote(url) => {
            Ok(Access::remote(Remote::open(url).map_err(|error| unreadable(&name, 0, error))?))
        }
        Source::File(path) => {
            let failed = |source| InputError::Open { input: name.clone(), source };
            // Before it is opened: that waits, of a pipe, for whoever writes into it.
            let meta = std::fs::metadata(path).map_err(failed)?;
            if meta.is_dir() {
                return Err(InputError::Directory { input: name });
            }
            if !meta.is_file() {
                return Err(pipe());
            }
            let file = File::open(path).map_err(failed)?;
            let len = file.metadata().map_err(failed)?.len();
            Ok(Access::File { file, len })
        }
    }
}

/// A file that is being read.
struct Reader<'a> {
    name: String,
    access: Arc<Access>,
    columns: &'a [Column],
}

impl Reader<'_> {
    fn read(
        &self,
        source: usize,
        pool: &Pool,
        mut send: impl FnMut(Block) -> bool,
    ) -> Result<(), InputError> {
        let metadata = self.metadata()?;
        let leaves = schema::find(metadata.file_metadata().schema_descr(), self.columns)
            .map_err(|fault| self.fault(fault))?;
        let mut cells = Cells::new(pool);
        let mut first_row = 1_u64;
        for (number, group) in metadata.row_groups().iter().enumerate() {
            let rows = u64::try_from(group.num_rows()).unwrap_or(u64::MAX);
            for (place, Leaf { index, form }) in leaves.iter().enumerate() {
                let mut row = first_row;
                let mut wanted = true;
                let mut each = |value: Option<&[u8]>| {
                    cells.add(row, place, Some(value.unwrap_or_default()));
                    row = row.saturating_add(1);
                    if place == 0 {
                        cells.end_row();
                    }
                    wanted = !cells.is_full() || send(cells.take_block(source, pool));
                    wanted
                };
                column::read(&self.access, group.column(*index), rows, *form, &mut each)
                    .map_err(|fault| self.page_fault(fault, number, place))?;
                if !wanted {
                    return Ok(());
                }
            }
            first_row = first_row.saturating_add(rows);
        }
        send(cells.take_block(source, pool));
        Ok(())
    }

    fn metadata(&self) -> Result<ParquetMetaData, InputError> {
        let foreign = |reason| self.fault(Fault::Foreign { reason });
        let read = |part: std::ops::Range<u64>| {
            let until = part.end;
            let start = part.start;
            self.access.read(part, until).map_err(|error| self.unreadable(error, start))
        };
        let len = self.access.len();
        if len < 12 {
            return Err(foreign("it is too short"));
        }
        let head = read(0..4)?;
        match &head[..] {
            magic if magic == MAGIC => {}
            b"PARE" => return Err(foreign("it is encrypted")),
            [0x1f, 0x8b, ..] | [0x28, 0xb5, 0x2f, 0xfd] => {
                return Err(foreign("it is compressed as a whole; unpack it first"));
            }
            _ => return Err(foreign("it does not begin as one")),
        }
        let tail = read(len - 8..len)?;
        if &tail[4..] == b"PARE" {
            return Err(foreign("it is encrypted"));
        }
        if &tail[4..] != MAGIC {
            return Err(foreign("it does not end as one"));
        }
        let bytes = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
        if bytes > len - 12 {
            return Err(foreign("its metadata would be longer than the file"));
        }
        if bytes > MAX_METADATA_BYTES {
            let reason = format!("has {bytes} bytes, the limit is {MAX_METADATA_BYTES}");
            return Err(self.fault(Fault::Metadata { reason }));
        }
        let bytes = read(len - 8 - bytes..len - 8)?;
        let options = ParquetMetaDataOptions::new()
            .with_column_stats_policy(ParquetStatisticsPolicy::SkipAll)
            .with_size_stats_policy(ParquetStatisticsPolicy::SkipAll)
            .with_encoding_stats_policy(ParquetStatisticsPolicy::SkipAll);
        caught(|| ParquetMetaDataReader::decode_metadata_with_options(&bytes, Some(&options)))
            .map_err(|fault| match fault {
                PageFault::Read(error) => self.unreadable(error, len),
                PageFault::Corrupt(reason) => self.fault(Fault::Metadata { reason }),
            })
    }

    fn page_fault(&self, fault: PageFault, row_group: usize, place: usize) -> InputError {
        match fault {
            PageFault::Read(error) => self.unreadable(error, 0),
            PageFault::Corrupt(reason) => {
                let column = self.columns[place].name.clone();
                self.fault(Fault::Data { row_group, column, reason })
            }
        }
    }

    fn fault(&self, source: Fault) -> InputError {
        InputError::Parquet { input: self.name.clone(), source }
    }

    fn unreadable(&self, error: io::Error, offset: u64) -> InputError {
        let input = self.name.clone();
        match store_error(error) {
            Ok(source) => InputError::Fetch { input, offset, source },
            Err(source) => InputError::Read { input, offset, source },
        }
    }
}

#[cfg(test)]
mod tests;
