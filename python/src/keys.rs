//! Device keys of ids.

use std::sync::{Arc, LazyLock};

use arrow_array::FixedSizeBinaryArray;
use arrow_buffer::{Buffer, NullBufferBuilder};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use rtad_core::device::{DeviceKey, KeyMaker};
use rtad_loader::host::{Counts, Kinds};

use super::column::ResultColumn;
use super::job;
use super::values::{IDS, IdColumn, arrow_failure};

static KEY_MAKER: LazyLock<KeyMaker> = LazyLock::new(KeyMaker::default);
const KEY_BYTES: usize = 16;

/// The kinds of a text: KIND[,KIND].
pub fn kinds_of(names: &str) -> PyResult<Kinds> {
    names
        .parse()
        .map_err(|error| PyValueError::new_err(format!("kind {names:?}: {error}")))
}

/// Kinds whose ids have one key each.
fn kinds_of_one_key(names: &str) -> PyResult<Kinds> {
    let kinds = kinds_of(names)?;
    if kinds.may_have_two_keys() {
        return Err(PyValueError::new_err(format!(
            "kind {names:?}: a UUID may have two keys: expected idfa and gaid without oaid and \
             openid"
        )));
    }
    Ok(kinds)
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
    let kinds = kinds_of_one_key(kind)?;
    let ids = IdColumn::read_column(PyList::new(py, [id])?.as_any())?;
    let mut found = None;
    each_batch(ids, &kinds, &KEY_MAKER, |keys, _| {
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
    let kinds = kinds_of_one_key(kind)?;
    let ids = IdColumn::read_column(ids)?;
    let maker = key_maker(&blank);
    let column = py.detach(|| {
        let mut bytes = Vec::<u8>::new();
        let mut nulls = NullBufferBuilder::new(0);
        let counts = each_batch(ids, &kinds, &maker, |keys, made| {
            let mut keys = keys.iter();
            for made in made {
                let is_usable = *made > 0;
                nulls.append(is_usable);
                let key = if is_usable { keys.next() } else { None };
                bytes.extend(key.map_or([0; KEY_BYTES], |key| *key.as_bytes()));
            }
        })?;
        let width = KEY_BYTES as i32;
        let bytes = Buffer::from_vec(bytes);
        let array = FixedSizeBinaryArray::try_new(width, bytes, nulls.finish());
        Ok::<_, PyErr>(ResultColumn::new(
            Arc::new(array.map_err(|error| arrow_failure(IDS, 0, error))?),
            counts,
        ))
    })?;
    job::warn(py, column.doubts(&kinds))?;
    Ok(column)
}

/// Passes the keys of each batch of ids to `each`, and the number of keys of each id.
pub fn each_batch(
    ids: IdColumn,
    kinds: &Kinds,
    maker: &KeyMaker,
    mut each: impl FnMut(&[DeviceKey], &[usize]),
) -> PyResult<Counts> {
    /// The counts are of one column.
    const COLUMN: Option<usize> = Some(0);

    let mut keys = Vec::new();
    let mut made = Vec::new();
    let mut counts = Counts::default();
    ids.each_batch(kinds, |ids| {
        keys.clear();
        made.clear();
        ids.append_keys(maker, kinds, &mut keys, |id| {
            made.push(id.keys.unwrap_or(0));
            match id.keys {
                Ok(_) => counts.accept(id.kind, COLUMN, ids.bytes(id.row)),
                Err(reason) => counts.reject(reason.into(), COLUMN, ids.bytes(id.row)),
            }
        });
        each(&keys, &made);
    })?;
    Ok(counts)
}
