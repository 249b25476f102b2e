//! Merged deltas: the appended changes and tombstones that a build applies to its input.

use rtad_core::device::DeviceKey;
use rtad_core::snapshot::{BuiltDelta, DeltaEntry, Folded, Overlay, SortedKeys};
use rtad_store::write::Base;
use rtad_store::{Store, StoreError};

/// Changes to an input. They take precedence, because an export is older than its build.
#[derive(Debug, Default)]
pub struct MergedDeltas {
    /// Recorded in the manifest; `None` before the first publish.
    pub folded: Option<Folded>,
    added: Vec<DeviceKey>,
    /// Those of the keys added, if they have one.
    values: Vec<Option<u8>>,
    removed: Option<SortedKeys>,
}

/// Carried changes: those that the live generation contains because deltas were merged into it, and
/// that no later delta or tombstone has overridden. The next input decides about them.
#[derive(Debug, Default)]
pub struct CarriedChanges {
    /// Keys added and keys removed, both ascending.
    pub added: Vec<DeviceKey>,
    pub removed: Vec<DeviceKey>,
    /// Those of the keys added, if they have one.
    values: Vec<Option<u8>>,
    entries: Vec<DeltaEntry>,
}

impl MergedDeltas {
    /// Reads the deltas of the generation that was live when the build began. Takes 32 bytes of
    /// memory per changed key until the build ends.
    pub async fn read(store: &Store, base: &Base) -> Result<Self, StoreError> {
        let Some(current) = base.current() else {
            return Ok(Self::default());
        };
        let overlay = store
            .overlay(base.audience(), current, &Overlay::default())
            .await?;

        let newest_last = overlay.deltas().chain(overlay.tombstones());
        let changes = BuiltDelta::merged(current.sequence, newest_last.map(|delta| &**delta));
        let removed = changes
            .as_ref()
            .map(|changes| SortedKeys::sort(changes.delta.removed().to_vec()));
        let members = changes.iter().flat_map(|changes| changes.delta.members());
        let (added, values) = members.unzip();
        Ok(Self {
            folded: base.folded(),
            added,
            values,
            removed,
        })
    }

    /// Members in addition to the input, sorted.
    pub fn added(&self) -> &[DeviceKey] {
        &self.added
    }

    /// Their values, if they have one.
    pub fn values(&self) -> &[Option<u8>] {
        &self.values
    }

    /// Keys to leave out of the input.
    pub const fn removed(&self) -> Option<&SortedKeys> {
        self.removed.as_ref()
    }

    /// Reads the changes that the base's generation carries. Takes 16 bytes of memory per changed
    /// key until the build ends.
    pub async fn read_carried(
        &self,
        store: &Store,
        base: &Base,
    ) -> Result<CarriedChanges, StoreError> {
        let Some(current) = base.with_generation() else {
            return Ok(CarriedChanges::default());
        };
        let live = current.live_entry();
        let manifest = store.manifest(base.audience(), &live).await?;
        let entries = manifest
            .folded()
            .map_or_else(Vec::new, |folded| folded.deltas.clone());

        let mut deltas = Vec::with_capacity(entries.len());
        for entry in &entries {
            deltas.push(store.delta(base.audience(), entry).await?);
        }
        let Some(BuiltDelta { delta, .. }) = BuiltDelta::merged(current.sequence, &deltas) else {
            return Ok(CarriedChanges::default());
        };
        drop(deltas);

        let mut carried = CarriedChanges {
            entries,
            ..CarriedChanges::default()
        };
        for (key, value) in delta.members() {
            if !self.overrides(&key) {
                carried.added.push(key);
                carried.values.push(value);
            }
        }
        for key in delta.removed().iter() {
            if !self.overrides(key) {
                carried.removed.push(*key);
            }
        }
        Ok(carried)
    }

    /// Whether a later change decides about the key.
    fn overrides(&self, key: &DeviceKey) -> bool {
        let is_added = self.added.binary_search(key).is_ok();
        is_added
            || self
                .removed
                .as_ref()
                .is_some_and(|removed| removed.contains(key))
    }

    /// Applies carried changes to the input too. The new generation carries them on.
    pub fn keep(&mut self, carried: CarriedChanges) {
        let CarriedChanges {
            added,
            values,
            removed,
            entries,
        } = carried;
        if let Some(folded) = &mut self.folded {
            folded.deltas = entries;
        }

        let old = std::mem::take(&mut self.added)
            .into_iter()
            .zip(std::mem::take(&mut self.values));
        let mut members: Vec<_> = old.chain(added.into_iter().zip(values)).collect();
        members.sort_unstable();
        (self.added, self.values) = members.into_iter().unzip();
        let old = self.removed.take();
        let all = old.iter().flat_map(|old| old.to_vec()).chain(removed);
        self.removed = Some(SortedKeys::sort(all.collect()));
    }
}
