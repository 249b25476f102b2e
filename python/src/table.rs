//! Rows for the loader: batches of Arrow tables, NumPy arrays and lists of ids.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, StructArray};
use arrow_schema::{DataType, Field, FieldRef, Fields};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyIterator;

use super::values::{IdColumn, arrow_failure};

/// Rows handed over at once.
const BATCH_ROWS: usize = 65_536;
/// The argument with the rows.
const SOURCE: &str = "source";
/// Name of the column of ids without a name.
const UNNAMED: &str = "id";

/// A stream of tables or of ids, from an iterator over objects that [`IdColumn::read`] accepts.
pub struct Tables<'py> {
    objects: Bound<'py, PyIterator>,
    open: Option<OpenObject>,
    columns: Fields,
    rows_read: usize,
}

/// An object of the stream.
struct OpenObject {
    column: IdColumn,
    /// The array that is handed over, and its next row.
    array: Option<(ArrayRef, usize)>,
}

impl<'py> Tables<'py> {
    /// Opens the first object, for its header.
    pub fn open(objects: &Bound<'py, PyAny>) -> PyResult<Self> {
        let objects = objects.try_iter()?;
        let mut tables = Self {
            objects,
            open: None,
            columns: vec![Field::new(UNNAMED, DataType::Null, true)].into(),
            rows_read: 0,
        };
        tables.open = tables.next_object()?;
        if let Some(open) = &tables.open {
            tables.columns = columns_of(&open.column.field);
        }
        Ok(tables)
    }

    /// The columns of the first object.
    pub const fn columns(&self) -> &Fields {
        &self.columns
    }

    fn next_object(&mut self) -> PyResult<Option<OpenObject>> {
        let Some(object) = self.objects.next() else {
            return Ok(None);
        };
        Ok(Some(OpenObject {
            column: IdColumn::read(SOURCE, &object?)?,
            array: None,
        }))
    }

    /// The next rows; `None` at the end.
    pub fn next_batch(&mut self, py: Python<'_>) -> PyResult<Option<StructArray>> {
        loop {
            let Some(open) = &mut self.open else {
                return Ok(None);
            };

            if let Some((array, first)) = &mut open.array {
                let rows = BATCH_ROWS.min(array.len() - *first);
                let slice = array.slice(*first, rows);
                *first += rows;
                self.rows_read += rows;
                if *first == array.len() {
                    open.array = None;
                }
                return Ok(Some(table_of(slice, &open.column.field)));
            }

            let next = py.detach(|| open.column.arrays.next());
            let array = next
                .transpose()
                .map_err(|error| arrow_failure(SOURCE, self.rows_read, error))?;
            match array {
                Some(array) if array.is_empty() => {}
                Some(array) => open.array = Some((array, 0)),
                None => {
                    self.open = self.next_object()?;
                    self.check_header()?;
                }
            }
        }
    }

    fn check_header(&self) -> PyResult<()> {
        let Some(open) = &self.open else {
            return Ok(());
        };
        let columns = columns_of(&open.column.field);
        let found = names(&columns);
        let expected = names(&self.columns);
        if found == expected {
            return Ok(());
        }
        Err(PyValueError::new_err(format!(
            "source: a table with other columns than the first: expected {}, found {}",
            expected.join(", "),
            found.join(", ")
        )))
    }
}

/// The rows as a table; ids are its only column.
fn table_of(array: ArrayRef, field: &FieldRef) -> StructArray {
    if let Some(table) = array.as_struct_opt() {
        return table.clone();
    }
    StructArray::new(columns_of(field), vec![array], None)
}

/// The columns of a table; the one of ids has no name of its own.
fn columns_of(field: &FieldRef) -> Fields {
    if let DataType::Struct(columns) = field.data_type() {
        return columns.clone();
    }
    let ids = Field::new(UNNAMED, field.data_type().clone(), true)
        .with_metadata(field.metadata().clone());
    vec![ids].into()
}

fn names(columns: &Fields) -> Vec<&str> {
    columns
        .iter()
        .map(|column| column.name().as_str())
        .collect()
}
