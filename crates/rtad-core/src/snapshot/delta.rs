//! Delta: exact additions to and removals from a generation, in one file.
//!
//! ```text
//! offset    size  field      little-endian
//!      0       8  magic      "RTADDLTA"
//!      8       4  version    1
//!     12       4  zero
//!     16       8  first      sequence of the `CURRENT` that first named its oldest change
//!     24       8  last       the same of its newest change
//!     32       8  added      a
//!     40       8  removed    r
//!     48      16  zero
//!     64    16·a  keys added,   ascending, each once
//!      …    16·r  keys removed, ascending, each once, none of those added
//! ```
//!
//! The lists are exact: a delta adds no false positives and can remove a device, which a Bloom
//! filter cannot. `CURRENT` names the deltas that apply, oldest first; the newest delta that names
//! a key decides. Applying a delta again is idempotent, so deltas can be merged during a build.
//!
//! Files are untrusted: sizes are checked before memory is allocated, the digest before parsing.

mod keys;
mod summary;

use serde::{Deserialize, Serialize};

pub use keys::SortedKeys;
use keys::{union, without};
use summary::Summary;

use super::Fault;
use super::json::ManifestError;
use super::name::Digest;
use crate::device::DeviceKey;

const MAGIC: [u8; 8] = *b"RTADDLTA";
const VERSION: u32 = 1;
const HEADER_BYTES: u64 = 64;
const KEY_BYTES: u64 = 16;

/// Highest number of deltas in `CURRENT`: each costs a lookup.
pub const MAX_DELTAS: usize = 12;
/// Highest number of keys of one delta, added and removed: 512 MiB. More keys need a build.
pub const MAX_DELTA_KEYS: u64 = 1 << 25;

/// Reason why a delta file is rejected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeltaError {
    /// The file is too short or too long.
    #[error("has {found} bytes, expected {expected}")]
    Length {
        /// Bytes received.
        found: u64,
        /// Size in `CURRENT`.
        expected: u64,
    },
    /// Not a delta file.
    #[error("is not a delta: it does not begin with RTADDLTA")]
    Magic,
    /// Written by a newer rtad.
    #[error("version is {found}, this rtad reads version 1: upgrade rtad")]
    Version {
        /// The version of the file.
        found: u32,
    },
    /// A field contradicts `CURRENT`.
    #[error("{field} at byte {offset} is {found}, expected {expected}")]
    Field {
        /// The field's name.
        field: &'static str,
        /// Its offset in the file.
        offset: usize,
        /// The value found.
        found: u64,
        /// The expected value.
        expected: u64,
    },
    /// The keys are not ascending, or a key is both added and removed.
    #[error("the {list} keys are not in order")]
    Order {
        /// `added` or `removed`.
        list: &'static str,
    },
    /// The bytes are not the published ones.
    #[error("digest is {found}, expected {expected}: the file was changed")]
    Digest {
        /// Digest of the bytes read.
        found: Digest,
        /// Digest in `CURRENT`.
        expected: Digest,
    },
}

impl DeltaError {
    /// The kind of fault, for the metric.
    pub const fn fault(&self) -> Fault {
        match self {
            Self::Digest { .. } => Fault::Digest,
            Self::Length { .. } => Fault::Truncated,
            _ => Fault::Format,
        }
    }
}

/// The entry of a delta in `CURRENT` or a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeltaEntry {
    /// Sequence of the first `CURRENT` with its oldest change.
    pub first: u64,
    /// Sequence of the first `CURRENT` with its newest change; part of the file's name.
    pub last: u64,
    /// Keys added.
    pub added: u64,
    /// Keys removed.
    pub removed: u64,
    /// SHA-256 of the file; part of its name.
    pub sha256: Digest,
}

impl DeltaEntry {
    /// Keys added and removed.
    pub const fn keys(&self) -> u64 {
        self.added.saturating_add(self.removed)
    }

    /// Size of the file, and about its size in memory.
    pub const fn size_bytes(&self) -> u64 {
        self.keys().saturating_mul(KEY_BYTES).saturating_add(HEADER_BYTES)
    }

    /// Checks the numbers. `field` is the entry's path in the file, `newest` the highest sequence
    /// allowed.
    pub(super) fn check(&self, field: &str, newest: u64) -> Result<(), ManifestError> {
        let invalid = |name: &str, found: u64, expected: String| {
            Err(ManifestError::field(format!("{field}.{name}"), found, expected))
        };
        if self.first == 0 || self.first > self.last {
            return invalid("first", self.first, format!("1 to {}", self.last));
        }
        if self.last > newest {
            return invalid("last", self.last, format!("at most {newest}"));
        }
        if self.keys() == 0 || self.keys() > MAX_DELTA_KEYS {
            return invalid(
                "added",
                self.added,
                format!("1 to {MAX_DELTA_KEYS} keys, with the removed"),
            );
        }
        Ok(())
    }
}

/// A verified delta in memory. No key is both added and removed.
#[derive(Debug)]
pub struct Delta {
    entry: DeltaEntry,
    added: SortedKeys,
    removed: SortedKeys,
    /// Covers both lists.
    summary: Summary,
}

/// A delta with its file.
#[derive(Debug)]
pub struct BuiltDelta {
    /// The delta, as [`Delta::parse`] returns it.
    pub delta: Delta,
    /// The file's bytes.
    pub bytes: Vec<u8>,
}

