//! A delta: exact additions and removals after a generation, in one file.
//!
//! ```text
//! offset    size  field      little-endian
//!      0       8  magic      "RTADDLTA"
//!      8       4  version    1
//!     12       4  zero
//!     16       8  first      sequence of the `CURRENT` that first named the oldest change in it
//!     24       8  last       and the newest
//!     32       8  added      a
//!     40       8  removed    r
//!     48      16  zero
//!     64    16·a  keys added,   ascending, each once
//!      …    16·r  keys removed, ascending, each once, none of those added
//! ```
//!
//! The lists are exact, so a delta adds no false positives and can take a device away, which a
//! Bloom filter cannot. `CURRENT` names the deltas that apply, oldest first; of a key that several
//! name, the newest decides. To apply one again that is in a later one or in the generation already
//! changes nothing: that is what lets writers merge them while others build.
//!
//! What is named here is untrusted like every other file: sizes are checked before memory is taken,
//! the digest before anything is believed.

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

/// More deltas than this `CURRENT` does not name: each costs a look-up.
pub const MAX_DELTAS: usize = 12;
/// Keys that one delta may hold, added and removed together: 512 MiB. Beyond, a build is due.
pub const MAX_DELTA_KEYS: u64 = 1 << 25;

/// A delta file that is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeltaError {
    /// The file ends early or goes on too long.
    #[error("has {found} bytes, expected {expected}")]
    Length {
        /// Bytes that came.
        found: u64,
        /// Bytes that `CURRENT` states.
        expected: u64,
    },
    /// Not a delta at all.
    #[error("is not a delta: it does not begin with RTADDLTA")]
    Magic,
    /// Written by a later rtad.
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
        /// Where it stands.
        offset: usize,
        /// Its value.
        found: u64,
        /// The value that it must have.
        expected: u64,
    },
    /// The keys are not ascending, or one is both added and removed.
    #[error("the {list} keys are not in order")]
    Order {
        /// Which list.
        list: &'static str,
    },
    /// The bytes are not those that were published.
    #[error("digest is {found}, expected {expected}: the file was changed")]
    Digest {
        /// Digest of the bytes read.
        found: Digest,
        /// Digest in `CURRENT`.
        expected: Digest,
    },
}

impl DeltaError {
    /// The kind of fault, for counting.
    pub const fn fault(&self) -> Fault {
        match self {
            Self::Digest { .. } => Fault::Digest,
            Self::Length { .. } => Fault::Truncated,
            _ => Fault::Format,
        }
    }
}

/// What `CURRENT` or a manifest says of a delta.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeltaEntry {
    /// Sequence of the `CURRENT` that first named the oldest change in it.
    pub first: u64,
    /// The same of the newest; part of the file's name.
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

    /// Size of the file; in memory it takes about as much.
    pub const fn size_bytes(&self) -> u64 {
        self.keys().saturating_mul(KEY_BYTES).saturating_add(HEADER_BYTES)
    }

    /// That it can be: `field` says where it stands, `newest` is the sequence that it cannot be
    /// beyond.
    pub(super) fn check(&self, field: &str, newest: u64) -> Result<(), ManifestError> {
        let wrong = |name: &str, found: u64, expected: String| {
            Err(ManifestError::field(format!("{field}.{name}"), found, expected))
        };
        if self.first == 0 || self.first > self.last {
            return wrong("first", self.first, format!("1 to {}", self.last));
        }
        if self.last > newest {
            return wrong("last", self.last, format!("at most {newest}"));
        }
        if self.keys() == 0 || self.keys() > MAX_DELTA_KEYS {
            return wrong(
                "added",
                self.added,
                format!("1 to {MAX_DELTA_KEYS} keys, with the removed"),
            );
        }
        Ok(())
    }
}

/// Exact additions and removals, verified and in memory. No key is in both.
#[derive(Debug)]
pub struct Delta {
    entry: DeltaEntry,
    added: SortedKeys,
    removed: SortedKeys,
    /// Of both lists.
    summary: Summary,
}

/// A delta and its file.
#[derive(Debug)]
pub struct BuiltDelta {
    /// As a reader would have it.
    pub delta: Delta,
    /// The file's bytes.
    pub bytes: Vec<u8>,
}

impl Delta {
    /// Reads a file that is named by `entry`. Costs its SHA-256 and two passes over the keys.
    ///
    /// # Errors
    ///
    /// [`DeltaError`] names the fault.
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
            // As many as the file has bytes for.
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

    /// What names it.
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

    /// Bytes that it takes in memory.
    pub fn memory_bytes(&self) -> u64 {
        self.added.memory_bytes() + self.removed.memory_bytes() + self.summary.memory_bytes()
    }

    /// What it says of a key: a member, no member, or nothing. One read of memory for most keys
    /// that it does not name, up to four more for the others.
    #[inline]
    pub fn says(&self, key: &DeviceKey) -> Option<bool> {
        if self.summary.may_name(key) { self.named(key) } else { None }
    }

    /// Reads the first bytes that [`Delta::says`] will read.
    #[inline]
    pub fn touch(&self, key: &DeviceKey) -> u64 {
        self.summary.touch(key)
    }

    fn named(&self, key: &DeviceKey) -> Option<bool> {
        if self.added.contains(key) {
            return Some(true);
        }
        self.removed.contains(key).then_some(false)
    }
}

impl BuiltDelta {
    /// The file of some changes that `first` to `last` named. The keys may come in any order and
    /// more than once. `None` if there are none.
    ///
    /// # Panics
    ///
    /// If a key is in both lists: what is meant is then not known.
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

    /// Several deltas, oldest first, as one that `CURRENT` number `last` is to name: of each key
    /// the newest decides. `None` if there are none.
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
