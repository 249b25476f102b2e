//! Delta: exact additions to and removals from a generation, in one file.
//!
//! ```text
//! offset    size  field      little-endian
//!      0       8  magic      "RTADDLTA"
//!      8       4  version    1
//!     12       4  zero
//!     16       8  first      sequence of the record that first named its oldest change
//!     24       8  last       the same of its newest change
//!     32       8  added      a
//!     40       8  removed    r
//!     48       8  values     v: a, or 0 without values
//!     56       8  zero
//!     64    16·a  keys added,   ascending, each once
//!      …    16·r  keys removed, ascending, each once, none of those added
//!      …       v  values of the keys added, in their order: 0 to 15, 255 = none
//! ```
//!
//! The lists are exact: a delta adds no false positives and can remove a device, which a Bloom
//! filter cannot. The record names the deltas that apply, oldest first; the newest delta that names
//! a key decides, about its value too. Applying a delta again is idempotent, so deltas can be
//! merged during a build.
//!
//! Files are untrusted: sizes are checked before memory is allocated, the digest before parsing.

mod built;
mod keys;
mod summary;

use serde::{Deserialize, Serialize};

pub use built::BuiltDelta;
pub use keys::SortedKeys;
use summary::Summary;

use super::json::ManifestError;
use super::name::Digest;
use super::{Fault, u32_at, u64_at};
use crate::device::DeviceKey;

const MAGIC: [u8; 8] = *b"RTADDLTA";
const VERSION: u32 = 1;
const HEADER_BYTES: u64 = 64;
const KEY_BYTES: u64 = 16;
/// Stands for no value.
const NO_VALUE: u8 = u8::MAX;
const MAX_VALUE: u8 = 15;

/// Highest number of deltas in the record: each costs a lookup.
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
        /// Size in the record.
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
    /// A field contradicts the record.
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
    /// A value is neither from 0 to 15 nor none.
    #[error("value {index} is {found}, expected 0 to 15, or 255 for none")]
    Value {
        /// Index of the key among those added.
        index: usize,
        /// The value found.
        found: u8,
    },
    /// The bytes are not the published ones.
    #[error("digest is {found}, expected {expected}: the file was changed")]
    Digest {
        /// Digest of the bytes read.
        found: Digest,
        /// Digest in the record.
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

/// The entry of a delta in the record or a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeltaEntry {
    /// Sequence of the first record with its oldest change.
    pub first: u64,
    /// Sequence of the first record with its newest change; part of the file's name.
    pub last: u64,
    /// Keys added.
    pub added: u64,
    /// Keys removed.
    pub removed: u64,
    /// Whether the keys added have values.
    #[serde(default, rename = "values", skip_serializing_if = "std::ops::Not::not")]
    pub has_values: bool,
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
        let keys = self.keys().saturating_mul(KEY_BYTES);
        keys.saturating_add(self.value_bytes())
            .saturating_add(HEADER_BYTES)
    }

    const fn value_bytes(&self) -> u64 {
        if self.has_values { self.added } else { 0 }
    }

    /// Checks the numbers. `field` is the entry's path in the file, `newest` the highest sequence
    /// allowed.
    pub(super) fn check(&self, field: &str, newest: u64) -> Result<(), ManifestError> {
        let invalid = |name: &str, found: u64, expected: String| {
            Err(ManifestError::field(
                format!("{field}.{name}"),
                found,
                expected,
            ))
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

        if self.has_values && self.added == 0 {
            return invalid("added", 0, "at least 1 key, with values".to_owned());
        }
        Ok(())
    }
}

/// A verified delta in memory. No key is both added and removed.
#[derive(Debug)]
pub struct Delta {
    entry: DeltaEntry,
    added: SortedKeys,
    /// Those of the keys added; empty if they have none.
    values: Box<[u8]>,
    removed: SortedKeys,
    /// Covers both lists.
    summary: Summary,
}

