//! Column values: the ids of one column in one row group.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, StructArray};
use arrow_schema::{ArrowError, DataType};
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;
use parquet::basic::Compression;
use parquet::file::metadata::ParquetMetaData;

use super::super::arrow::{IdArray, ValueForm, column_of};
use super::super::kinds::Kinds;
use super::access::FileSource;
use super::caught::caught;
use super::chunk::Chunk;
use super::fault::PageFault;
use super::pages::{OneColumn, location};
use super::schema::Leaf;

/// Rows decoded at once: those of two columns of texts fit the second-level cache.
pub const BATCH_ROWS: usize = 4096;

/// Reader of a column's ids, a batch at a time.
pub struct ColumnIds {
    reader: ParquetRecordBatchReader,
    chunk: Chunk,
    form: ValueForm,
    kinds: Kinds,
    rows: usize,
    rows_read: usize,
}

impl ColumnIds {
    /// Opens a column of a row group with `rows` rows.
    pub fn open(
        source: &Arc<FileSource>,
        metadata: &ParquetMetaData,
        row_group: usize,
        leaf: &Leaf,
        kinds: Kinds,
    ) -> Result<Self, PageFault> {
        let group = metadata.row_group(row_group);
        let column = group.column(leaf.index);
        let rows = usize::try_from(group.num_rows()).unwrap_or(usize::MAX);

        // Its other metadata may be encrypted too.
        if column.crypto_metadata().is_some() {
            return Err(corrupt("is encrypted; write it without encryption"));
        }
        if usize::try_from(column.num_values()) != Ok(rows) {
            return Err(corrupt(
                "has a different number of values than its row group has rows",
            ));
        }
        if column.file_path().is_some_and(|path| !path.is_empty()) {
            return Err(corrupt("is in another file"));
        }
        if column.compression() == Compression::LZO {
            return Err(corrupt(
                "is compressed with LZO; write it with any other compression",
            ));
        }
        let Some(range) = location(column, source.len()) else {
            return Err(corrupt("is at an offset outside the file's pages"));
        };

        let chunk = Chunk::new(source, range.end);
        let pages = OneColumn {
            metadata,
            column,
            rows,
            start: range.start,
            chunk: chunk.clone(),
        };
        let reader = caught(|| {
            ParquetRecordBatchReader::try_new_with_row_groups(
                &leaf.levels,
                &pages,
                BATCH_ROWS,
                None,
            )
        });
        Ok(Self {
            reader: reader.map_err(|reason| fault(&chunk, reason))?,
            chunk,
            form: leaf.form,
            kinds,
            rows,
            rows_read: 0,
        })
    }

    /// The next ids: as many as the next of any other column of the row group; `None` at the end.
    pub fn next_batch(&mut self) -> Result<Option<IdArray>, PageFault> {
        let rows = BATCH_ROWS.min(self.rows - self.rows_read);
        if rows == 0 {
            return Ok(None);
        }

        let reader = &mut self.reader;
        let read = caught(|| match reader.next().transpose()? {
            Some(batch) => innermost(batch.into()).map(Some),
            None => Ok(None),
        });
        let array = read.map_err(|reason| fault(&self.chunk, reason))?;
        let found = array.as_ref().map_or(0, |array| array.len());
        self.rows_read += found;

        match array {
            Some(array) if found == rows => caught(|| IdArray::new(&array, self.form, &self.kinds))
                .map(Some)
                .map_err(PageFault::Corrupt),
            _ => Err(PageFault::Corrupt(format!(
                "ends after {} of {} rows",
                self.rows_read, self.rows
            ))),
        }
    }
}

/// The column inside the groups.
fn innermost(table: StructArray) -> Result<ArrayRef, ArrowError> {
    let mut column = column_of(&table, 0)?;
    while let DataType::Struct(_) = column.data_type() {
        column = column_of(column.as_struct(), 0)?;
    }
    Ok(column)
}

fn fault(chunk: &Chunk, reason: String) -> PageFault {
    match chunk.take_failure() {
        Some(error) => PageFault::Read(error),
        None => PageFault::Corrupt(reason),
    }
}

fn corrupt(reason: &str) -> PageFault {
    PageFault::Corrupt(reason.to_owned())
}
