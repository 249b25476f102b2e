//! Keys of the ids that requests carry, and the counters of what became of them.

use arrayvec::ArrayVec;

use crate::telemetry::{IdCounters, Telemetry};
use rtad_core::device::{DeviceKey, IdField, IdKind, KeyMaker, Unusable};

/// Ids that one request's device may have. Each strategy looks each of them up, and a worker
/// answers nobody else meanwhile.
pub const MAX_IDS: usize = 64;

/// The keys of a device's usable ids, each once.
pub type Keys = ArrayVec<DeviceKey, MAX_IDS>;

/// Reads the ids of requests into keys, and counts what becomes of them.
#[derive(Debug)]
pub struct IdReader {
    keys: KeyMaker,
    counters: [IdCounters; IdField::ALL.len()],
}

impl IdReader {
    /// A reader with the operator's own blank ids.
    pub fn new(keys: KeyMaker, telemetry: &Telemetry) -> Self {
        Self { keys, counters: IdField::ALL.map(|field| telemetry.ids(field.as_str())) }
    }

    /// The key of an id in the field at `field` of [`IdField::ALL`]; `None` if it is blank or
    /// malformed.
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

    /// What counting would be: the key of an id, or why there is none, without a trace in the
    /// metrics.
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
