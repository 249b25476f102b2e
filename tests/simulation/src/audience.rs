//! The audience of the world: its keys, and what is checked at each change of a bucket.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use rtad_core::device::DeviceKey;
use rtad_core::snapshot::{AudienceName, Current, Manifest};

use crate::model::{History, Intent};
use crate::store::{Objects, Watch, Work};

pub const AUDIENCE: &str = "old_users";

pub fn audience() -> AudienceName {
    AUDIENCE.parse().expect("a name")
}

/// Key `number` of the model. Their shards are spread over all chunks.
pub fn key(number: u8) -> DeviceKey {
    let mut bytes = [number; 16];
    bytes[..2].copy_from_slice(&(u16::from(number) * 5_400).to_be_bytes());
    DeviceKey::from_bytes(bytes)
}

/// State of the audience, as the world has seen it in the bucket.
#[derive(Default)]
pub struct Known {
    pub history: History,
    /// The first violation.
    pub violation: Option<String>,
    /// The records that each intent has created.
    created: Vec<(usize, u64)>,
}

/// The audience in the bucket that is written to.
#[derive(Default)]
pub struct Ledger {
    known: Mutex<Known>,
}

impl Ledger {
    /// Reads what is known.
    pub fn look<T>(&self, look: impl FnOnce(&Known) -> T) -> T {
        look(&self.known.lock())
    }

    /// Notes a violation of an invariant. The first one counts.
    pub fn violate(&self, what: impl FnOnce() -> String) {
        let mut known = self.known.lock();
        if known.violation.is_none() {
            known.violation = Some(what());
        }
    }

    /// Whether an intent has created a record, up to this one.
    pub fn has_created(&self, intent: &Arc<Intent>, through: u64) -> bool {
        let identity = Arc::as_ptr(intent) as usize;
        let known = self.known.lock();
        let mut created = known.created.iter();
        created.any(|(by, record)| *by == identity && *record <= through)
    }

    fn record_written(
        &self,
        bucket: &Objects,
        path: &str,
        bytes: &Bytes,
        by: &str,
        work: Option<Work>,
    ) {
        let content = bytes
            .split(|byte| *byte == b'\n')
            .next()
            .unwrap_or_default();
        let current = match Current::parse(content) {
            Ok(current) => current,
            Err(error) => return self.violate(|| format!("{by} wrote {path}: {error}")),
        };
        if bucket.name != HOME {
            // A mirror has the files of its newest record: see the hint.
            return;
        }
        self.check_needed(bucket, &current, by);
        let Some(work) = work.and_then(|work| work.downcast::<Intent>().ok()) else {
            return self.violate(|| format!("{by} wrote {path} without an intent"));
        };
        let mut known = self.known.lock();
        known
            .created
            .push((Arc::as_ptr(&work) as usize, current.sequence));
        if let Err(wrong) = known.history.add(&current, &work) {
            known
                .violation
                .get_or_insert(format!("{by} wrote {path}: {wrong}"));
        }
    }

    /// All that a new record names is there.
    fn check_needed(&self, bucket: &Objects, current: &Current, by: &str) {
        let missing = needed(bucket, current)
            .into_iter()
            .find(|path| !bucket.has(path));
        if let Some(path) = missing {
            let (name, record) = (bucket.name, current.sequence);
            self.violate(|| format!("{by} created record {record} of {name} without {path}"));
        }
    }
}

/// The bucket that processes write to; others are mirrors.
pub const HOME: &str = "home";

/// The newest record of a bucket.
pub fn newest(bucket: &Objects) -> Option<Current> {
    let folder = format!("{AUDIENCE}/records/");
    let newest = bucket
        .paths()
        .filter(|path| path.starts_with(&folder))
        .last()?;
    let bytes = bucket.get(newest)?;
    Current::parse(bytes.split(|byte| *byte == b'\n').next()?).ok()
}

/// The files that a record names, directly or by its manifests.
pub fn needed(bucket: &Objects, current: &Current) -> BTreeSet<String> {
    let audience = audience();
    let mut needed = BTreeSet::new();
    if current.state == rtad_core::snapshot::State::Deleted {
        return needed;
    }
    for entry in current.delta_entries() {
        needed.insert(rtad_store::layout::delta_path(&audience, entry).to_string());
    }
    for entry in current.generations() {
        let path = rtad_store::layout::manifest_path(&audience, &entry).to_string();
        let manifest = bucket
            .get(&path)
            .and_then(|bytes| Manifest::parse(bytes, &audience, entry.generation).ok());
        if let Some(manifest) = manifest {
            for chunk in manifest.chunks() {
                needed.insert(rtad_store::layout::chunk_path(&audience, chunk).to_string());
            }
        }
        needed.insert(path);
    }
    needed
}

impl Watch for Ledger {
    fn written(&self, bucket: &Objects, path: &str, bytes: &Bytes, by: &str, work: Option<Work>) {
        if path.starts_with(&format!("{AUDIENCE}/records/0")) {
            self.record_written(bucket, path, bytes, by, work);
        }
        if path.ends_with("/LATEST")
            && bucket.name != HOME
            && let Some(newest) = newest(bucket)
        {
            self.check_needed(bucket, &newest, by);
        }
    }

    fn removed(&self, bucket: &Objects, path: &str, by: &str) {
        let Some(newest) = newest(bucket) else { return };
        if needed(bucket, &newest).contains(path) {
            let (name, record) = (bucket.name, newest.sequence);
            self.violate(|| format!("{by} removed {path}, which record {record} of {name} needs"));
        }
    }
}
