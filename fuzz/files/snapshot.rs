//! Properties of a whole snapshot, and of the ways to look up its keys.

use std::sync::Arc;

use rtad_core::device::DeviceKey;
use rtad_core::snapshot::{ChunkDecoder, Current, Delta, Digest, Manifest, Overlay, Snapshot};
use serde_json::{Value, json};

use super::super::memory::bounded;
use super::chunk::{check_accepted_chunk, feed, repair_chunk};
use super::delta::{delta_entry_of, repair_delta};
use super::{
    CHUNK_HEADER_BYTES, DELTA_HEADER_BYTES, accepted, audience, check_current, read_manifest,
    repair_totals, u64_at,
};

/// Sections of [`check_snapshot`]'s input before the last one, the record.
const SECTIONS: usize = 5;

/// Checks the readers of a whole snapshot. The input is a byte of the mode, then two chunks, a
/// delta, tombstones and the manifest, each after its length in two bytes, then the record. Bit 0
/// of the mode repairs chunks, bit 1 deltas. Digests, sizes and totals are always repaired.
///
/// # Panics
///
/// If a property does not hold.
pub fn check_snapshot(input: &[u8]) {
    let Some((mode, mut rest)) = input.split_first() else {
        return;
    };
    let mut sections = [&[][..]; SECTIONS];
    for section in &mut sections {
        let Some((length, after)) = rest.split_first_chunk::<2>() else {
            return;
        };
        let length = usize::from(u16::from_le_bytes(*length)).min(after.len());
        (*section, rest) = after.split_at(length);
    }
    let [chunk, other_chunk, delta, tombstones, manifest] = sections;
    let (Ok(mut manifest), Ok(mut current)) = (
        serde_json::from_slice::<Value>(manifest),
        serde_json::from_slice::<Value>(rest),
    ) else {
        return;
    };
    if !manifest.is_object() || !current.is_object() {
        return;
    }
    let mut chunks = [chunk, other_chunk].map(<[u8]>::to_vec);
    let entries = manifest["chunks"]
        .as_array_mut()
        .map(std::mem::take)
        .unwrap_or_default();
    chunks[entries.len().min(2)..].fill(Vec::new());
    let mut repaired = Vec::with_capacity(entries.len());
    for (file, mut entry) in chunks.iter_mut().zip(entries) {
        if !entry.is_object() {
            return;
        }
        if mode & 1 != 0 && file.len() >= CHUNK_HEADER_BYTES {
            repair_chunk(file);
            entry["keys"] = json!(u64_at(file, 32));
        }
        entry["digest"] = json!(Digest::of(file));
        entry["size_bytes"] = json!(file.len());
        repaired.push(entry);
    }
    manifest["chunks"] = json!(repaired);
    repair_totals(&mut manifest);
    let manifest = serde_json::to_vec(&manifest).expect("a JSON value");
    let Some(manifest) = read_manifest(&manifest) else {
        return;
    };
    let written = manifest.to_bytes();

    let mut changes = [delta, tombstones].map(<[u8]>::to_vec);
    let mut entries = [Value::Null, Value::Null];
    for (file, entry) in changes.iter_mut().zip(&mut entries) {
        if file.len() < DELTA_HEADER_BYTES {
            continue;
        }
        if mode & 2 != 0 {
            repair_delta(file, true);
        }
        let Some(found) = delta_entry_of(file) else {
            return;
        };
        *entry = json!(found);
    }
    let [delta, tombstones] = entries;
    current["manifest_size_bytes"] = json!(written.len());
    current["manifest_sha256"] = json!(Digest::of(&written));
    current["generation"] = json!(manifest.generation());
    for (field, value) in [
        ("deltas", json!([delta])),
        ("tombstones", tombstones.clone()),
    ] {
        if value[0].is_null() && value["sha256"].is_null() {
            current.as_object_mut().expect("an object").remove(field);
        } else {
            current[field] = value;
        }
    }
    let current = serde_json::to_vec(&current).expect("a JSON value");
    check_current(&current);
    let Some(current) = accepted(Current::parse(&current)) else {
        return;
    };
    let named = Manifest::parse_named(&written, &audience(), &current.live_entry());
    assert_eq!(named.expect("the record names it"), manifest);
    read_snapshot(manifest, &chunks, &current, &changes);
}

/// Reads the other files and compares the ways to look up keys.
fn read_snapshot(manifest: Manifest, files: &[Vec<u8>], current: &Current, changes: &[Vec<u8>; 2]) {
    let mut chunks = Vec::new();
    for (entry, file) in manifest.chunks().iter().zip(files) {
        let read = bounded("chunk", file.len(), 4, || {
            feed(ChunkDecoder::new(manifest.filter(), entry), file, 100)
        });
        let Some(chunk) = accepted(read) else { return };
        check_accepted_chunk(manifest.filter(), entry, file, &chunk);
        chunks.push(Arc::new(chunk));
    }
    let mut layers = Vec::new();
    for (file, entry) in changes
        .iter()
        .zip([current.deltas.first(), current.tombstones.as_ref()])
    {
        let read = entry.map(|entry| accepted(Delta::parse(file, entry)).map(Arc::new));
        match read {
            Some(None) => return,
            read => layers.push(read.flatten()),
        }
    }
    let (tombstones, delta) = (layers.pop().flatten(), layers.pop().flatten());
    let snapshot = Snapshot::assemble(manifest, chunks);
    let overlay = Overlay::new(current, tombstones.iter().chain(&delta).cloned().collect());
    let snapshot = snapshot.with_overlay(overlay);
    let changed = [&delta, &tombstones].into_iter().flatten();
    let mut keys: Vec<DeviceKey> = changed
        .flat_map(|delta| delta.added().iter().chain(delta.removed().iter()).copied())
        .collect();
    keys.truncate(100);
    for file in files {
        let probes = file.chunks_exact(16).take(16);
        keys.extend(probes.map(|key| DeviceKey::from_bytes(key.try_into().expect("16 bytes"))));
    }
    let mut members = vec![false; keys.len()];
    snapshot.contains_many(&keys, &mut members);
    for (key, member) in keys.iter().zip(&members) {
        assert_eq!(snapshot.contains(key), *member);
        let named = |delta: &Option<Arc<Delta>>| delta.as_ref().and_then(|d| d.membership(key));
        let exact = named(&tombstones).or_else(|| named(&delta));
        assert!(
            exact.is_none_or(|exact| exact == *member),
            "deltas are exact"
        );
    }
    assert_eq!(snapshot.contains_any(&keys), members.contains(&true));
}
