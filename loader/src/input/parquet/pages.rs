//! Pages of a column in one row group, as the `parquet` crate asks for them.

use std::ops::Range;
use std::sync::Arc;

use parquet::arrow::arrow_reader::RowGroups;
use parquet::basic::Compression;
use parquet::column::page::{Page, PageIterator, PageMetadata, PageReader};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::file::serialized_reader::SerializedPageReader;

use super::chunk::Chunk;
use super::lz4;

/// A row group with one column.
pub struct OneColumn<'a> {
    pub metadata: &'a ParquetMetaData,
    pub column: &'a ColumnChunkMetaData,
    pub rows: usize,
    /// Offset of the first page.
    pub start: u64,
    pub chunk: Chunk,
}

/// Pages without repetition.
struct Pages {
    reader: SerializedPageReader<Chunk>,
    /// Whether the pages are still compressed with the older LZ4.
    is_lz4: bool,
    rows_left: usize,
}

/// The pages of the one row group.
struct OneGroup(Option<Pages>);

/// The range of a column's pages, within the file's magic and its metadata.
pub fn location(column: &ColumnChunkMetaData, file_len: u64) -> Option<Range<u64>> {
    // Some writers set 0 if there is no dictionary.
    let dictionary = column.dictionary_page_offset().filter(|offset| *offset > 0);
    let first = column.data_page_offset();
    let start = u64::try_from(dictionary.map_or(first, |offset| offset.min(first))).ok()?;
    let end = start.checked_add(u64::try_from(column.compressed_size()).ok()?)?;
    (start >= 4 && end <= file_len.checked_sub(8)?).then_some(start..end)
}

impl RowGroups for OneColumn<'_> {
    fn num_rows(&self) -> usize {
        self.rows
    }

    fn column_chunks(&self, _column: usize) -> Result<Box<dyn PageIterator>, ParquetError> {
        let is_lz4 = self.column.compression() == Compression::LZ4;
        // The crate would start at the dictionary's offset, which some writers set to 0.
        let mut column = self
            .column
            .clone()
            .into_builder()
            .set_dictionary_page_offset(None)
            .set_data_page_offset(self.start as i64);
        if is_lz4 {
            column = column.set_compression(Compression::UNCOMPRESSED);
        }

        let chunk = Arc::new(self.chunk.clone());
        let reader = SerializedPageReader::new(chunk, &column.build()?, self.rows, None)?;
        let pages = Pages {
            reader,
            is_lz4,
            rows_left: self.rows,
        };
        Ok(Box::new(OneGroup(Some(pages))))
    }

    /// Asked only for columns that are not in the file.
    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(std::iter::empty())
    }

    fn metadata(&self) -> &ParquetMetaData {
        self.metadata
    }
}

impl Iterator for OneGroup {
    type Item = Result<Box<dyn PageReader>, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        let pages = self.0.take()?;
        Some(Ok(Box::new(pages)))
    }
}

impl PageIterator for OneGroup {}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        // Padding behind the last page is not read.
        if self.rows_left == 0 {
            return Ok(None);
        }
        let Some(mut page) = self.reader.get_next_page()? else {
            return Ok(None);
        };

        if self.is_lz4 {
            page = lz4::unpack(page)
                .ok_or_else(|| ParquetError::General("a page of invalid LZ4".to_owned()))?;
        }
        if !page.is_dictionary_page() {
            let values = page.num_values() as usize;
            self.rows_left = self.rows_left.checked_sub(values).ok_or_else(|| {
                ParquetError::General("more values than its row group has rows".to_owned())
            })?;
        }
        Ok(Some(page))
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        self.reader.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        self.reader.skip_next_page()
    }
}

impl Iterator for Pages {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}
