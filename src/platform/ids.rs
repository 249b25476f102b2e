//! The ids that requests carry: how their fields are called, and how they become keys.

use arrayvec::ArrayVec;

use crate::telemetry::{IdCounters, Telemetry};
use rtad_core::device::{DeviceKey, IdKind, KeyMaker, Unusable};

/// Ids that one request's device may have. Each strategy looks each of them up, and a worker answers nobody else meanwhile.
pub const MAX_IDS: usize = 64;

/// The keys of a device's usable ids, each once.
pub type Keys = ArrayVec<DeviceKey, MAX_IDS>;

/// How many fields there are: nine kinds, and all but md5 hashed as well.
const FIELDS: usize = 17;

/// What an id is and whether it came hashed: the name of its field and of its counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdField {
    name: &'static str,
    /// What the field's value is read as: md5 if it is a hash.
    pub kind: IdKind,
}

impl IdField {
    /// Every field a device may have. A kind comes raw under its own name and hashed under that name with `_md5`.
    pub const ALL: [Self; FIELDS] = [
        Self::raw(IdKind::Md5),
        Self::raw(IdKind::Idfa),
        Self::raw(IdKind::Imei),
        Self::raw(IdKind::Oaid),
        Self::raw(IdKind::AndroidId),
        Self::raw(IdKind::Mac),
        Self::raw(IdKind::Caid),
        Self::raw(IdKind::Gaid),
        Self::raw(IdKind::Openid),
        Self::hashed("idfa_md5"),
        Self::hashed("imei_md5"),
        Self::hashed("oaid_md5"),
        Self::hashed("android_id_md5"),
        Self::hashed("mac_md5"),
        Self::hashed("caid_md5"),
        Self::hashed("gaid_md5"),
        Self::hashed("openid_md5"),
    ];

    const fn raw(kind: IdKind) -> Self {
        Self { name: kind.as_str(), kind }
    }

    const fn hashed(name: &'static str) -> Self {
        Self { name, kind: IdKind::Md5 }
    }

    /// The place of the field of that name in [`IdField::ALL`].
    pub fn named(name: &str) -> Option<usize> {
        Self::ALL.iter().position(|field| field.name == name)
    }

    /// The same for a name that is known when compiling.
    ///
    /// # Panics
    ///
    /// If there is no such field, and so when compiling.
    pub const fn at(name: &str) -> usize {
        let mut place = 0;
        while place < Self::ALL.len() {
            if same(Self::ALL[place].name.as_bytes(), name.as_bytes()) {
                return place;
            }
            place += 1;
        }
        panic!("no such field")
    }

    /// The name in a request and the label in metrics.
    pub const fn as_str(&self) -> &'static str {
        self.name
    }
}

/// `==`, which is not to be had when compiling.
const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut place = 0;
    while place < a.len() {
        if a[place] != b[place] {
            return false;
        }
        place += 1;
    }
    true
}

/// Reads the ids of requests into keys, and counts what becomes of them.
#[derive(Debug)]
pub struct IdReader {
    keys: KeyMaker,
    counters: [IdCounters; FIELDS],
}

impl IdReader {
    /// A reader with the operator's own blank ids.
    pub fn new(keys: KeyMaker, telemetry: &Telemetry) -> Self {
        Self { keys, counters: IdField::ALL.map(|field| telemetry.ids(field.name)) }
    }

    /// The key of an id in the field at `field` of [`IdField::ALL`]; `None` if it is blank or malformed.
    #[inline]
    pub fn key(&self, field: usize, id: &[u8]) -> Option<DeviceKey> {
        let key = self.keys.key(IdField::ALL[field].kind, id);
        self.counters[field].count(&key);
        key.ok()
    }

    /// The key of an id that came alone, of a kind named beside it.
    ///
    /// # Errors
    ///
    /// Why there is none.
    #[inline]
    pub fn key_of_kind(&self, kind: IdKind, id: &[u8]) -> Result<DeviceKey, Unusable> {
        let key = self.keys.key(kind, id);
        self.counters[kind as usize].count(&key);
        key
    }

    /// Counts an id that its sender holds for junk.
    #[inline]
    pub fn doubtful(&self, field: usize) {
        self.counters[field].count_doubtful();
    }

    /// What counting would be: the key of an id, or why there is none, without a trace in the metrics.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub fn look(&self, field: usize, id: &[u8]) -> Result<DeviceKey, Unusable> {
        self.keys.key(IdField::ALL[field].kind, id)
    }

    /// A key that came as its 16 bytes; `None` if it is that of a blank id.
    #[inline]
    pub fn key_of_bytes(&self, bytes: [u8; 16]) -> Option<DeviceKey> {
        let key = self.keys.usable(DeviceKey::from_bytes(bytes));
        self.counters[IdKind::Md5 as usize].count(&key);
        key.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASHED_OAID: usize = IdField::at("oaid_md5");

    #[test]
    fn each_kind_has_its_raw_field_in_its_own_place() {
        for kind in IdKind::ALL {
            assert_eq!(IdField::ALL[kind as usize].kind, kind);
            assert_eq!(IdField::named(kind.as_str()), Some(kind as usize));
        }
        assert_eq!(IdField::named("imei_md5").map(|field| IdField::ALL[field].kind), Some(IdKind::Md5));
        assert_eq!(IdField::named("IMEI"), None);
        assert_eq!(Some(HASHED_OAID), IdField::named("oaid_md5"));
    }
}
