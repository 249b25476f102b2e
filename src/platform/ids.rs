//! Keys of the ids in requests, and counters of usable, blank and malformed ids.

use arrayvec::ArrayVec;

use crate::strategy::Attribute;
use crate::telemetry::{IdCounters, Telemetry};
use rtad_core::device::{DeviceKey, IdField, IdKind, KeyMaker, Unusable};

/// Usable ids of one request that are looked up, each once. Each strategy looks up each of them on
/// the worker's thread.
pub const MAX_IDS: usize = 64;

/// Ids of one request that are read, usable or not.
pub const MAX_READ_IDS: usize = 1024;

/// The platform of rtad's own routes, in metrics and in the log.
pub const API: &str = "api";

/// The keys of a device's usable ids, each once.
pub type Keys = ArrayVec<DeviceKey, MAX_IDS>;

/// Counters of the ids of a platform, or of rtad's own routes.
#[derive(Debug)]
pub struct IdCounts {
    /// By index of the field. A field of raw ids has the index of its kind.
    fields: [IdCounters; IdField::ALL.len()],
    /// Operating systems that are not known, beside the ids.
    os: IdCounters,
}

impl IdCounts {
    /// The counters of a platform.
    pub fn new(telemetry: &Telemetry, platform: &str) -> Self {
        Self {
            fields: IdField::ALL.map(|field| telemetry.ids(platform, field.as_str())),
            os: telemetry.ids(platform, Attribute::Os.as_str()),
        }
    }

    /// Counts an id of this field.
    #[inline]
    fn count<T>(&self, field: IdField, id: &Result<T, Unusable>) {
        self.fields[field.index()].count(id);
    }

    /// The key of an id in this field, counted here and not by the reader.
    ///
    /// # Errors
    ///
    /// Why the id has no key.
    #[inline]
    pub fn counted(
        &self,
        reader: &IdReader,
        field: IdField,
        id: &[u8],
    ) -> Result<DeviceKey, Unusable> {
        let key = reader.key_uncounted(field, id);
        self.count(field, &key);
        key
    }

    /// Counts an id that the platform marks as unreliable.
    #[inline]
    pub fn count_doubtful(&self, field: IdField) {
        self.fields[field.index()].count_doubtful();
    }

    /// Counts an operating system that is not known.
    pub fn count_unknown_os(&self) {
        let [usable, blank, malformed] = [0, 0, 1];
        self.os.add(usable, blank, malformed);
    }
}

/// Reads ids into keys, and counts those of rtad's own routes.
#[derive(Debug)]
pub struct IdReader {
    keys: KeyMaker,
    counts: IdCounts,
}

impl IdReader {
    /// A reader with the operator's own blank ids.
    pub fn new(keys: KeyMaker, telemetry: &Telemetry) -> Self {
        Self {
            keys,
            counts: IdCounts::new(telemetry, API),
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
        self.counts.count(field, &key);
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
        self.counts.fields[kind as usize].count(&key);
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
        let mut usable = 0;
        let mut blank = 0;
        let mut malformed = 0;

        self.keys.keys_of_many(kind, ids, keys, |result| {
            match result {
                Ok(()) => usable += 1,
                Err(Unusable::Blank) => blank += 1,
                Err(Unusable::Malformed) => malformed += 1,
            }
            each(result.is_ok());
        });
        self.counts.fields[kind as usize].add(usable, blank, malformed);
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
        self.counts.fields[IdKind::Md5 as usize].add(keys.len() as u64 - blanks, blanks, 0);
    }

    /// Counts an operating system that is not known.
    pub fn unknown_os(&self) {
        self.counts.count_unknown_os();
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
