//! Columns of ids: Arrow arrays, NumPy arrays and lists, a batch at a time.

use std::collections::HashMap;
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryArray, FixedSizeBinaryArray, StringArray};
use arrow_buffer::Buffer;
use arrow_schema::extension::EXTENSION_TYPE_NAME_KEY;
use arrow_schema::{ArrowError, DataType, Field, FieldRef};
use pyo3::exceptions::{PyException, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::pyclass::CompareOp;
use pyo3::types::{PyBytes, PyInt, PyList, PyString};
use pyo3_arrow::input::AnyArray;

use rtad_loader::host::Kinds;
use rtad_loader::host::arrow::{IdArray, PADDED_TEXT, ValueForm, column_of};

/// Rows whose keys are made together: their keys fit the second-level cache.
const BATCH_ROWS: usize = 8192;

/// The argument with a column of ids.
pub const IDS: &str = "ids";

/// Arrays of ids, one after the other.
pub type Arrays = Box<dyn Iterator<Item = Result<ArrayRef, ArrowError>> + Send>;

/// A column of ids, or a table.
pub struct IdColumn {
    pub(crate) arrays: Arrays,
    pub(crate) field: FieldRef,
}

impl IdColumn {
    /// Reads an object of `rtad._ids`: one that exports Arrow, the bytes, width and padding of a
    /// NumPy array, or a list. `place` is its argument, in errors.
    pub fn read(place: &str, ids: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(list) = ids.cast::<PyList>() {
            return Ok(Self::of(listed(list)?, HashMap::new()));
        }

        if let Ok((bytes, width, is_padded)) = ids.extract::<(PyBackedBytes, i32, bool)>() {
            let array = FixedSizeBinaryArray::try_new(width, Buffer::from(&bytes[..]), None)
                .map_err(|error| PyValueError::new_err(error.to_string()))?;
            let mut metadata = HashMap::new();
            if is_padded {
                metadata.insert(EXTENSION_TYPE_NAME_KEY.to_owned(), PADDED_TEXT.to_owned());
            }
            return Ok(Self::of(Arc::new(array), metadata));
        }

        let taken = caught(|| ids.extract::<AnyArray>().and_then(AnyArray::into_reader))
            .unwrap_or_else(|error| Err(PyValueError::new_err(error.to_string())));
        let mut reader = taken.map_err(|error| refused(place, ids, error))?;
        let field = reader.field();
        let arrays = iter::from_fn(move || {
            caught(|| reader.next()).unwrap_or_else(|error| Some(Err(error)))
        });
        Ok(Self {
            field,
            arrays: Box::new(arrays),
        })
    }

    /// Reads an object with one column.
    pub fn read_column(ids: &Bound<'_, PyAny>) -> PyResult<Self> {
        let Self { arrays, field } = Self::read(IDS, ids)?;
        let DataType::Struct(columns) = field.data_type() else {
            return Ok(Self { arrays, field });
        };
        let [column] = &columns[..] else {
            return Err(PyTypeError::new_err(format!(
                "ids: a table: expected one column, found {}",
                columns.len()
            )));
        };

        Ok(Self {
            field: Arc::clone(column),
            arrays: Box::new(arrays.map(|table| column_of(table?.as_struct(), 0))),
        })
    }

    fn of(array: ArrayRef, metadata: HashMap<String, String>) -> Self {
        let field = Field::new("", array.data_type().clone(), true).with_metadata(metadata);
        Self {
            arrays: Box::new(iter::once(Ok(array))),
            field: Arc::new(field),
        }
    }

    /// Passes all ids to `each`, a batch at a time.
    pub fn each_batch(self, kinds: &Kinds, mut each: impl FnMut(&IdArray)) -> PyResult<()> {
        let mut field = (*self.field).clone();
        if field.name().is_empty() {
            field = field.with_name(IDS);
        }
        let form =
            ValueForm::of(&field).map_err(|error| PyTypeError::new_err(error.to_string()))?;
        let mut rows_read = 0;
        for array in self.arrays {
            let array = array.map_err(|error| arrow_failure(IDS, rows_read, error))?;
            for start in (0..array.len()).step_by(BATCH_ROWS) {
                let rows = BATCH_ROWS.min(array.len() - start);
                let ids = IdArray::new(&array.slice(start, rows), form, kinds);
                each(&ids.map_err(|error| arrow_failure(IDS, rows_read, error))?);
                rows_read += rows;
            }
        }
        Ok(())
    }
}

/// The array of a list.
fn listed(list: &Bound<'_, PyList>) -> PyResult<ArrayRef> {
    let mut values: Vec<Option<ListValue>> = Vec::with_capacity(list.len());
    for value in list {
        values.push(ListValue::of(&value)?);
    }
    let is_text = |value: &Option<ListValue>| matches!(value, Some(ListValue::Text(_)));
    let is_binary = |value: &Option<ListValue>| matches!(value, Some(ListValue::Binary(_)));
    let bytes = || {
        values
            .iter()
            .map(|value| value.as_ref().map(ListValue::as_bytes))
    };
    match (values.iter().any(is_text), values.iter().any(is_binary)) {
        (true, true) => Err(PyTypeError::new_err(
            "ids: a list of text and bytes: expected ids of one type",
        )),
        (false, _) => Ok(Arc::new(bytes().collect::<BinaryArray>())),
        (true, false) => {
            let text = bytes().map(|value| value.map(String::from_utf8_lossy));
            Ok(Arc::new(text.collect::<StringArray>()))
        }
    }
}

/// A value of a list.
enum ListValue {
    Text(String),
    Binary(PyBackedBytes),
}

impl ListValue {
    /// `None`, NaN and pandas.NA are nulls, as in pandas.
    fn of(value: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        if let Ok(text) = value.cast::<PyString>() {
            return Ok(Some(Self::Text(text.to_cow()?.into_owned())));
        }
        if let Ok(bytes) = value.cast::<PyBytes>() {
            return Ok(Some(Self::Binary(bytes.clone().into())));
        }
        if value.is_instance_of::<PyInt>() {
            return Ok(Some(Self::Text(value.str()?.to_cow()?.into_owned())));
        }
        if value.is_none() || is_null(value)? {
            return Ok(None);
        }
        Err(PyTypeError::new_err(format!(
            "ids: a value of type {}: expected str, bytes, int or None",
            value.get_type().name()?
        )))
    }

    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Binary(bytes) => bytes,
        }
    }
}

