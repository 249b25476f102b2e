//! An audience of the catalog, and membership in it.

use std::sync::Arc;
use std::time::Duration;

use crate::strategy::{Membership, Tier};
use rtad_core::device::DeviceKey;
use rtad_core::snapshot::{AudienceName, Snapshot};

/// One audience of the catalog.
#[derive(Debug, Clone)]
pub struct Audience {
    /// Its name.
    pub name: AudienceName,
    /// Whether the pod is not ready without it.
    pub required: bool,
    /// Maximum age; an older snapshot counts as unavailable.
    pub max_age: Option<Duration>,
    /// Its last verified snapshot.
    pub snapshot: Option<Arc<Snapshot>>,
    /// Whether the snapshot is older than `max_age`, or has expired. Kept by `sync`, so that no
    /// request reads the clock.
    pub is_stale: bool,
}

impl Audience {
    /// An audience that has not been loaded yet.
    pub const fn unloaded(name: AudienceName, required: bool, max_age: Option<Duration>) -> Self {
        Self {
            name,
            required,
            max_age,
            snapshot: None,
            is_stale: false,
        }
    }

    /// The snapshot, unless there is none or it is stale.
    #[inline]
    pub fn available(&self) -> Option<&Snapshot> {
        if self.is_stale {
            None
        } else {
            self.snapshot.as_deref()
        }
    }

    /// Membership of a device, by any of its keys.
    #[inline]
    pub fn membership(&self, keys: &[DeviceKey]) -> Membership {
        match self.available() {
            Some(snapshot) if snapshot.contains_any(keys) => Membership::Member,
            Some(_) => Membership::NotMember,
            None => Membership::Unavailable,
        }
    }

    /// The value of a member: the greatest of its keys.
    pub fn tier(&self, keys: &[DeviceKey]) -> Tier {
        let Some(snapshot) = self.available() else {
            return Tier::Unknown;
        };
        snapshot.value(keys).map_or(Tier::None, Tier::Value)
    }

    /// Whether a snapshot is served that was built without values, and no delta has any.
    pub fn has_no_values(&self) -> bool {
        self.snapshot.as_ref().is_some_and(|snapshot| {
            snapshot.manifest().filter().value_bits() == 0
                && !snapshot
                    .overlay()
                    .deltas()
                    .any(|delta| delta.entry().has_values)
        })
    }

    /// Whether the snapshot has expired at `now`, in seconds since 1970.
    pub fn is_expired(&self, now_unix_seconds: u64) -> bool {
        self.snapshot
            .as_ref()
            .is_some_and(|snapshot| snapshot.manifest().is_expired(now_unix_seconds))
    }

    /// The snapshot's age at `now`, in seconds since 1970; 0 if it is from the future.
    pub fn age_seconds(&self, now_unix_seconds: u64) -> Option<u64> {
        let snapshot = self.snapshot.as_ref()?;
        Some(now_unix_seconds.saturating_sub(snapshot.manifest().created_unix_seconds()))
    }
}
