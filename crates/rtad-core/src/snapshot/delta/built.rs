//! Built delta: a delta and its file, of new changes or merged from other deltas.

use super::keys::{SortedKeys, overlaid};
use super::{Delta, DeltaEntry, HEADER_BYTES, KEY_BYTES, MAGIC, MAX_VALUE, NO_VALUE, VERSION};
use crate::device::DeviceKey;
use crate::snapshot::name::Digest;

/// A delta with its file.
#[derive(Debug)]
pub struct BuiltDelta {
    /// The delta, as [`Delta::parse`] returns it.
    pub delta: Delta,
    /// The file's bytes.
    pub bytes: Vec<u8>,
}

impl BuiltDelta {
    /// A delta with changes of the sequences `first` to `last`, without values. Keys may be
    /// unsorted and repeated. `None` if there are no keys.
    ///
    /// # Panics
    ///
    /// If a key is in both lists.
    pub fn new(
        first: u64,
        last: u64,
        added: Vec<DeviceKey>,
        removed: Vec<DeviceKey>,
    ) -> Option<Self> {
        Self::of(
            first,
            last,
            (SortedKeys::sort(added), Box::default()),
            SortedKeys::sort(removed),
        )
    }

    /// The same for members with the value of each, sorted and each once.
    ///
    /// # Panics
    ///
    /// If a key is in both lists, members are not sorted, or a value is over 15.
    pub fn with_values(
        first: u64,
        last: u64,
        added: &[(DeviceKey, Option<u8>)],
        removed: Vec<DeviceKey>,
    ) -> Option<Self> {
        let has_values = added.iter().any(|(_, value)| value.is_some());
        let mut keys = Vec::with_capacity(added.len());
        let mut values = Vec::new();
        for (key, value) in added {
            keys.push(*key);
            if has_values {
                let is_valid = value.is_none_or(|value| value <= MAX_VALUE);
                assert!(is_valid, "a value is at most 15");
                values.push(value.unwrap_or(NO_VALUE));
            }
        }

        let keys = SortedKeys::new(keys).expect("members are sorted");
        Self::of(
            first,
            last,
            (keys, values.into()),
            SortedKeys::sort(removed),
        )
    }

    fn of(
        first: u64,
        last: u64,
        (added, values): (SortedKeys, Box<[u8]>),
        removed: SortedKeys,
    ) -> Option<Self> {
        assert!(
            !removed.iter().any(|key| added.contains(key)),
            "a key is either added or removed"
        );

        if added.is_empty() && removed.is_empty() {
            return None;
        }
        let keys = added.len() + removed.len();
        let len = HEADER_BYTES as usize + keys * KEY_BYTES as usize + values.len();
        let mut bytes = Vec::with_capacity(len);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        let (a, r, v) = (
            added.len() as u64,
            removed.len() as u64,
            values.len() as u64,
        );

        for field in [first, last, a, r, v, 0] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        for key in added.iter().chain(removed.iter()) {
            bytes.extend_from_slice(key.as_bytes());
        }
        bytes.extend_from_slice(&values);
        let has_values = v > 0;
        let sha256 = Digest::of(&bytes);
        let entry = DeltaEntry {
            first,
            last,
            added: a,
            removed: r,
            has_values,
            sha256,
        };

        Some(Self {
            delta: Delta::of(entry, added, removed, values),
            bytes,
        })
    }

    /// Merges deltas, oldest first, into one for the record with sequence `last`. The newest
    /// delta that names a key decides, about its value too. `None` if there are none.
    pub fn merged<'a>(last: u64, deltas: impl IntoIterator<Item = &'a Delta>) -> Option<Self> {
        let mut deltas = deltas.into_iter();
        let oldest = deltas.next()?;
        let mut first = oldest.entry.first;
        let mut added: Vec<_> = oldest.members().collect();
        let mut removed: Vec<_> = oldest.removed.iter().map(|key| (*key, ())).collect();
        for newer in deltas {
            first = first.min(newer.entry.first);
            let kept = added
                .iter()
                .filter(|(key, _)| !newer.removed.contains(key))
                .copied();
            added = overlaid(kept, newer.members());
            let kept = removed
                .iter()
                .filter(|(key, ())| !newer.added.contains(key))
                .copied();
            removed = overlaid(kept, newer.removed.iter().map(|key| (*key, ())));
        }

        Self::with_values(
            first,
            last,
            &added,
            removed.into_iter().map(|(key, ())| key).collect(),
        )
    }
}