/// Whether a value differs from itself, as NaN does, or cannot tell: a comparison with pandas.NA is
/// pandas.NA.
fn is_null(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let differs = value.rich_compare(value, CompareOp::Ne)?;
    // That of an array, which is no id, has no truth value either.
    Ok(differs.is(value) || differs.is_truthy().unwrap_or(false))
}

/// Runs an import of Arrow data. Its panic about slices of structs in structs, whose offset this
/// release of arrow-rs counts twice, becomes an error.
fn caught<T>(import: impl FnOnce() -> T) -> Result<T, ArrowError> {
    catch_unwind(AssertUnwindSafe(import)).map_err(|_| {
        ArrowError::CDataInterface(
            "a slice of structs in structs: expected a copy, or their members as columns, as of \
             flatten()"
                .to_owned(),
        )
    })
}

/// The exception of an object whose Arrow data cannot be taken. Exceptions of the object's own
/// classes stay as they are.
fn refused(place: &str, object: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    let py = object.py();
    let class = error.get_type(py);
    let is_of_reader = class.is(py.get_type::<PyTypeError>())
        || class.is(py.get_type::<PyValueError>())
        || class.is(py.get_type::<PyException>());
    if !is_of_reader {
        return error;
    }

    let Ok(found) = object.get_type().fully_qualified_name() else {
        return error;
    };
    let reason = error.value(py);
    let refused = PyTypeError::new_err(format!(
        "{place}: the Arrow data of a {found} could not be read: {reason}"
    ));
    refused.set_cause(py, Some(error));
    refused
}

/// The exception of Arrow data of `place`, an argument, that cannot be read beyond some rows. One
/// that Python code raised stays as it was.
pub fn arrow_failure(place: &str, rows: usize, error: ArrowError) -> PyErr {
    let reason = match error {
        ArrowError::ExternalError(error) => match error.downcast::<PyErr>() {
            Ok(raised) => return *raised,
            Err(error) => error.to_string(),
        },
        error => error.to_string(),
    };
    PyValueError::new_err(format!(
        "{place}: the Arrow data after {rows} rows could not be read: {reason}"
    ))
}
