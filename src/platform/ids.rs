//! Keys of the ids in requests, and counters of usable, blank and malformed ids.

use arrayvec::ArrayVec;

use crate::telemetry::{IdCounters, Telemetry};
use rtad_core::device::{DeviceKey, IdField, IdKind, KeyDigest, KeyMaker, Unusable};

/// Usable ids of one request that are looked up, each once. Each strategy looks up each of them on
/// the worker's thread.
pub const MAX_IDS: usize = 64;

/// Ids of one request that are read, usable or not.
pub const MAX_READ_IDS: usize = 1024;

/// Strategies or ads that one request may name. Each is looked up, and has a part of the answer.
pub(super) const MAX_ASKED: usize = 1024;

type Keys = ArrayVec<DeviceKey, MAX_IDS>;

/// The keys of a device's usable ids, each once: for audiences of md5, and for those of SHA-1.
#[derive(Debug, Clone, Default)]
pub struct DeviceKeys {
    md5: Keys,
    sha1: Keys,
}

/// More than [`MAX_IDS`] different usable ids.
#[derive(Debug)]
pub struct TooManyIds;

impl DeviceKeys {
    /// Adds the key of a usable id of `kind`; with `has_sha1`, also its key in audiences of SHA-1.
    /// Returns whether it is new.
    #[inline]
    pub fn add(
        &mut self,
        (kind, id): (IdKind, &[u8]),
        key: DeviceKey,
        has_sha1: bool,
    ) -> Result<bool, TooManyIds> {
        if kind == IdKind::Sha1 {
            return add(&mut self.sha1, key);
        }
        let is_new = add(&mut self.md5, key)?;
        // Even if its md5 is known: that may have come as an md5, which has no SHA-1.
        let is_new_sha1 = has_sha1 && self.add_sha1_of(kind, id)?;
        Ok(is_new || is_new_sha1)
    }

    /// Adds the SHA-1 of an id. Nearly no pod has an audience of SHA-1.
    #[cold]
    fn add_sha1_of(&mut self, kind: IdKind, id: &[u8]) -> Result<bool, TooManyIds> {
        KeyMaker::sha1_key(kind, id).map_or(Ok(false), |key| add(&mut self.sha1, key))
    }

    /// The keys to look up in audiences of this digest.
    #[inline]
    pub fn of(&self, digest: KeyDigest) -> &[DeviceKey] {
        match digest {
            KeyDigest::Md5 => &self.md5,
            KeyDigest::Sha1 => &self.sha1,
        }
    }

    /// Whether no id is usable.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.md5.is_empty() && self.sha1.is_empty()
    }

    /// The keys by which the device is counted: those of md5, or of SHA-1 if all ids are SHA-1.
    #[inline]
    pub fn counted(&self) -> &[DeviceKey] {
        if self.md5.is_empty() {
            &self.sha1
        } else {
            &self.md5
        }
    }
}

/// Keys of md5.
impl FromIterator<DeviceKey> for DeviceKeys {
    fn from_iter<I: IntoIterator<Item = DeviceKey>>(keys: I) -> Self {
        Self {
            md5: keys.into_iter().collect(),
            sha1: Keys::new(),
        }
    }
}

#[inline]
fn add(keys: &mut Keys, key: DeviceKey) -> Result<bool, TooManyIds> {
    if keys.contains(&key) {
        return Ok(false);
    }
    keys.try_push(key).map(|()| true).map_err(|_| TooManyIds)
}

/// Reads ids into keys, and counts the results.
#[derive(Debug)]
pub struct IdReader {
    keys: KeyMaker,
    /// By index of the field. A field of raw ids has the index of its kind.
    counters: [IdCounters; IdField::ALL.len()],
}

impl IdReader {
    /// A reader with the operator's own blank ids.
    pub fn new(keys: KeyMaker, telemetry: &Telemetry) -> Self {
        Self {
            keys,
            counters: IdField::ALL.map(|field| telemetry.ids(field.as_str())),
        }
    }

    /// The key of an id in this field: an md5, or a SHA-1 in a field of SHA-1.
    ///
    /// # Errors
    ///
    /// Why the id has no key.
    #[inline]
    pub fn key(&self, field: IdField, id: &[u8]) -> Result<DeviceKey, Unusable> {
        let key = self.keys.key(field.kind(), id);
        self.counters[field.index()].count(&key);
        key
    }

    /// The key of a single id of a given kind, in audiences of a digest.
    ///
    /// # Errors
    ///
    /// Why the id has no key.
    #[inline]
    pub fn key_of_kind(
        &self,
        digest: KeyDigest,
        kind: IdKind,
        id: &[u8],
    ) -> Result<DeviceKey, Unusable> {
        let key = self.keys.key_in(digest, kind, id);
        self.counters[kind as usize].count(&key);
        key
    }

    /// Appends the keys of many ids of a given kind, and calls `each` after every id with whether
    /// it has one. Takes a third of the time per raw id.
    pub fn keys_of_kind<'i>(
        &self,
        digest: KeyDigest,
        kind: IdKind,
        ids: impl IntoIterator<Item = &'i [u8]>,
        keys: &mut Vec<DeviceKey>,
        mut each: impl FnMut(bool),
    ) {
        let (mut usable, mut blank, mut malformed) = (0, 0, 0);
        self.keys.keys_of_many(digest, kind, ids, keys, |result| {
            match result {
                Ok(()) => usable += 1,
                Err(Unusable::Blank) => blank += 1,
                Err(Unusable::Malformed) => malformed += 1,
            }
            each(result.is_ok());
        });
        self.counters[kind as usize].add(usable, blank, malformed);
    }

    /// Counts keys given as their 16 bytes, and calls `blank` with the index of each key of a blank
    /// id.
    pub fn count_keys(&self, digest: KeyDigest, keys: &[DeviceKey], mut blank: impl FnMut(usize)) {
        let mut blanks = 0;
        for (index, key) in keys.iter().enumerate() {
            if self.keys.usable(*key).is_err() {
                blanks += 1;
                blank(index);
            }
        }
        self.counters[digest.kind() as usize].add(keys.len() as u64 - blanks, blanks, 0);
    }

    /// Counts an id that the platform marks as unreliable.
    #[inline]
    pub fn doubtful(&self, field: IdField) {
        self.counters[field.index()].count_doubtful();
    }

    /// The key of an id, without counting it.
    ///
    /// # Errors
    ///
    /// Why the id has no key.
    pub fn key_uncounted(&self, field: IdField, id: &[u8]) -> Result<DeviceKey, Unusable> {
        self.keys.key(field.kind(), id)
    }
}