impl Delta {
    /// Parses the file of `entry`. Costs its SHA-256 and two passes over the keys.
    ///
    /// # Errors
    ///
    /// [`DeltaError`].
    pub fn parse(bytes: &[u8], entry: &DeltaEntry) -> Result<Self, DeltaError> {
        let found = bytes.len() as u64;
        let expected = entry.size_bytes();
        if found != expected {
            return Err(DeltaError::Length { found, expected });
        }
        let found = Digest::of(bytes);
        let expected = entry.sha256;
        if found != expected {
            return Err(DeltaError::Digest { found, expected });
        }
        let (header, body) = bytes.split_at(HEADER_BYTES as usize);
        if header[..8] != MAGIC {
            return Err(DeltaError::Magic);
        }
        if u32_at(header, 8) != VERSION {
            return Err(DeltaError::Version {
                found: u32_at(header, 8),
            });
        }
        for (field, offset, found, expected) in [
            ("reserved", 12, u32_at(header, 12).into(), 0),
            ("first", 16, u64_at(header, 16), entry.first),
            ("last", 24, u64_at(header, 24), entry.last),
            ("added", 32, u64_at(header, 32), entry.added),
            ("removed", 40, u64_at(header, 40), entry.removed),
            ("values", 48, u64_at(header, 48), entry.value_bytes()),
            ("reserved", 56, u64_at(header, 56), 0),
        ] {
            if found != expected {
                return Err(DeltaError::Field {
                    field,
                    offset,
                    found,
                    expected,
                });
            }
        }

        let (keys, values) = body.split_at(body.len() - entry.value_bytes() as usize);
        let mut keys = keys
            .as_chunks::<16>()
            .0
            .iter()
            .map(|key| DeviceKey::from_bytes(*key));
        let mut list = |name, count: u64| {
            let keys: Vec<DeviceKey> = keys.by_ref().take(count as usize).collect();
            SortedKeys::new(keys).ok_or(DeltaError::Order { list: name })
        };

        let added = list("added", entry.added)?;
        let removed = list("removed", entry.removed)?;
        if added.iter().any(|key| removed.contains(key)) {
            return Err(DeltaError::Order { list: "removed" });
        }
        for (index, value) in values.iter().enumerate() {
            if *value > MAX_VALUE && *value != NO_VALUE {
                let found = *value;
                return Err(DeltaError::Value { index, found });
            }
        }

        if entry.has_values && values.iter().all(|value| *value == NO_VALUE) {
            let offset = 48;
            let found = entry.value_bytes();
            return Err(DeltaError::Field {
                field: "values",
                offset,
                found,
                expected: 0,
            });
        }

        Ok(Self::of(entry.clone(), added, removed, values.into()))
    }

    fn of(entry: DeltaEntry, added: SortedKeys, removed: SortedKeys, values: Box<[u8]>) -> Self {
        let summary = Summary::of([&added, &removed]);
        Self {
            entry,
            added,
            values,
            removed,
            summary,
        }
    }

    /// The entry that names it.
    pub const fn entry(&self) -> &DeltaEntry {
        &self.entry
    }

    /// Keys added.
    pub const fn added(&self) -> &SortedKeys {
        &self.added
    }

    /// Keys added, with the value of each.
    pub fn members(&self) -> impl Iterator<Item = (DeviceKey, Option<u8>)> {
        self.added
            .iter()
            .enumerate()
            .map(|(index, key)| (*key, self.value_at(index)))
    }

    /// The value of a key that it adds.
    pub fn value(&self, key: &DeviceKey) -> Option<u8> {
        if self.values.is_empty() {
            None
        } else {
            self.value_at(self.added.find(key)?)
        }
    }

    fn value_at(&self, index: usize) -> Option<u8> {
        self.values
            .get(index)
            .copied()
            .filter(|value| *value != NO_VALUE)
    }

    /// Keys removed.
    pub const fn removed(&self) -> &SortedKeys {
        &self.removed
    }

    /// Size in memory, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let keys = self.added.memory_bytes() + self.removed.memory_bytes();
        keys + self.values.len() as u64 + self.summary.memory_bytes()
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

#[cfg(test)]
mod tests;
