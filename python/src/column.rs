//! Result columns, for any library that reads Arrow.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt8Type;
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, Field};
use pyo3::IntoPyObjectExt as _;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyList, PyTuple};
use pyo3_arrow::ffi::to_array_pycapsules;

use rtad_loader::host::{Counts, Kinds, Reason};

/// A column of results: one for each id, null for an id without a key.
#[pyclass(frozen, module = "rtad._rtad", name = "Column")]
pub(crate) struct ResultColumn {
    array: ArrayRef,
    counts: Counts,
}

impl ResultColumn {
    pub(crate) fn new(array: ArrayRef, counts: Counts) -> Self {
        Self { array, counts }
    }

    /// Why most of the results may be wrong.
    pub(crate) fn doubts(&self, kinds: &Kinds) -> Vec<String> {
        self.counts.doubts(kinds)
    }

    fn value<'py>(&self, py: Python<'py>, row: usize) -> PyResult<Bound<'py, PyAny>> {
        if self.array.is_null(row) {
            return Ok(py.None().into_bound(py));
        }
        match self.array.data_type() {
            DataType::Boolean => self.array.as_boolean().value(row).into_bound_py_any(py),
            DataType::UInt8 => self
                .array
                .as_primitive::<UInt8Type>()
                .value(row)
                .into_bound_py_any(py),
            _ => {
                let key = self.array.as_fixed_size_binary().value(row);
                Ok(PyBytes::new(py, key).into_any())
            }
        }
    }
}

#[pymethods]
impl ResultColumn {
    /// Number of ids that mean "no id", nulls included.
    #[getter]
    fn blank(&self) -> u64 {
        self.counts.of(Reason::Blank)
    }

    /// Number of ids that do not have the form of their kind.
    #[getter]
    fn malformed(&self) -> u64 {
        self.counts.malformed()
    }

    /// Number of ids with a key, by kind.
    #[getter]
    fn usable_by_kind(&self) -> BTreeMap<&'static str, u64> {
        self.counts.usable_by_kind().collect()
    }

    /// Number of nulls.
    #[getter]
    fn null_count(&self) -> usize {
        self.array.null_count()
    }

    /// The results as a list.
    fn to_pylist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let values = (0..self.array.len()).map(|row| self.value(py, row));
        PyList::new(py, values.collect::<PyResult<Vec<_>>>()?)
    }

    fn __len__(&self) -> usize {
        self.array.len()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, row: isize) -> PyResult<Bound<'py, PyAny>> {
        let len = self.array.len();
        let from_start = if row < 0 { row + len as isize } else { row };
        match usize::try_from(from_start) {
            Ok(row) if row < len => self.value(py, row),
            _ => Err(PyIndexError::new_err(format!(
                "row {row} of a column: expected less than {len}"
            ))),
        }
    }

    fn __repr__(&self) -> String {
        let (data_type, rows) = (self.array.data_type(), self.array.len());
        format!(
            "<rtad.Column {data_type}: {rows} rows, {} null>",
            self.array.null_count()
        )
    }

    /// The Arrow C data interface.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let field = Arc::new(Field::new("", self.array.data_type().clone(), true));
        Ok(to_array_pycapsules(
            py,
            field,
            &self.array,
            requested_schema,
        )?)
    }
}
