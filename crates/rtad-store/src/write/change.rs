//! Change: members and tombstones that an append adds or removes.

use rtad_core::device::DeviceKey;

/// Whether a device becomes a member, and with which value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Membership {
    Added(Option<u8>),
    Removed,
}

/// Changes to append. The last entry of a key wins.
#[derive(Debug, Clone, Default)]
pub struct Change {
    members: Vec<(DeviceKey, Membership)>,
    tombstones: Vec<(DeviceKey, bool)>,
}

impl Change {
    /// Makes the device a member without a value, unless it has a tombstone.
    pub fn add(&mut self, key: DeviceKey) {
        self.members.push((key, Membership::Added(None)));
    }

    /// Makes the device a member with a value from 0 to 15, unless it has a tombstone.
    pub fn add_with_value(&mut self, key: DeviceKey, value: u8) {
        self.members.push((key, Membership::Added(Some(value))));
    }

    /// Removes the device, until it is added again or a build after the next contains it.
    pub fn remove(&mut self, key: DeviceKey) {
        self.members.push((key, Membership::Removed));
    }

    /// Adds a tombstone: the device is no member, despite additions and builds, until
    /// [`Change::lift`].
    pub fn entomb(&mut self, key: DeviceKey) {
        self.tombstones.push((key, true));
    }

    /// Removes the device's tombstone: filters and deltas decide again.
    pub fn lift(&mut self, key: DeviceKey) {
        self.tombstones.push((key, false));
    }

    /// Number of entries, duplicates included.
    pub fn len(&self) -> usize {
        self.members.len() + self.tombstones.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The changes of members, and the keys with a new tombstone and without their old one. All
    /// lists are sorted, each key once.
    pub(super) fn split(self) -> (MemberChanges, (Vec<DeviceKey>, Vec<DeviceKey>)) {
        let (mut added, mut removed) = MemberChanges::default();
        for (key, membership) in last_by_key(self.members) {
            match membership {
                Membership::Added(value) => added.push((key, value)),
                Membership::Removed => removed.push(key),
            }
        }
        let mut entombed = Vec::new();
        let mut lifted = Vec::new();
        for (key, is_entombed) in last_by_key(self.tombstones) {
            if is_entombed {
                entombed.push(key)
            } else {
                lifted.push(key)
            }
        }
        ((added, removed), (entombed, lifted))
    }
}

/// Keys that are added, with their values, and keys that are removed.
pub type MemberChanges = (Vec<(DeviceKey, Option<u8>)>, Vec<DeviceKey>);

/// The last entry of each key, sorted.
fn last_by_key<T>(mut entries: Vec<(DeviceKey, T)>) -> Vec<(DeviceKey, T)> {
    entries.reverse();
    entries.sort_by_key(|(key, _)| *key);
    entries.dedup_by_key(|(key, _)| *key);
    entries
}
