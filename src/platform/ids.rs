//! Keys of the ids in requests, and counters of usable, blank and malformed ids.

use arrayvec::ArrayVec;

use crate::telemetry::{IdCounters, Telemetry};
use rtad_core::device::{DeviceKey, IdField, IdKind, KeyMaker, Unusable};

/// Usable ids of one request that are looked up, each once. Each strategy looks up each of them on
/// the worker's thread.
pub const MAX_IDS: usize = 64;

/// Ids of one request that are read, usable or not.
pub const MAX_READ_IDS: usize = 1024;

/// Strategies or ads that one request may name. Each is looked up, and has a part of the answer.
pub(super) const MAX_ASKED: usize = 1024;

/// The keys of a device's usable ids, each once.
pub type Keys = ArrayVec<DeviceKey, MAX_IDS>;

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

    /// The key of an id in this field.
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

    /// The key of a single id of a given kind.
    ///
    /// # Errors
    ///
    /// Why the id has no key.
    #[inline]
    pub fn key_of_kind(&self, kind: IdKind, id: &[u8]) -> Result<DeviceKey, Unusable> {
        let key = self.keys.key(kind, id);
        self.counters[kind as usize].count(&key);
        key
    }

    /// Appends the keys of many ids of a given kind, and calls `each` after every id with whether
    /// it has one. Takes a third of the time per raw id.
    pub fn keys_of_kind<'i>(
        &self,
        kind: IdKind,
        ids: impl IntoIterator<Item = &'i [u8]>,
        keys: &mut Vec<DeviceKey>,
        mut each: impl FnMut(bool),
    ) {
        let (mut usable, mut blank, mut malformed) = (0, 0, 0);
        self.keys.keys_of_many(kind, ids, keys, |result| {
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
    pub fn count_keys(&self, keys: &[DeviceKey], mut blank: impl FnMut(usize)) {
        let mut blanks = 0;
        for (index, key) in keys.iter().enumerate() {
            if self.keys.usable(*key).is_err() {
                blanks += 1;
                blank(index);
            }
        }
        self.counters[IdKind::Md5 as usize].add(keys.len() as u64 - blanks, blanks, 0);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of `docs/reference/inputs.md` is also that of requests.
    #[test]
    fn table_of_forms_says_what_requests_have() {
        let reader = IdReader::new(KeyMaker::default(), &Telemetry::default());
        let kinds = IdKind::ALL.map(IdKind::as_str);
        for form in testkit::pages::id_forms(&kinds) {
            let id = form.text.as_bytes();
            for (kind, result) in form.results() {
                let kind: IdKind = kind.parse().unwrap();
                let found = match reader.key(kind.into(), id) {
                    Ok(_) => "usable",
                    Err(unusable) => unusable.as_str(),
                };
                assert_eq!(found, result, "{} as {kind}", form.text);
            }
        }
    }
}
