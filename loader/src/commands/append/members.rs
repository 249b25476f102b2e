//! Membership of the given devices before and after a change.

use serde::Serialize;

use rtad_core::device::DeviceKey;
use rtad_core::snapshot::{AudienceName, Current, Overlay};
use rtad_store::{Store, StoreError};

use super::super::context::default_threads;
use crate::live_filters::{LiveFilters, chunks_of};

/// Most bytes of filters to read. Beyond them, a sample of the devices is looked up.
const MAX_FILTER_BYTES: u64 = 256 << 20;

/// The distinct devices that were looked up, and the members among them.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct MembershipCounts {
    checked: u64,
    before: u64,
    /// `None` in a dry run, or if a build published meanwhile.
    after: Option<u64>,
}

/// The given devices, and the filters of those that are looked up.
pub struct MemberCheck {
    keys: Vec<DeviceKey>,
    filters: LiveFilters,
    before: Overlay,
}

impl MemberCheck {
    /// Reads the filters and deltas of the live generation.
    ///
    /// # Errors
    ///
    /// A store error, or a refused file.
    pub async fn read(
        store: &Store,
        audience: &AudienceName,
        current: &Current,
        keys: &[DeviceKey],
    ) -> Result<Self, StoreError> {
        let manifest = store.manifest(audience, &current.live_entry()).await?;
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        keys.dedup();

        let entries = chunks_of(&manifest, &keys, MAX_FILTER_BYTES);
        let filters = LiveFilters::read(store, manifest, &entries, default_threads()).await?;
        keys.retain(|key| filters.contains(key).is_some());
        let before = store
            .overlay(audience, current, &Overlay::default())
            .await?;
        Ok(Self {
            keys,
            filters,
            before,
        })
    }

    /// MembershipCounts before the change, and under the record that it left, if any.
    ///
    /// # Errors
    ///
    /// A store error, or a refused delta.
    pub async fn members(
        &self,
        store: &Store,
        audience: &AudienceName,
        after: Option<&Current>,
    ) -> Result<MembershipCounts, StoreError> {
        let generation = self.filters.manifest().generation();
        let after = match after.filter(|current| current.generation == generation) {
            Some(current) => {
                Some(self.count(&store.overlay(audience, current, &self.before).await?))
            }
            None => None,
        };
        Ok(MembershipCounts {
            checked: self.keys.len() as u64,
            before: self.count(&self.before),
            after,
        })
    }

    fn count(&self, overlay: &Overlay) -> u64 {
        let mut members = 0;
        for key in &self.keys {
            let by_overlay = overlay.membership(key);
            if by_overlay.or_else(|| self.filters.contains(key)) == Some(true) {
                members += 1;
            }
        }
        members
    }
}
