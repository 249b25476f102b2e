//! Rows for the loader: batches of Arrow tables, NumPy arrays and lists of ids.

use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, FieldRef};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyIterator;

use rtad_core::device::IdKind;
use rtad_loader::host::Rows;

use super::keys::arrow_failure;
use super::values::{Arrays, IdColumn, TextBatch, ValueForm, column_of, form_of};

/// Rows handed over at once.
const BATCH_ROWS: usize = 65_536;
/// Name of the column of ids without a name.
const UNNAMED: &str = "id";

/// A stream of tables or of ids, from an iterator over objects that [`IdColumn::read`] accepts.
pub struct Tables<'py> {
    objects: Bound<'py, PyIterator>,
    /// Columns to read, and the first kind of each. Empty for a stream of ids.
    wanted: Vec<(String, IdKind)>,
    kind: IdKind,
    open: Option<OpenObject>,
    header: Vec<String>,
}

/// An object of the stream.
struct OpenObject {
    arrays: Arrays,
    field: FieldRef,
    form: ValueForm,
    /// The array that is handed over, and its next row.
    array: Option<(ArrayRef, usize)>,
}

/// A batch.
struct TableBatch {
    /// By the index in the header; `None` if it is not wanted.
    columns: Vec<Option<TextBatch>>,
    rows: usize,
}

impl<'py> Tables<'py> {
    /// Opens the first object, for its header.
    pub fn open(
        objects: &Bound<'py, PyAny>,
        wanted: Vec<(String, IdKind)>,
        kind: IdKind,
    ) -> PyResult<Self> {
        let objects = objects.try_iter()?;
        let mut tables = Self {
            objects,
            wanted,
            kind,
            open: None,
            header: Vec::new(),
        };
        tables.open = tables.next_object()?;
        let names = tables.open.as_ref().map(|open| names(&open.field));
        tables.header = names.unwrap_or_else(|| vec![UNNAMED.to_owned()]);
        Ok(tables)
    }

    /// Names of the columns.
    pub fn header(&self) -> &[String] {
        &self.header
    }

    fn next_object(&mut self) -> PyResult<Option<OpenObject>> {
        let Some(object) = self.objects.next() else {
            return Ok(None);
        };
        let IdColumn {
            arrays,
            field,
            form,
        } = IdColumn::read(&object?)?;
        Ok(Some(OpenObject {
            arrays,
            field,
            form,
            array: None,
        }))
    }

    /// The next rows; `None` at the end.
    pub fn next_batch(&mut self, py: Python<'_>) -> PyResult<Option<Box<dyn Rows>>> {
        loop {
            let Some(open) = &mut self.open else {
                return Ok(None);
            };
            if let Some((array, first)) = &mut open.array {
                let rows = BATCH_ROWS.min(array.len() - *first);
                let slice = array.slice(*first, rows);
                *first += rows;
                if *first == array.len() {
                    open.array = None;
                }
                let (field, form) = (FieldRef::clone(&open.field), open.form);
                return Ok(Some(Box::new(self.batch(&slice, &field, form)?)));
            }
            match py
                .detach(|| open.arrays.next())
                .transpose()
                .map_err(arrow_failure)?
            {
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
        let found = names(&open.field);
        if found == self.header {
            return Ok(());
        }
        Err(PyValueError::new_err(format!(
            "source: a table with other columns than the first: expected {}, found {}",
            self.header.join(", "),
            found.join(", ")
        )))
    }

    fn batch(&self, array: &ArrayRef, field: &FieldRef, form: ValueForm) -> PyResult<TableBatch> {
        let DataType::Struct(fields) = field.data_type() else {
            let texts = TextBatch::of(array, form, self.kind).map_err(arrow_failure)?;
            return Ok(TableBatch {
                columns: vec![Some(texts)],
                rows: array.len(),
            });
        };
        let texts = |(index, field): (usize, &FieldRef)| {
            // As the loader finds a column of the header: by its trimmed name.
            let name = field.name().trim_ascii();
            let wanted = self
                .wanted
                .iter()
                .find(|(wanted, _)| wanted.trim_ascii() == name);
            let is_only = self.wanted.is_empty() && fields.len() == 1;
            let kind = wanted
                .map(|(_, kind)| *kind)
                .or(is_only.then_some(self.kind));
            let Some(kind) = kind else { return Ok(None) };
            let form = form_of(field)?;
            let texts = column_of(array, index).and_then(|ids| TextBatch::of(&ids, form, kind));
            texts.map(Some).map_err(arrow_failure)
        };
        let columns = fields.iter().enumerate().map(texts);
        Ok(TableBatch {
            columns: columns.collect::<PyResult<_>>()?,
            rows: array.len(),
        })
    }
}

/// Names of a table's columns; the one of ids has no name of its own.
fn names(field: &FieldRef) -> Vec<String> {
    match field.data_type() {
        DataType::Struct(fields) => fields.iter().map(|field| field.name().clone()).collect(),
        _ => vec![UNNAMED.to_owned()],
    }
}

impl Rows for TableBatch {
    fn rows(&self) -> usize {
        self.rows
    }

    fn text(&self, column: usize, row: usize) -> &[u8] {
        // Empty text would be a blank id in each row.
        self.columns[column]
            .as_ref()
            .expect("the column is wanted")
            .text(row)
    }
}
