//! An audience in memory: lookups of ids, and its facts.

use std::sync::Arc;

use arrow_array::{BooleanArray, UInt8Array};
use arrow_buffer::{BooleanBufferBuilder, NullBufferBuilder};
use pyo3::prelude::*;

use rtad_core::device::{IdKind, KeyMaker};
use rtad_core::snapshot::{GenerationReport, Snapshot};
use rtad_loader::host;

use super::column::ResultColumn;
use super::job;
use super::keys::{each_batch, key_maker, kind_of};
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
        let (kind, ids, maker) = (
            kind_of(kind)?,
            IdColumn::read_column(ids)?,
            key_maker(&blank),
        );
        py.detach(|| members(&self.snapshot, ids, kind, &maker))
    }

    /// The value of each id that is a member; null for others.
    fn values(
        &self,
        py: Python<'_>,
        ids: &Bound<'_, PyAny>,
        kind: &str,
        blank: Vec<String>,
    ) -> PyResult<ResultColumn> {
        let (kind, ids, maker) = (
            kind_of(kind)?,
            IdColumn::read_column(ids)?,
            key_maker(&blank),
        );
        py.detach(|| values(&self.snapshot, ids, kind, &maker))
    }

    /// Facts of the generation and its deltas, as JSON.
    fn info(&self) -> String {
        let (manifest, overlay) = (self.snapshot.manifest(), self.snapshot.overlay());
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
    kind: IdKind,
    maker: &KeyMaker,
) -> PyResult<ResultColumn> {
    let (mut answers, mut nulls) = (BooleanBufferBuilder::new(0), NullBufferBuilder::new(0));
    let mut members = Vec::new();
    let counts = each_batch(ids, kind, maker, |keys, is_usable| {
        members.resize(keys.len(), false);
        snapshot.contains_many(keys, &mut members);
        if keys.len() == is_usable.len() {
            answers.append_slice(&members);
            nulls.append_n_non_nulls(keys.len());
            return;
        }
        let mut members = members.iter();
        for is_usable in is_usable {
            answers.append(*is_usable && members.next().is_some_and(|member| *member));
            nulls.append(*is_usable);
        }
    })?;
    let array = BooleanArray::new(answers.finish(), nulls.finish());
    Ok(ResultColumn::new(Arc::new(array), counts))
}

fn values(
    snapshot: &Snapshot,
    ids: IdColumn,
    kind: IdKind,
    maker: &KeyMaker,
) -> PyResult<ResultColumn> {
    let mut found = Vec::new();
    let counts = each_batch(ids, kind, maker, |keys, is_usable| {
        let mut keys = keys.iter();
        for is_usable in is_usable {
            let key = if *is_usable { keys.next() } else { None };
            found.push(key.and_then(|key| snapshot.value(std::slice::from_ref(key))));
        }
    })?;
    Ok(ResultColumn::new(Arc::new(UInt8Array::from(found)), counts))
}
