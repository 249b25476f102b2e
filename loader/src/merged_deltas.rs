//! Merged deltas: changes from before the build, applied over its input, and the tombstones.

use rtad_core::device::DeviceKey;
use rtad_core::snapshot::{BuiltDelta, Folded, Overlay, SortedKeys};
use rtad_store::write::Base;
use rtad_store::{Store, StoreError};

/// Changes over an input. They take precedence, as an export is older than its build.
#[derive(Debug, Default)]
pub(crate) struct MergedDeltas {
    /// For the manifest; `None` before the first publish.
    pub(crate) folded: Option<Folded>,
    /// Members besides the input's.
    added: Vec<DeviceKey>,
    removed: Option<SortedKeys>,
}

impl MergedDeltas {
    /// Reads the deltas of the base. Held until the build ends: 32 bytes per key.
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

    /// Members besides the input's, in order.
    pub(crate) fn added(&self) -> &[DeviceKey] {
        &self.added
    }

    /// Keys that are not members, whether or not the input has them.
    pub(crate) const fn removed(&self) -> Option<&SortedKeys> {
        self.removed.as_ref()
    }
}
