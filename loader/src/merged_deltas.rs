//! Merged deltas: the appended changes and tombstones that a build applies to its input.

use rtad_core::device::DeviceKey;
use rtad_core::snapshot::{BuiltDelta, Folded, Overlay, SortedKeys};
use rtad_store::write::Base;
use rtad_store::{Store, StoreError};

/// Changes to an input. They take precedence, because an export is older than its build.
#[derive(Debug, Default)]
pub(crate) struct MergedDeltas {
    /// Recorded in the manifest; `None` before the first publish.
    pub(crate) folded: Option<Folded>,
    added: Vec<DeviceKey>,
    removed: Option<SortedKeys>,
}

impl MergedDeltas {
    /// Reads the deltas of the generation that was live when the build began. Takes 32 bytes of
    /// memory per changed key until the build ends.
    pub(crate) async fn read(store: &Store, base: &Base) -> Result<Self, StoreError> {
        let Some(current) = base.current() else { return Ok(Self::default()) };
        let overlay = store.overlay(base.audience(), current, &Overlay::default()).await?;
        let newest_last = overlay.deltas().chain(overlay.tombstones());
        let changes = BuiltDelta::merged(current.sequence, newest_last.map(|delta| &**delta));
        let removed =
            changes.as_ref().map(|changes| SortedKeys::sort(changes.delta.removed().to_vec()));
        let added = changes.map(|changes| changes.delta.added().to_vec()).unwrap_or_default();
        Ok(Self { folded: base.folded(), added, removed })
    }

    /// Members in addition to the input, sorted.
    pub(crate) fn added(&self) -> &[DeviceKey] {
        &self.added
    }

    /// Keys to leave out of the input.
    pub(crate) const fn removed(&self) -> Option<&SortedKeys> {
        self.removed.as_ref()
    }
}
