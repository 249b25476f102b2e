//! Parquet file reader: the footer, then the selected columns of each row group.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use parquet::file::metadata::{
    ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader, ParquetStatisticsPolicy,
};
use parquet::schema::types::SchemaDescriptor;
use rtad_core::device::IdKind;

use super::super::arrow::IdArray;
use super::super::batch_reader::RowSender;
use super::super::block::{Block, Pool};
use super::super::csv::Columns;
use super::super::error::InputError;
use super::super::kinds::Kinds;
use super::super::layout::Column;
use super::super::open::Source;
use super::super::remote::Remote;
use super::access::FileSource;
use super::caught::caught;
use super::column::ColumnIds;
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
    pool: &Pool,
    bytes: &Bytes,
    send: impl FnMut(Block) -> bool,
) -> Result<(), InputError> {
    let reader = OpenFile {
        name: source.name(),
        access: Arc::new(open(source)?),
        columns: columns.0,
        value: columns.1,
    };
    reader.read(index, pool, bytes, send)
}

fn open(source: &Source) -> Result<FileSource, InputError> {
    let name = source.name();
    match source {
        Source::Stdin | Source::Batches(_) => Err(InputError::Parquet {
            input: name,
            source: ParquetFault::Pipe,
        }),
        Source::Remote(url) => Ok(FileSource::remote(
            Remote::open(url).map_err(|error| InputError::open(&name, error))?,
        )),
        Source::Listed(object) => Ok(FileSource::remote(object.open())),
        Source::File(path) => {
            // Checked first: opening a pipe blocks until another process writes to it.
            match std::fs::metadata(path) {
                Ok(found) if found.is_dir() => return Err(InputError::Directory { input: name }),
                Ok(found) if !found.is_file() => {
                    return Err(InputError::Parquet {
                        input: name,
                        source: ParquetFault::Pipe,
                    });
                }
                _ => {}
            }

            open_file(path).map_err(|source| InputError::Open {
                input: name,
                source,
            })
        }
    }
}

fn open_file(path: &Path) -> io::Result<FileSource> {
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    Ok(FileSource::File { file, len })
}

/// An open file.
pub struct OpenFile<'a> {
    pub name: String,
    pub access: Arc<FileSource>,
    pub columns: &'a [Column],
    pub value: Option<&'a Column>,
}

/// A column that is read.
struct Selected<'a> {
    column: &'a Column,
    kinds: Kinds,
    leaf: Leaf,
}

impl<'a> OpenFile<'a> {
    pub fn read(
        &self,
        source: usize,
        pool: &Pool,
        bytes: &Bytes,
        send: impl FnMut(Block) -> bool,
    ) -> Result<(), InputError> {
        let metadata = self.metadata()?;
        let schema = metadata.file_metadata().schema_descr();
        let mut selected = Vec::with_capacity(self.columns.len() + 1);
        for column in self.columns {
            selected.push(self.select(schema, column, column.kinds.clone())?);
        }
        if let Some(column) = self.value {
            // The text of a value is its digits, whatever the kind of the ids.
            selected.push(self.select(schema, column, IdKind::Openid.into())?);
        }

        let group_bytes = self.access.len() / (metadata.num_row_groups() as u64).max(1);
        let mut sender = RowSender::new(source, pool, send);
        for row_group in 0..metadata.num_row_groups() {
            let mut readers = self.open_group(&metadata, row_group, &selected)?;
            loop {
                let mut ids = self.next_batch(&mut readers, row_group, &selected)?;
                if ids.is_empty() {
                    break;
                }
                let values = if self.value.is_some() {
                    ids.pop()
                } else {
                    None
                };
                if !sender.send_rows(&ids, values.as_ref()) {
                    return Ok(());
                }
            }
            bytes.add(group_bytes);
        }
        sender.finish();
        Ok(())
    }

    fn select(
        &self,
        schema: &SchemaDescriptor,
        column: &'a Column,
        kinds: Kinds,
    ) -> Result<Selected<'a>, InputError> {
        let leaf = schema::find(schema, column).map_err(|fault| self.fault(fault))?;
        Ok(Selected {
            column,
            kinds,
            leaf,
        })
    }

    /// The readers of a row group's columns; none if it has no rows.
    fn open_group(
        &self,
        metadata: &ParquetMetaData,
        row_group: usize,
        selected: &[Selected<'_>],
    ) -> Result<Vec<ColumnIds>, InputError> {
        let mut readers = Vec::with_capacity(selected.len());
        if metadata.row_group(row_group).num_rows() == 0 {
            return Ok(readers);
        }

        for Selected {
            column,
            kinds,
            leaf,
        } in selected
        {
            let kinds = kinds.clone();
            let reader = ColumnIds::open(&self.access, metadata, row_group, leaf, kinds);
            readers.push(reader.map_err(|fault| self.page_fault(fault, row_group, column))?);
        }
        Ok(readers)
    }

    /// The next ids of each column; none at the end of the row group, where all columns end.
    fn next_batch(
        &self,
        readers: &mut [ColumnIds],
        row_group: usize,
        selected: &[Selected<'_>],
    ) -> Result<Vec<IdArray>, InputError> {
        let mut ids = Vec::with_capacity(readers.len());
        for (reader, Selected { column, .. }) in readers.iter_mut().zip(selected) {
            let next = reader.next_batch();
            ids.extend(next.map_err(|fault| self.page_fault(fault, row_group, column))?);
        }
        Ok(ids)
    }

    fn metadata(&self) -> Result<ParquetMetaData, InputError> {
        let len = self.access.len();
        if len < 12 {
            return Err(self.foreign("it is too short"));
        }

        let head = self.read_part(0..4)?;
        match &head[..] {
            magic if magic == MAGIC => {}
            b"PARE" => return Err(self.foreign("it is encrypted")),
            [0x1f, 0x8b, ..] | [0x28, 0xb5, 0x2f, 0xfd] => {
                return Err(self.foreign("it is compressed as a whole; unpack it first"));
            }
            _ => return Err(self.foreign("it does not begin as one")),
        }

        let tail = self.read_part(len - 8..len)?;
        if &tail[4..] == b"PARE" {
            return Err(self.foreign("it is encrypted"));
        }
        if &tail[4..] != MAGIC {
            return Err(self.foreign("it does not end as one"));
        }

        let bytes = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
        if bytes > len - 12 {
            return Err(self.foreign("its metadata would be longer than the file"));
        }
        if bytes > MAX_METADATA_BYTES {
            let reason = format!("has {bytes} bytes, the limit is {MAX_METADATA_BYTES}");
            return Err(self.fault(ParquetFault::Metadata { reason }));
        }

        let metadata = self.read_part(len - 8 - bytes..len - 8)?;
        let options = ParquetMetaDataOptions::new()
            .with_column_stats_policy(ParquetStatisticsPolicy::SkipAll)
            .with_size_stats_policy(ParquetStatisticsPolicy::SkipAll)
            .with_encoding_stats_policy(ParquetStatisticsPolicy::SkipAll);
        caught(|| ParquetMetaDataReader::decode_metadata_with_options(&metadata, Some(&options)))
            .map_err(|reason| self.fault(ParquetFault::Metadata { reason }))
    }

    fn read_part(&self, part: Range<u64>) -> Result<Vec<u8>, InputError> {
        let start = part.start;
        let read = self.access.read(part);
        read.map_err(|error| self.unreadable(error, start))
    }

    fn foreign(&self, reason: &'static str) -> InputError {
        self.fault(ParquetFault::Foreign { reason })
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
