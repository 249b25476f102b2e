//! Properties of the reader of delta files.

use rtad_core::device::DeviceKey;
use rtad_core::snapshot::{BuiltDelta, Delta, DeltaEntry, Digest, MAX_DELTA_KEYS};

use super::super::memory::bounded;
use super::{DELTA_HEADER_BYTES, accepted, u64_at};

/// Repairs of a delta file, and contradictions to its entry: bits of the first byte.
mod delta_mode {
    /// Magic, version, reserved bytes and the counts follow from the length.
    pub(super) const REPAIR: u8 = 1;
    /// The keys are sorted, and split by their last bit.
    pub(super) const SORT: u8 = 2;
    pub(super) const WRONG_COUNTS: u8 = 4;
    pub(super) const WRONG_DIGEST: u8 = 8;
}

/// The entry of a delta file by its own header, if a record may have it.
pub(super) fn delta_entry_of(file: &[u8]) -> Option<DeltaEntry> {
    let [first, last, added, removed] = [16, 24, 32, 40].map(|offset| u64_at(file, offset));
    let has_values = u64_at(file, 48) > 0;
    let entry = DeltaEntry {
        first,
        last,
        added,
        removed,
        has_values,
        sha256: Digest::of(file),
    };
    let is_valid = (!has_values || added > 0)
        && (1..=last).contains(&first)
        && (1..=MAX_DELTA_KEYS).contains(&entry.keys());
    is_valid.then_some(entry)
}

pub(super) fn repair_delta(file: &mut Vec<u8>, is_sorted: bool) {
    let (header, body) = file.split_at_mut(DELTA_HEADER_BYTES);
    let has_values = header[48] & 1 != 0;
    header[..8].copy_from_slice(b"RTADDLTA");
    header[8..16].copy_from_slice(&1_u64.to_le_bytes());
    header[48..].fill(0);
    let mut keys: Vec<[u8; 16]> = body.as_chunks::<16>().0.to_vec();
    let added = if is_sorted {
        keys.sort_unstable_by_key(|key| (key[15] & 1, *key));
        keys.dedup();
        keys.partition_point(|key| key[15] & 1 == 0) as u64
    } else {
        u64_at(header, 32).min(keys.len() as u64)
    };
    header[32..40].copy_from_slice(&added.to_le_bytes());
    header[40..48].copy_from_slice(&(keys.len() as u64 - added).to_le_bytes());
    // The lowest bit asks for values. Each is made of its key.
    let values = if has_values { added } else { 0 };
    header[48..56].copy_from_slice(&values.to_le_bytes());
    file.truncate(DELTA_HEADER_BYTES);
    file.extend_from_slice(keys.as_flattened());
    file.extend(keys[..values as usize].iter().map(|key| key[14] & 15));
}

/// Checks the reader of deltas: a byte of the mode, and the file.
///
/// # Panics
///
/// If a property does not hold.
pub fn check_delta(input: &[u8]) {
    let Some((mode, file)) = input.split_first() else {
        return;
    };
    let mut file = file.to_vec();
    if file.len() < DELTA_HEADER_BYTES {
        return;
    }
    if mode & delta_mode::REPAIR != 0 {
        repair_delta(&mut file, mode & delta_mode::SORT != 0);
    }
    let Some(mut entry) = delta_entry_of(&file) else {
        return;
    };
    if mode & delta_mode::WRONG_COUNTS != 0 {
        (entry.added, entry.removed) = (entry.removed, entry.added);
    }
    if mode & delta_mode::WRONG_DIGEST != 0 {
        entry.sha256 = Digest::of(b"another file");
    }
    let read = bounded("delta", file.len(), 8, || Delta::parse(&file, &entry));
    let Some(delta) = accepted(read) else { return };
    let (added, removed) = (
        delta.members().collect::<Vec<_>>(),
        delta.removed().to_vec(),
    );
    let written = BuiltDelta::with_values(entry.first, entry.last, &added, removed);
    let written = written.expect("has keys");
    assert!(written.bytes == file && *written.delta.entry() == entry);
    for key in delta.added().iter() {
        assert_eq!(delta.membership(key), Some(true));
    }
    for key in delta.removed().iter() {
        assert_eq!(delta.membership(key), Some(false));
    }
    for probe in file[1..].chunks_exact(16).take(16) {
        let key = DeviceKey::from_bytes(probe.try_into().expect("16 bytes"));
        let expected = match () {
            () if delta.added()[..].contains(&key) => Some(true),
            () if delta.removed()[..].contains(&key) => Some(false),
            () => None,
        };
        assert_eq!(delta.membership(&key), expected);
    }
    let merged = BuiltDelta::merged(entry.last, [&delta, &delta]).expect("has keys");
    assert!(merged.bytes == file, "a delta may be applied again");
    assert!(delta.memory_bytes() <= 2 * file.len() as u64);
}
