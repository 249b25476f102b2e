//! Values of one column of a file, in order.

use std::cell::Cell;

use parquet::column::reader::{ColumnReaderImpl, get_typed_column_reader};
use parquet::data_type::{ByteArrayType, DataType};
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::RowGroupReader;

/// Records that are read at once.
const BATCH: usize = 1 << 12;

/// A column of a row group, and the position in it.
pub struct Cursor<T: DataType> {
    reader: ColumnReaderImpl<T>,
    /// The definition level of a value that exists.
    max_definition: i16,
    values: Vec<T::T>,
    definition: Vec<i16>,
    repetition: Vec<i16>,
    level_index: Cell<usize>,
    value_index: Cell<usize>,
}

impl<T: DataType> Cursor<T> {
    /// A column of a row group by its path.
    pub fn open(group: &dyn RowGroupReader, path: &str) -> Result<Self> {
        let columns = group.metadata().columns();
        let index = columns
            .iter()
            .position(|column| column.column_path().string() == path);
        let index = index.ok_or_else(|| missing(path))?;
        let max_definition = columns[index].column_descr().max_def_level();
        if columns[index].column_type() != T::get_physical_type() {
            return Err(missing(path));
        }
        Ok(Self {
            reader: get_typed_column_reader::<T>(group.get_column_reader(index)?),
            max_definition,
            values: Vec::new(),
            definition: Vec::new(),
            repetition: Vec::new(),
            level_index: Cell::new(0),
            value_index: Cell::new(0),
        })
    }

    /// Reads the next records, and returns how many. Values of the ones before are gone.
    pub fn fill(&mut self) -> Result<usize> {
        self.values.clear();
        self.definition.clear();
        self.repetition.clear();
        (self.level_index, self.value_index) = (Cell::new(0), Cell::new(0));
        let (definition, repetition) = (&mut self.definition, &mut self.repetition);
        let read = self.reader.read_records(
            BATCH,
            Some(definition),
            Some(repetition),
            &mut self.values,
        )?;
        Ok(read.0)
    }

    /// The next value; `None` if it is missing, or the list is.
    pub fn next(&self) -> Option<&T::T> {
        let exists = self.max_definition == 0 || self.level() == Some(self.max_definition);
        self.level_index.set(self.level_index.get() + 1);
        if !exists {
            return None;
        }
        let index = self.value_index.get();
        self.value_index.set(index + 1);
        self.values.get(index)
    }

    /// The definition level of the next value.
    pub fn level(&self) -> Option<i16> {
        self.definition.get(self.level_index.get()).copied()
    }

    /// Whether the next value continues the list of the one before.
    pub fn continues(&self) -> bool {
        self.repetition
            .get(self.level_index.get())
            .is_some_and(|level| *level > 0)
    }

    /// The next value of a column that every row has.
    pub fn required(&self) -> Result<&T::T> {
        self.next()
            .ok_or_else(|| ParquetError::General("a value is missing".to_owned()))
    }
}

impl Cursor<ByteArrayType> {
    /// The next text.
    pub fn text(&self) -> Result<Option<&str>> {
        self.next()
            .map(|text| Ok(std::str::from_utf8(text.data())?))
            .transpose()
    }

    /// The next text of a column that every row has.
    pub fn required_text(&self) -> Result<&str> {
        Ok(std::str::from_utf8(self.required()?.data())?)
    }
}

fn missing(path: &str) -> ParquetError {
    ParquetError::General(format!("has no column {path} of the expected type"))
}
