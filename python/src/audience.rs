//! An audience in memory: lookups of ids, and its facts.

use std::sync::Arc;

use arrow_array::{BooleanArray, UInt8Array};
use arrow_buffer::{BooleanBufferBuilder, NullBufferBuilder};
use pyo3::prelude::*;

use rtad_core::device::KeyMaker;
use rtad_core::snapshot::{GenerationReport, Snapshot};
use rtad_loader::host::{self, Kinds};

use super::column::ResultColumn;
use super::job;
use super::keys::{each_batch, key_maker, kinds_of};
use super::values::IdColumn;

/// An audience at one generation, with its deltas and tombstones.
#[pyclass(frozen, module = "rtad._rtad", name = "Snapshot")]
pub(crate) struct LoadedSnapshot {
    snapshot: Snapshot,
}

#[pymethods]
impl LoadedSnapshot {
    /// Loads an audience, by the flags of a command of `rtad-loader`.
    #[staticmethod]
    fn load(py: Python<'_>, flags: Vec<String>, progress: Option<Py<PyAny>>) -> PyResult<Self> {
        let loaded = job::run(py, progress.as_ref(), None, move |watch| {
            host::load(&flags, watch)
        })?;
        Ok(Self { snapshot: loaded })
    }

    /// Membership of each id; null without a key.
    fn contains(
        &self,
        py: Python<'_>,
        ids: &Bound<'_, PyAny>,
        kind: &str,
        blank: Vec<String>,
    ) -> PyResult<ResultColumn> {
        let kinds = kinds_of(kind)?;
        let ids = IdColumn::read_column(ids)?;
        let maker = key_maker(&blank);
        let column = py.detach(|| members(&self.snapshot, ids, &kinds, &maker))?;
        job::warn(py, column.doubts(&kinds))?;
        Ok(column)
    }

    /// The value of each id that is a member; null for others.
    fn values(
        &self,
        py: Python<'_>,
        ids: &Bound<'_, PyAny>,
        kind: &str,
        blank: Vec<String>,
    ) -> PyResult<ResultColumn> {
        let kinds = kinds_of(kind)?;
        let ids = IdColumn::read_column(ids)?;
        let maker = key_maker(&blank);
        let column = py.detach(|| values(&self.snapshot, ids, &kinds, &maker))?;
        job::warn(py, column.doubts(&kinds))?;
        Ok(column)
    }

    /// Facts of the generation and its deltas, as JSON.
    fn info(&self) -> String {
        let manifest = self.snapshot.manifest();
        let overlay = self.snapshot.overlay();
        let [added, removed, tombstones] = overlay.keys();
        serde_json::json!({
            "audience": manifest.audience(),
            "generation": manifest.generation(),
            "build": GenerationReport::of(manifest),
            "has_values": manifest.filter().value_bits() > 0,
            "memory_bytes": self.snapshot.filter_bytes(),
            "sequence": overlay.sequence(),
            "state": overlay.state().as_str(),
            "expires_unix_seconds": overlay.expires_unix_seconds(),
            "deltas": overlay.deltas().count(),
            "added": added,
            "removed": removed,
            "tombstones": tombstones,
        })
        .to_string()
    }
}

fn members(
    snapshot: &Snapshot,
    ids: IdColumn,
    kinds: &Kinds,
    maker: &KeyMaker,
) -> PyResult<ResultColumn> {
    let mut answers = BooleanBufferBuilder::new(0);
    let mut nulls = NullBufferBuilder::new(0);
    let mut members = Vec::new();
    let counts = each_batch(ids, kinds, maker, |keys, made| {
        members.resize(keys.len(), false);
        snapshot.contains_many(keys, &mut members);
        if made.iter().all(|keys| *keys == 1) {
            answers.append_slice(&members);
            nulls.append_n_non_nulls(keys.len());
            return;
        }

        let mut rest = &members[..];
        for keys in made {
            let (of_id, others) = rest.split_at(*keys);
            answers.append(of_id.contains(&true));
            nulls.append(*keys > 0);
            rest = others;
        }
    })?;
    let array = BooleanArray::new(answers.finish(), nulls.finish());
    Ok(ResultColumn::new(Arc::new(array), counts))
}

fn values(
    snapshot: &Snapshot,
    ids: IdColumn,
    kinds: &Kinds,
    maker: &KeyMaker,
) -> PyResult<ResultColumn> {
    let mut found = Vec::new();
    let counts = each_batch(ids, kinds, maker, |keys, made| {
        let mut rest = keys;
        for keys in made {
            let (of_id, others) = rest.split_at(*keys);
            found.push(snapshot.value(of_id));
            rest = others;
        }
    })?;
    Ok(ResultColumn::new(Arc::new(UInt8Array::from(found)), counts))
}
