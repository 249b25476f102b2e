//! Cached records of one audience, and the state that they give. Everything here blocks.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::errors::CacheErrors;
use super::files::{read_at_most, write};
use rtad_core::snapshot::{
    AudienceName, Current, DeltaEntry, GenerationEntry, MAX_MANIFEST_BYTES, Manifest, StagePlace,
};
use rtad_store::{Live, MAX_RECORD_OBJECT_BYTES, StoreError, Trust, layout};

/// State that a start without the store serves: the newest whole generation, and over it the state,
/// deltas and tombstones of all later records.
#[derive(Debug)]
pub(crate) struct CachedState {
    /// The newest record whose generation and deltas are all in the cache.
    pub(crate) base: Current,
    /// Its manifest.
    pub(crate) manifest: Manifest,
    /// Later records, in order. Their generations are not whole; their deltas may be.
    pub(crate) later: Vec<Current>,
}

impl CachedState {
    /// The newest record.
    pub(crate) fn newest(&self) -> &Current {
        self.later.last().unwrap_or(&self.base)
    }
}

/// The cached records of one audience.
#[derive(Clone)]
pub(super) struct CachedRecords {
    pub(super) root: PathBuf,
    pub(super) folder: PathBuf,
    pub(super) audience: AudienceName,
    pub(super) trust: Trust,
    pub(super) place: StagePlace,
    pub(super) errors: Arc<CacheErrors>,
}

impl CachedRecords {
    /// The records as a pod at another place sees them.
    pub(super) fn seen_from(&self, place: StagePlace) -> Self {
        Self {
            place,
            ..self.clone()
        }
    }

    /// The folder of the audience.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether there is a record.
    pub(super) fn exist(&self) -> bool {
        !self.numbers().is_empty()
    }

    fn file(&self, path: impl AsRef<str>) -> PathBuf {
        self.root.join(path.as_ref())
    }

    fn numbers(&self) -> Vec<u64> {
        let folder = layout::records_path(&layout::audience_path(&self.audience));
        let mut numbers = Vec::new();
        for entry in std::fs::read_dir(self.file(folder)).into_iter().flatten() {
            let name = entry.map(|entry| entry.file_name()).unwrap_or_default();
            numbers.extend(name.to_str().and_then(layout::record_number));
        }
        numbers
    }

    fn path(&self, number: u64) -> PathBuf {
        let folder = layout::audience_path(&self.audience);
        self.file(layout::record_path(&folder, number))
    }

    /// Stores a record, unless there is one with its number that is not older.
    pub(super) fn put(&self, live: &Live) {
        let record = &live.current;
        let held = self.record(record.sequence);
        if held.is_some_and(|held| held.position() >= record.position()) {
            return;
        }
        let path = self.path(record.sequence);
        let written = write(&path, live.object());
        self.errors.report(&path, &written);
    }

    /// All verified records, from the oldest to the newest.
    pub(super) fn read(&self) -> Vec<Current> {
        let mut records = Vec::new();
        for number in self.numbers() {
            records.extend(self.record(number));
        }
        records.sort_by_key(Current::position);
        records
    }

    /// A verified record, as this pod sees it.
    fn record(&self, number: u64) -> Option<Current> {
        let record = self.unplaced(number)?;
        Some(record.seen_from(self.place))
    }

    /// A verified record, as it is in the store. A damaged one is deleted.
    pub(super) fn unplaced(&self, number: u64) -> Option<Current> {
        let path = self.path(number);
        let object = match read_at_most(&path, MAX_RECORD_OBJECT_BYTES) {
            Ok(object) => object,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => {
                self.errors.report(&path, &Err(error));
                return None;
            }
        };
        match Live::parse(&self.trust, &self.audience, number, &object) {
            Ok(live) => return Some(live.current),
            Err(StoreError::Signature { source, .. }) => {
                self.errors.report_untrusted(&path, &source);
            }
            Err(error) => self.errors.delete_damaged(&path, &error),
        }
        None
    }

    /// The state of the cache; `None` without a whole generation.
    pub(super) fn last(&self) -> Option<CachedState> {
        let mut records = self.read();
        let mut later = Vec::new();
        while let Some(record) = records.pop() {
            if let Some(manifest) = self.whole(&record) {
                later.reverse();
                return Some(CachedState {
                    base: record,
                    manifest,
                    later,
                });
            }
            later.push(record);
        }
        None
    }

    /// The manifest of a record's generation, if all files of the record are there, by their sizes.
    pub(super) fn whole(&self, record: &Current) -> Option<Manifest> {
        if !self.has_deltas(record) {
            return None;
        }
        let manifest = self.manifest(&record.live_entry())?;
        for entry in manifest.chunks() {
            let path = self.file(layout::chunk_path(&self.audience, entry));
            if !has(&path, entry.size_bytes) {
                return None;
            }
        }
        Some(manifest)
    }

    /// The manifest of a generation. A damaged one is deleted.
    pub(super) fn manifest(&self, entry: &GenerationEntry) -> Option<Manifest> {
        let path = self.file(layout::manifest_path(&self.audience, entry));
        let bytes = read_at_most(&path, MAX_MANIFEST_BYTES).ok()?;
        let parsed = Manifest::parse_named(&bytes, &self.audience, entry);
        parsed
            .map_err(|error| self.errors.delete_damaged(&path, &error))
            .ok()
    }

    /// Whether all deltas and tombstones of a record are there, by their sizes.
    pub(super) fn has_deltas(&self, record: &Current) -> bool {
        record.delta_entries().all(|entry| self.has_delta(entry))
    }

    fn has_delta(&self, entry: &DeltaEntry) -> bool {
        let path = self.file(layout::delta_path(&self.audience, entry));
        has(&path, entry.size_bytes())
    }
}

fn has(path: &Path, size_bytes: u64) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.len() == size_bytes)
}
