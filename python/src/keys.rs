//! Device keys of ids.

use std::sync::{Arc, LazyLock};

use arrow_array::FixedSizeBinaryArray;
use arrow_buffer::{Buffer, NullBufferBuilder};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use rtad_core::device::{DeviceKey, IdKind, KeyMaker};

use super::column::{ResultColumn, UnusableCounts};
use super::values::{IdColumn, append_keys, arrow_failure};

static KEY_MAKER: LazyLock<KeyMaker> = LazyLock::new(KeyMaker::default);
const KEY_BYTES: usize = 16;

/// The kind of a name.
pub fn kind_of(name: &str) -> PyResult<IdKind> {
    name.parse()
        .map_err(|error| PyValueError::new_err(format!("kind {name:?}: {error}")))
}

/// A key maker with additional ids that mean "no id".
pub fn key_maker(blank: &[String]) -> KeyMaker {
    match blank {
        [] => KEY_MAKER.clone(),
        blank => KeyMaker::with_extra_blanks(blank),
    }
}

/// The key of one id, in a list of one; None for an id without a key.
#[pyfunction]
pub fn key<'py>(
    py: Python<'py>,
    kind: &str,
    id: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let (kind, mut found) = (kind_of(kind)?, None);
    let ids = IdColumn::read_column(PyList::new(py, [id])?.as_any())?;
    each_batch(ids, kind, &KEY_MAKER, |keys, _| {
        found = keys.first().copied()
    })?;
    Ok(found.map(|key| PyBytes::new(py, key.as_bytes())))
}

/// The keys of a column of ids.
#[pyfunction]
pub fn keys(
    py: Python<'_>,
    kind: &str,
    ids: &Bound<'_, PyAny>,
    blank: Vec<String>,
) -> PyResult<ResultColumn> {
    let (kind, ids, maker) = (
        kind_of(kind)?,
        IdColumn::read_column(ids)?,
        key_maker(&blank),
    );
    py.detach(|| {
        let (mut bytes, mut nulls) = (Vec::<u8>::new(), NullBufferBuilder::new(0));
        let counts = each_batch(ids, kind, &maker, |keys, is_usable| {
            let mut keys = keys.iter();
            for is_usable in is_usable {
                nulls.append(*is_usable);
                let key = if *is_usable { keys.next() } else { None };
                bytes.extend(key.map_or([0; KEY_BYTES], |key| *key.as_bytes()));
            }
        })?;
        let (width, bytes) = (KEY_BYTES as i32, Buffer::from_vec(bytes));
        let array = FixedSizeBinaryArray::try_new(width, bytes, nulls.finish());
        Ok(ResultColumn::new(
            Arc::new(array.map_err(arrow_failure)?),
            counts,
        ))
    })
}

/// Passes the keys of each batch of ids to `each`, and whether each id has one.
pub fn each_batch(
    ids: IdColumn,
    kind: IdKind,
    maker: &KeyMaker,
    mut each: impl FnMut(&[DeviceKey], &[bool]),
) -> PyResult<UnusableCounts> {
    let (mut keys, mut is_usable) = (Vec::new(), Vec::new());
    let mut counts = UnusableCounts::default();
    ids.each_batch(kind, |ids| {
        keys.clear();
        is_usable.clear();
        append_keys(ids, maker, kind, &mut keys, |result| {
            is_usable.push(result.is_ok());
            if let Err(reason) = result {
                counts.add(reason);
            }
        });
        each(&keys, &is_usable);
    })?;
    Ok(counts)
}