impl Delta {
    /// Parses the file of `entry`. Costs its SHA-256 and two passes over the keys.
    ///
    /// # Errors
    ///
    /// [`DeltaError`].
    pub fn parse(bytes: &[u8], entry: &DeltaEntry) -> Result<Self, DeltaError> {
        let (found, expected) = (bytes.len() as u64, entry.size_bytes());
        if found != expected {
            return Err(DeltaError::Length { found, expected });
        }
        let (found, expected) = (Digest::of(bytes), entry.sha256);
        if found != expected {
            return Err(DeltaError::Digest { found, expected });
        }
        let (header, body) = bytes.split_at(HEADER_BYTES as usize);
        let u32_at = |offset: usize| {
            u32::from_le_bytes(header[offset..offset + 4].try_into().expect("four bytes"))
        };
        let u64_at = |offset: usize| {
            u64::from_le_bytes(header[offset..offset + 8].try_into().expect("eight bytes"))
        };
        if header[..8] != MAGIC {
            return Err(DeltaError::Magic);
        }
        if u32_at(8) != VERSION {
            return Err(DeltaError::Version { found: u32_at(8) });
        }
        for (field, offset, found, expected) in [
            ("reserved", 12, u32_at(12).into(), 0),
            ("first", 16, u64_at(16), entry.first),
            ("last", 24, u64_at(24), entry.last),
            ("added", 32, u64_at(32), entry.added),
            ("removed", 40, u64_at(40), entry.removed),
            ("reserved", 48, u64_at(48), 0),
            ("reserved", 56, u64_at(56), 0),
        ] {
            if found != expected {
                return Err(DeltaError::Field { field, offset, found, expected });
            }
        }
        let mut keys = body.as_chunks::<16>().0.iter().map(|key| DeviceKey::from_bytes(*key));
        let mut list = |name, count: u64| {
            let keys: Vec<DeviceKey> = keys.by_ref().take(count as usize).collect();
            SortedKeys::new(keys).ok_or(DeltaError::Order { list: name })
        };
        let (added, removed) = (list("added", entry.added)?, list("removed", entry.removed)?);
        if added.iter().any(|key| removed.contains(key)) {
            return Err(DeltaError::Order { list: "removed" });
        }
        Ok(Self::of(entry.clone(), added, removed))
    }

    fn of(entry: DeltaEntry, added: SortedKeys, removed: SortedKeys) -> Self {
        let summary = Summary::of([&added, &removed]);
        Self { entry, added, removed, summary }
    }

    /// The entry that names it.
    pub const fn entry(&self) -> &DeltaEntry {
        &self.entry
    }

    /// Keys added.
    pub const fn added(&self) -> &SortedKeys {
        &self.added
    }

    /// Keys removed.
    pub const fn removed(&self) -> &SortedKeys {
        &self.removed
    }

    /// Size in memory, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.added.memory_bytes() + self.removed.memory_bytes() + self.summary.memory_bytes()
    }

    /// Whether the key is a member: `None` if the delta does not name it. One memory read for most
    /// such keys, up to four more for all others.
    #[inline]
    pub fn membership(&self, key: &DeviceKey) -> Option<bool> {
        if !self.summary.may_contain(key) {
            return None;
        }
        if self.added.contains(key) {
            return Some(true);
        }
        self.removed.contains(key).then_some(false)
    }

    /// Reads the first bytes that [`Delta::membership`] will read, to overlap cache misses.
    #[inline]
    pub fn touch(&self, key: &DeviceKey) -> u64 {
        self.summary.touch(key)
    }
}

impl BuiltDelta {
    /// A delta with changes of the sequences `first` to `last`. Keys may be unsorted and repeated.
    /// `None` if there are no keys.
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
        let (added, removed) = (SortedKeys::sort(added), SortedKeys::sort(removed));
        assert!(!removed.iter().any(|key| added.contains(key)), "a key is either added or removed");
        if added.is_empty() && removed.is_empty() {
            return None;
        }
        let keys = added.len() + removed.len();
        let mut bytes = Vec::with_capacity(HEADER_BYTES as usize + keys * KEY_BYTES as usize);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        for field in [first, last, added.len() as u64, removed.len() as u64, 0, 0] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        for key in added.iter().chain(removed.iter()) {
            bytes.extend_from_slice(key.as_bytes());
        }
        let (a, r) = (added.len() as u64, removed.len() as u64);
        let entry = DeltaEntry { first, last, added: a, removed: r, sha256: Digest::of(&bytes) };
        Some(Self { delta: Delta::of(entry, added, removed), bytes })
    }

    /// Merges deltas, oldest first, into one for the `CURRENT` with sequence `last`. The newest
    /// delta that names a key decides. `None` if there are none.
    pub fn merged<'a>(last: u64, deltas: impl IntoIterator<Item = &'a Delta>) -> Option<Self> {
        let mut deltas = deltas.into_iter();
        let oldest = deltas.next()?;
        let mut first = oldest.entry.first;
        let (mut added, mut removed) = (oldest.added.to_vec(), oldest.removed.to_vec());
        for newer in deltas {
            first = first.min(newer.entry.first);
            added = union(&without(&added, &newer.removed), &newer.added);
            removed = union(&without(&removed, &newer.added), &newer.removed);
        }
        Self::new(first, last, added, removed)
    }
}

#[cfg(test)]
mod tests;
