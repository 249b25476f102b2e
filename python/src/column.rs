//! Result columns, for any library that reads Arrow.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt8Type;
use arrow_array::{Array, ArrayRef, BooleanArray};
use arrow_schema::{DataType, Field};
use pyo3::IntoPyObjectExt as _;
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;
use pyo3::types::{PyByteArray, PyBytes, PyCapsule, PyDict, PyIterator, PyList, PyTuple};
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

    /// The bytes of all rows as NumPy has them, and the dtype from which it makes one of `kind`.
    fn numpy_bytes(&self, kind: &str) -> NumpyBytes {
        match self.array.data_type() {
            DataType::Boolean => NumpyBytes {
                dtype: "bool",
                bytes: self
                    .array
                    .as_boolean()
                    .values()
                    .iter()
                    .map(u8::from)
                    .collect(),
            },
            DataType::UInt8 => NumpyBytes {
                dtype: "uint8",
                bytes: self.array.as_primitive::<UInt8Type>().values().to_vec(),
            },
            _ => NumpyBytes {
                dtype: if kind == "S" { "S16" } else { "V16" },
                bytes: self.array.as_fixed_size_binary().value_data().to_vec(),
            },
        }
    }

    /// The dtype of an array for which none is asked.
    fn default_dtype(&self) -> &'static str {
        let has_nulls = self.array.null_count() > 0;
        match self.array.data_type() {
            DataType::Boolean if !has_nulls => "bool",
            DataType::UInt8 if !has_nulls => "uint8",
            // Its NaN stands for a null, and it has all values exactly.
            DataType::UInt8 => "float64",
            _ => "object",
        }
    }

    /// An object for each null of booleans: the one of pandas, which has no truth value. With None
    /// `numpy.where` would take a null for false.
    fn null_of_booleans<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let modules = py.import("sys")?.getattr("modules")?;
        match modules.cast::<PyDict>()?.get_item("pandas")? {
            Some(pandas) => pandas.getattr("NA"),
            None => Err(self.refused_nulls("bool")),
        }
    }

    fn refused_nulls(&self, dtype: &str) -> PyErr {
        PyValueError::new_err(format!(
            "a column: {} of {} rows are null, and dtype {dtype} has no null: expected \
             dtype=object, which has None",
            self.array.null_count(),
            self.array.len()
        ))
    }

    /// A NumPy array of objects, with `null` for nulls.
    fn objects<'py>(
        &self,
        numpy: &Bound<'py, PyModule>,
        null: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut values = Vec::with_capacity(self.array.len());
        for row in 0..self.array.len() {
            values.push(if self.array.is_null(row) {
                null.clone()
            } else {
                self.value(numpy.py(), row)?
            });
        }
        numpy.call_method1("array", (values, "object"))
    }
}

/// Rows of a NumPy array.
struct NumpyBytes {
    dtype: &'static str,
    bytes: Vec<u8>,
}

fn no_operator(operator: &str) -> PyErr {
    PyTypeError::new_err(format!(
        "a column has no operator {operator}: expected that of a library, as in \
         numpy.asarray(column) {operator} other or polars.Series(column) {operator} other"
    ))
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

    /// A NumPy array: of bool or uint8, or of objects for keys, which are bytes.
    ///
    /// Nulls become `pandas.NA` of booleans, if pandas is imported; NaN of values; None of keys.
    /// With `dtype=object` all are None. Raises ValueError if the dtype has no null, and if `copy`
    /// is False.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if copy == Some(false) {
            return Err(PyValueError::new_err(
                "a column: an array of it is a copy: expected copy=None or copy=True",
            ));
        }
        let numpy = py.import("numpy")?;
        let is_asked = dtype.is_some();
        let dtype = match dtype {
            Some(dtype) => numpy.call_method1("dtype", (dtype,))?,
            None => numpy.call_method1("dtype", (self.default_dtype(),))?,
        };
        let kind: String = dtype.getattr("kind")?.extract()?;
        let has_nulls = self.array.null_count() > 0;

        if kind == "O" {
            let is_boolean = self.array.data_type() == &DataType::Boolean;
            let null = if has_nulls && is_boolean && !is_asked {
                self.null_of_booleans(py)?
            } else {
                py.None().into_bound(py)
            };
            return self.objects(&numpy, &null);
        }
        if has_nulls && kind != "f" {
            return Err(self.refused_nulls(&dtype.str()?.to_cow()?));
        }

        let found = self.numpy_bytes(&kind);
        let bytes = PyByteArray::new(py, &found.bytes);
        let array = numpy
            .call_method1("frombuffer", (bytes, found.dtype))?
            .call_method1("astype", (dtype,))?;
        if has_nulls {
            let nulls = (0..self.array.len()).map(|row| self.array.is_null(row));
            array.set_item(nulls.collect::<Vec<_>>(), f64::NAN)?;
        }
        Ok(array)
    }

    /// The NumPy array, for pandas: it calls what it is indexed with, as in `frame[column]`, and
    /// takes no other foreign column for a mask.
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        frame: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let rows = self.array.len();
        let found = frame.len()?;
        if found != rows {
            return Err(PyValueError::new_err(format!(
                "a column of {rows} rows as an index: expected a frame of as many, found {found}"
            )));
        }
        self.__array__(py, None, None)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.to_pylist(py)?.try_iter()
    }

    fn __bool__(&self) -> PyResult<bool> {
        Err(PyValueError::new_err(format!(
            "the truth value of a column of {} rows is ambiguous: expected one row, as in \
             column[0], or any(column) or all(column)",
            self.array.len()
        )))
    }

    /// The opposite of each boolean; nulls stay.
    fn __invert__(&self) -> PyResult<Self> {
        let Some(booleans) = self.array.as_boolean_opt() else {
            return Err(no_operator("~"));
        };
        let opposite = BooleanArray::new(!booleans.values(), booleans.nulls().cloned());
        Ok(Self::new(Arc::new(opposite), self.counts.clone()))
    }

    /// Elementwise with arrays, by their own operator. Compared with anything else a column would
    /// silently be unequal.
    fn __richcmp__(&self, other: &Bound<'_, PyAny>, operator: CompareOp) -> PyResult<Py<PyAny>> {
        let is_array = other.hasattr("__array__")? && !other.is_instance_of::<Self>();
        match operator {
            CompareOp::Eq if !is_array => Err(no_operator("==")),
            CompareOp::Ne if !is_array => Err(no_operator("!=")),
            _ => Ok(other.py().NotImplemented()),
        }
    }

    fn __and__(&self, _other: PyRef<'_, Self>) -> PyResult<Self> {
        Err(no_operator("&"))
    }

    fn __or__(&self, _other: PyRef<'_, Self>) -> PyResult<Self> {
        Err(no_operator("|"))
    }

    fn __xor__(&self, _other: PyRef<'_, Self>) -> PyResult<Self> {
        Err(no_operator("^"))
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
        let data_type = self.array.data_type();
        let rows = self.array.len();
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
