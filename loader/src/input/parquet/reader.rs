//! Parquet file reader: the footer, then the selected columns of each row group.

use std::fs::File;
use std::io;
use std::sync::Arc;

use parquet::file::metadata::{
    ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader, ParquetStatisticsPolicy,
};

use super::super::block::{Block, Pool};
use super::super::cells::Cells;
use super::super::csv::Columns;
use super::super::error::InputError;
use super::super::layout::Column;
use super::super::open::Source;
use super::super::remote::Remote;
use super::super::value;
use super::access::FileSource;
use super::caught::caught;
use super::column;
use super::fault::{PageFault, ParquetFault};
use super::schema::{self, Leaf};
use crate::progress::Bytes;

/// Limit of a file's metadata. A table of thousands of columns and row groups has tens of MiB.
const MAX_METADATA_BYTES: u64 = 64 << 20;
const MAGIC: &[u8; 4] = b"PAR1";

/// Reads the columns of a file and sends blocks of their values, until `send` returns false. Counts
/// the file's bytes by row groups.
pub fn read_blocks(
    source: &Source,
    index: usize,
    columns: Columns<'_>,
    (pool, bytes): (&Pool, &Bytes),
    send: impl FnMut(Block) -> bool,
) -> Result<(), InputError> {
    let access = open(source)?;
    let (columns, value) = columns;
    let reader = OpenFile {
        name: source.name(),
        access: Arc::new(access),
        columns,
        value,
    };
    reader.read(index, (pool, bytes), send)
}

fn open(source: &Source) -> Result<FileSource, InputError> {
    let name = source.name();
    let pipe = || InputError::Parquet {
        input: name.clone(),
        source: ParquetFault::Pipe,
    };
    match source {
        Source::Stdin | Source::Batches(_) => Err(pipe()),
        Source::Remote(url) => Ok(FileSource::remote(
            Remote::open(url).map_err(|error| InputError::open(&name, error))?,
        )),
        Source::File(path) => {
            let failed = |source| InputError::Open {
                input: name.clone(),
                source,
            };
            // Checked first: opening a pipe blocks until another process writes to it.
            let meta = std::fs::metadata(path).map_err(failed)?;
            if meta.is_dir() {
                return Err(InputError::Directory { input: name });
            }
            if !meta.is_file() {
                return Err(pipe());
            }
            let file = File::open(path).map_err(failed)?;
            let len = file.metadata().map_err(failed)?.len();
            Ok(FileSource::File { file, len })
        }
    }
}

/// An open file.
pub struct OpenFile<'a> {
    pub(super) name: String,
    pub(super) access: Arc<FileSource>,
    pub(super) columns: &'a [Column],
    pub(super) value: Option<&'a Column>,
}

impl OpenFile<'_> {
    pub fn read(
        &self,
        source: usize,
        (pool, bytes): (&Pool, &Bytes),
        mut send: impl FnMut(Block) -> bool,
    ) -> Result<(), InputError> {
        let metadata = self.metadata()?;
        let group_bytes = self.access.len() / (metadata.num_row_groups() as u64).max(1);
        let leaves = schema::find(metadata.file_metadata().schema_descr(), self.columns)
            .map_err(|fault| self.fault(fault))?;
        let value = self.value.map(|value| {
            let leaves = schema::find(
                metadata.file_metadata().schema_descr(),
                std::slice::from_ref(value),
            );
            leaves
                .map(|leaves| (value, leaves))
                .map_err(|fault| self.fault(fault))
        });
        let value = value.transpose()?;
        let mut cells = Cells::new(pool);
        let mut values = Vec::new();
        let mut first_row = 1_u64;
        for (number, group) in metadata.row_groups().iter().enumerate() {
            let rows = u64::try_from(group.num_rows()).unwrap_or(u64::MAX);
            // Columns come one after the other: the values of the group's rows are kept meanwhile.
            values.clear();
            if let Some((column, leaves)) = &value {
                let Leaf { index, form } = &leaves[0];
                let mut each = |value: Option<&[u8]>| {
                    values.push(value.and_then(value::parse));
                    true
                };
                column::read(&self.access, group.column(*index), rows, *form, &mut each)
                    .map_err(|fault| self.page_fault(fault, number, column))?;
            }
            for (column, Leaf { index, form }) in leaves.iter().enumerate() {
                let mut row = first_row;
                let mut wanted = true;
                let mut each = |text: Option<&[u8]>| {
                    let value = match value {
                        None => Some(0),
                        Some(_) => values.get((row - first_row) as usize).copied().flatten(),
                    };
                    cells.add(row, column, text.unwrap_or_default(), value);
                    row = row.saturating_add(1);
                    if column == 0 {
                        cells.end_row();
                    }
                    wanted = !cells.is_full() || send(cells.take_block(source, pool));
                    wanted
                };
                column::read(&self.access, group.column(*index), rows, *form, &mut each)
                    .map_err(|fault| self.page_fault(fault, number, &self.columns[column]))?;
                if !wanted {
                    return Ok(());
                }
            }
            first_row = first_row.saturating_add(rows);
            bytes.add(group_bytes);
        }
        send(cells.take_block(source, pool));
        Ok(())
    }

    fn metadata(&self) -> Result<ParquetMetaData, InputError> {
        let foreign = |reason| self.fault(ParquetFault::Foreign { reason });
        let read = |part: std::ops::Range<u64>| {
            let until = part.end;
            let start = part.start;
            self.access
                .read(part, until)
                .map_err(|error| self.unreadable(error, start))
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
            return Err(self.fault(ParquetFault::Metadata { reason }));
        }
        let bytes = read(len - 8 - bytes..len - 8)?;
        let options = ParquetMetaDataOptions::new()
            .with_column_stats_policy(ParquetStatisticsPolicy::SkipAll)
            .with_size_stats_policy(ParquetStatisticsPolicy::SkipAll)
            .with_encoding_stats_policy(ParquetStatisticsPolicy::SkipAll);
        caught(|| ParquetMetaDataReader::decode_metadata_with_options(&bytes, Some(&options)))
            .map_err(|fault| match fault {
                PageFault::Read(error) => self.unreadable(error, len),
                PageFault::Corrupt(reason) => self.fault(ParquetFault::Metadata { reason }),
            })
    }

    fn page_fault(&self, fault: PageFault, row_group: usize, column: &Column) -> InputError {
        match fault {
            PageFault::Read(error) => self.unreadable(error, 0),
            PageFault::Corrupt(reason) => {
                let column = column.name.clone();
                self.fault(ParquetFault::Data {
                    row_group,
                    column,
                    reason,
                })
            }
        }
    }

    fn fault(&self, source: ParquetFault) -> InputError {
        InputError::Parquet {
            input: self.name.clone(),
            source,
        }
    }

    fn unreadable(&self, error: io::Error, offset: u64) -> InputError {
        InputError::read(&self.name, offset, error)
    }
}
