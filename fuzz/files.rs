//! Properties of readers of snapshot files: crafted files with repaired checksums.
//!
//! A reader rejects a file with an error of one line, or returns a value that encodes to the same
//! file. Its memory is bounded by the file's length. The first bytes of an input select repairs of
//! sizes, counts and digests, so that a mutated file passes the checks before the mutated field.

use std::error::Error;
use std::sync::Arc;

use rtad_core::device::DeviceKey;
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::{
    AudienceName, BuildReport, BuiltChunk, BuiltDelta, Chunk, ChunkDecoder, ChunkEntry, ChunkError,
    ChunkReader, ChunkVerifier, Current, Delta, DeltaEntry, Digest, MAX_DELTA_KEYS, Manifest,
    ManifestBuilder, Overlay, Snapshot, shards_of,
};
use serde_json::{Value, json};

use super::memory::bounded;

const CHUNK_HEADER_BYTES: usize = 64;
const DELTA_HEADER_BYTES: usize = 64;

fn u32_at(file: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(file[offset..offset + 4].try_into().expect("four bytes"))
}

fn u64_at(file: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(file[offset..offset + 8].try_into().expect("eight bytes"))
}

/// The value of an accepted file; errors must have one short line.
fn accepted<T, E: Error>(read: Result<T, E>) -> Option<T> {
    let error = match read {
        Ok(value) => return Some(value),
        Err(error) => error,
    };
    let mut cause: Option<&dyn Error> = Some(&error);
    while let Some(error) = cause {
        let text = error.to_string();
        assert!(!text.is_empty() && !text.contains('\n') && text.len() < 4000, "{text:?}");
        cause = error.source();
    }
    None
}

fn audience() -> AudienceName {
    "old".parse().expect("a name")
}

/// Checks the reader of `CURRENT` with this text.
///
/// # Panics
///
/// If a property does not hold.
pub fn check_current(text: &[u8]) {
    let read = bounded("CURRENT", text.len(), 12, || Current::parse(text));
    let Some(current) = accepted(read) else { return };
    for written in [&current, &current.next(), &current.deleted(), &current.next().deleted()] {
        let again = Current::parse(&written.to_bytes()).expect("a written CURRENT is readable");
        assert_eq!(&again, written);
    }
    assert!((1..=current.sequence).contains(&current.published_sequence()));
    assert!(current.highest_generation() >= current.generation);
    assert!(current.next().sequence >= current.sequence);
    assert_eq!(current.clone().restricted_by(&current), current);
    assert!(!current.clone().restricted_by(&current.deleted()).state.is_live());
}

/// Checks the reader of manifests with this text, and with its totals repaired.
///
/// # Panics
///
/// If a property does not hold.
pub fn check_manifest(text: &[u8]) {
    read_manifest(text);
    let Ok(mut manifest) = serde_json::from_slice::<Value>(text) else { return };
    if manifest.is_object() {
        repair_totals(&mut manifest);
        read_manifest(&serde_json::to_vec(&manifest).expect("a JSON value"));
    }
}

fn read_manifest(text: &[u8]) -> Option<Manifest> {
    let (audience, generation) = (audience(), 7);
    let read = bounded("manifest", text.len(), 12, || Manifest::parse(text, &audience, generation));
    let manifest = accepted(read)?;
    let written = manifest.to_bytes();
    assert_eq!(Manifest::parse(&written, &audience, generation).expect("readable"), manifest);
    let current = Current::new(9, generation, &written, None);
    let named = Manifest::parse_named(&written, &audience, &current).expect("named by CURRENT");
    assert_eq!(named, manifest);
    for changed in [written[1..].to_vec(), [&written[1..], b" "].concat()] {
        assert!(accepted(Manifest::parse_named(&changed, &audience, &current)).is_none());
    }
    let shards = |entry: &ChunkEntry| entry.first_shard..entry.first_shard + entry.shard_count;
    let mut end = 0;
    for entry in manifest.chunks() {
        let least = if manifest.filter().kind() == FilterKind::Ribbon { 4 } else { 8 };
        assert!(shards(entry).start >= end);
        assert!(entry.filter_bytes(manifest.filter().kind()) >= least);
        end = shards(entry).end;
    }
    assert!(end <= 1 << 16);
    Some(manifest)
}

/// Sets the fields that depend on the chunks, and those that name the file.
fn repair_totals(manifest: &mut Value) {
    let none = Vec::new();
    let chunks = manifest["chunks"].as_array().unwrap_or(&none);
    let sum = |field: &str| {
        let numbers = chunks.iter().map(|chunk| chunk[field].as_u64().unwrap_or(0));
        numbers.fold(0_u64, u64::saturating_add)
    };
    let (keys, size_bytes) = (sum("keys"), sum("size_bytes"));
    for (field, value) in [
        ("format", json!("rtad-snapshot")),
        ("version", json!(1)),
        ("audience", json!("old")),
        ("generation", json!(7)),
        ("keys", json!(keys)),
        ("size_bytes", json!(size_bytes)),
    ] {
        manifest[field] = value;
    }
}

/// Repairs of a chunk file, and contradictions to its manifest entry: bits of the first byte.
mod chunk_mode {
    /// Magic, version, reserved bytes, sums and the length follow from the other fields.
    pub(super) const REPAIR: u8 = 1;
    pub(super) const WRONG_KEYS: u8 = 2;
    pub(super) const WRONG_SHARD: u8 = 4;
    pub(super) const WRONG_DIGEST: u8 = 8;
    pub(super) const WRONG_SPEC: u8 = 16;
    pub(super) const WRONG: u8 = WRONG_KEYS | WRONG_SHARD | WRONG_DIGEST | WRONG_SPEC;
}

/// The filter spec in a chunk's header.
fn spec_of(file: &[u8]) -> Option<FilterSpec> {
    let kind = match u32_at(file, 12) {
        2 => FilterKind::Block512,
        3 => FilterKind::Ribbon,
        _ => return None,
    };
    let spec = FilterSpec::new(kind, u32_at(file, 16), u32_at(file, 20)).ok()?;
    match u32_at(file, 48) {
        0 => Some(spec),
        bits => spec.with_value_bits(bits).ok(),
    }
}

/// The manifest entry of a chunk file by its own header, if a manifest may have it.
fn entry_of(file: &[u8]) -> Option<ChunkEntry> {
    let (first_shard, shard_count) = (u32_at(file, 24), u32_at(file, 28));
    let (keys, size_bytes) = (u64_at(file, 32), file.len() as u64);
    let entry = ChunkEntry { digest: Digest::of(file), first_shard, shard_count, keys, size_bytes };
    let kind = spec_of(file)?.kind();
    let least = if kind == FilterKind::Ribbon { 4 } else { 8 };
    let is_valid = first_shard < 1 << 16
        && (1..=(1 << 16) - first_shard).contains(&shard_count)
        && keys > 0
        && entry.filter_bytes(kind) >= least;
    is_valid.then_some(entry)
}

/// Size of a shard of a ribbon chunk by the documented rules.
fn ribbon_bytes(spec: &FilterSpec, shard: u32, keys: u32, diverted: u32, listed: u32) -> u64 {
    let lines = |keys: u32, load: u64, slots: u64| match keys {
        0..32 => 0,
        _ => ((200 * u64::from(keys) + load * slots) / (2 * load * slots)).max(2),
    };
    let (bits, part) = (spec.millibits_per_key() / 1000, spec.millibits_per_key() % 1000);
    let longer = (shard & 0xffff).wrapping_mul(40_503) & 0xffff < part * 65_536 / 1000;
    let slots = [42, 39, 36, 34, 31][(bits - 12) as usize + usize::from(longer)];
    let second = match lines(diverted, 94, 34) {
        0 => 0,
        lines => lines + 1,
    };
    let first = lines(keys, if keys < 3000 { 98 } else { 100 }, slots);
    64 * (first + second) + 4 * u64::from(listed)
}

/// Makes the fields of a chunk file agree with its filter spec, shard count and key counts.
fn repair_chunk(file: &mut Vec<u8>) {
    /// Filters of longer files are not repaired.
    const MAX_BODY_BYTES: u64 = 64 << 10;
    file[..8].copy_from_slice(b"RTADCHNK");
    file[8..12].copy_from_slice(&1_u32.to_le_bytes());
    file[48..64].fill(0);
    let Some(spec) = spec_of(file) else { return };
    let is_ribbon = spec.kind() == FilterKind::Ribbon;
    let shards = (u32_at(file, 28) as usize).min(1 << 16);
    let arrays = if is_ribbon { 3 } else { 1 };
    let counts_end = CHUNK_HEADER_BYTES + 4 * arrays * shards;
    let body = counts_end.next_multiple_of(64);
    let Some(padding) = file.get_mut(counts_end..body) else { return };
    padding.fill(0);
    let (mut keys, mut bytes) = (0, 0);
    for shard in 0..shards {
        let at = |array: usize| CHUNK_HEADER_BYTES + 4 * (array * shards + shard);
        let count = u32_at(file, at(0));
        keys += u64::from(count);
        if !is_ribbon {
            bytes += spec.filter_bytes(count);
            continue;
        }
        let most = [count, if count < 3000 { 0 } else { count }, count];
        let [_, diverted, listed] = [0, 1, 2].map(|array| u32_at(file, at(array)).min(most[array]));
        file[at(1)..at(1) + 4].copy_from_slice(&diverted.to_le_bytes());
        file[at(2)..at(2) + 4].copy_from_slice(&listed.to_le_bytes());
        let shard = u32_at(file, 24).wrapping_add(shard as u32);
        bytes += ribbon_bytes(&spec, shard, count, diverted, listed);
    }
    if bytes <= MAX_BODY_BYTES {
        file.resize(body + bytes as usize, 0x55);
    }
    file[32..40].copy_from_slice(&keys.to_le_bytes());
    let bytes = (file.len() - body) as u64;
    file[40..48].copy_from_slice(&bytes.to_le_bytes());
}

fn feed<R: ChunkReader>(
    mut reader: R,
    file: &[u8],
    piece_bytes: usize,
) -> Result<R::Verified, ChunkError> {
    for piece in file.chunks(piece_bytes) {
        reader.feed(piece)?;
    }
    reader.finish()
}

/// Checks the readers of chunks: a byte of the mode, a byte of the length of pieces, and the file.
///
/// # Panics
///
/// If a property does not hold.
pub fn check_chunk(input: &[u8]) {
    let Some(([mode, pieces], file)) = input.split_first_chunk::<2>() else { return };
    let mut file = file.to_vec();
    if file.len() < CHUNK_HEADER_BYTES {
        return;
    }
    if mode & chunk_mode::REPAIR != 0 {
        repair_chunk(&mut file);
    }
    let (Some(mut spec), Some(mut entry)) = (spec_of(&file), entry_of(&file)) else { return };
    if mode & chunk_mode::WRONG_KEYS != 0 {
        entry.keys = entry.keys.wrapping_add(1).max(1);
    }
    if mode & chunk_mode::WRONG_SHARD != 0 && entry.shard_count < 1 << 15 {
        entry.first_shard ^= 1 << 15;
    }
    if mode & chunk_mode::WRONG_DIGEST != 0 {
        entry.digest = Digest::of(b"another file");
    }
    if mode & chunk_mode::WRONG_SPEC != 0 {
        let millibits = spec.millibits_per_key() ^ 1;
        let values = spec.value_bits();
        spec = FilterSpec::new(spec.kind(), spec.hashes(), millibits).unwrap_or(spec);
        spec = spec.with_value_bits(values).unwrap_or(spec);
    }
    let piece_bytes = usize::from(*pieces) + 1;
    let read = bounded("chunk", file.len(), 4, || {
        feed(ChunkDecoder::new(&spec, &entry), &file, piece_bytes)
    });
    let whole = feed(ChunkVerifier::new(&spec, &entry), &file, usize::MAX);
    assert_eq!(read.is_ok(), whole.is_ok(), "pieces and filters change nothing");
    let Some(chunk) = accepted(read) else { return };
    let is_wrong = mode & chunk_mode::WRONG != 0;
    assert!(!is_wrong || (spec_of(&file), entry_of(&file)) == (Some(spec), Some(entry.clone())));
    check_accepted_chunk(&spec, &entry, &file, &chunk);
}

fn check_accepted_chunk(spec: &FilterSpec, entry: &ChunkEntry, file: &[u8], chunk: &Chunk) {
    assert!(chunk.matches(spec, entry));
    assert_eq!(chunk.filters().len() as u64, entry.filter_bytes(spec.kind()));
    let is_growable = spec.kind().is_growable();
    if is_growable {
        let (written, inserted) = BuiltChunk::grown(spec, Some((entry, file)), &[]);
        assert!(written.entry == *entry && written.bytes == file && inserted == 0);
    }
    let (mut keys, mut bytes) = (0, 0);
    for (shard, read) in chunk.shards().zip(shards_of(spec, entry, file)) {
        let (held, filter) = (chunk.shard(shard), read.filter);
        assert!(held.filter == filter && held.shard == read.shard && held.keys == read.keys);
        assert!(!is_growable || filter.is_empty() == (held.keys == 0));
        assert!((0.0..=1.0).contains(&spec.expected_fpr(shard, filter)));
        keys += u64::from(held.keys);
        bytes += filter.len();
    }
    assert_eq!(bytes, chunk.filters().len());
    assert_eq!((chunk.shards().count(), keys), (entry.shard_count as usize, entry.keys));
    // Keys of its shards, with the bytes of the file as hashes.
    let mut new: Vec<DeviceKey> = file[CHUNK_HEADER_BYTES..]
        .chunks_exact(16)
        .take(8)
        .map(|bytes| {
            let mut key: [u8; 16] = bytes.try_into().expect("16 bytes");
            let offset = u32::from(u16::from_be_bytes([key[0], key[1]])) % entry.shard_count;
            let shard = u16::try_from(entry.first_shard + offset).expect("a shard of the chunk");
            key[..2].copy_from_slice(&shard.to_be_bytes());
            DeviceKey::from_bytes(key)
        })
        .collect();
    new.sort_unstable();
    new.dedup();
    if !is_growable {
        for key in &new {
            let is_member = spec.contains(chunk.filter(key.shard()), key);
            let value = spec.value(chunk.filter(key.shard()), key);
            assert!(value.is_some() == (is_member && spec.value_bits() > 0));
        }
        return;
    }
    let (grown, inserted) = BuiltChunk::grown(spec, Some((entry, file)), &new);
    assert!(inserted <= new.len() as u64);
    let read = feed(ChunkDecoder::new(spec, &grown.entry), &grown.bytes, usize::MAX);
    let read = read.expect("a written chunk is readable");
    for key in &new {
        let held = chunk.filter(key.shard());
        assert!(spec.contains(read.filter(key.shard()), key), "an inserted key is found");
        assert!(held.is_empty() || held.len() == read.filter(key.shard()).len());
        let _ = spec.contains(held, key);
    }
}

/// Repairs of a delta file, and contradictions to its entry: bits of the first byte.
mod delta_mode {
    /// Magic, version, reserved bytes and the counts follow from the length.
    pub(super) const REPAIR: u8 = 1;
    /// The keys are sorted, and split by their last bit.
    pub(super) const SORT: u8 = 2;
    pub(super) const WRONG_COUNTS: u8 = 4;
    pub(super) const WRONG_DIGEST: u8 = 8;
}

/// The entry of a delta file by its own header, if `CURRENT` may have it.
fn delta_entry_of(file: &[u8]) -> Option<DeltaEntry> {
    let [first, last, added, removed] = [16, 24, 32, 40].map(|offset| u64_at(file, offset));
    let has_values = u64_at(file, 48) > 0;
    let entry = DeltaEntry { first, last, added, removed, has_values, sha256: Digest::of(file) };
    let is_valid = (!has_values || added > 0)
        && (1..=last).contains(&first)
        && (1..=MAX_DELTA_KEYS).contains(&entry.keys());
    is_valid.then_some(entry)
}

fn repair_delta(file: &mut Vec<u8>, is_sorted: bool) {
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
    let Some((mode, file)) = input.split_first() else { return };
    let mut file = file.to_vec();
    if file.len() < DELTA_HEADER_BYTES {
        return;
    }
    if mode & delta_mode::REPAIR != 0 {
        repair_delta(&mut file, mode & delta_mode::SORT != 0);
    }
    let Some(mut entry) = delta_entry_of(&file) else { return };
    if mode & delta_mode::WRONG_COUNTS != 0 {
        (entry.added, entry.removed) = (entry.removed, entry.added);
    }
    if mode & delta_mode::WRONG_DIGEST != 0 {
        entry.sha256 = Digest::of(b"another file");
    }
    let read = bounded("delta", file.len(), 8, || Delta::parse(&file, &entry));
    let Some(delta) = accepted(read) else { return };
    let (added, removed) = (delta.members().collect::<Vec<_>>(), delta.removed().to_vec());
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

/// Sections of [`check_snapshot`]'s input before the last one, `CURRENT`.
const SECTIONS: usize = 5;

/// Checks the readers of a whole snapshot. The input is a byte of the mode, then two chunks, a
/// delta, tombstones and the manifest, each after its length in two bytes, then `CURRENT`. Bit 0 of
/// the mode repairs chunks, bit 1 deltas. Digests, sizes and totals are always repaired.
///
/// # Panics
///
/// If a property does not hold.
pub fn check_snapshot(input: &[u8]) {
    let Some((mode, mut rest)) = input.split_first() else { return };
    let mut sections = [&[][..]; SECTIONS];
    for section in &mut sections {
        let Some((length, after)) = rest.split_first_chunk::<2>() else { return };
        let length = usize::from(u16::from_le_bytes(*length)).min(after.len());
        (*section, rest) = after.split_at(length);
    }
    let [chunk, other_chunk, delta, tombstones, manifest] = sections;
    let (Ok(mut manifest), Ok(mut current)) =
        (serde_json::from_slice::<Value>(manifest), serde_json::from_slice::<Value>(rest))
    else {
        return;
    };
    if !manifest.is_object() || !current.is_object() {
        return;
    }
    let mut chunks = [chunk, other_chunk].map(<[u8]>::to_vec);
    let entries = manifest["chunks"].as_array_mut().map(std::mem::take).unwrap_or_default();
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
    let Some(manifest) = read_manifest(&manifest) else { return };
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
        let Some(found) = delta_entry_of(file) else { return };
        *entry = json!(found);
    }
    let [delta, tombstones] = entries;
    current["manifest_size_bytes"] = json!(written.len());
    current["manifest_sha256"] = json!(Digest::of(&written));
    current["generation"] = json!(manifest.generation());
    for (field, value) in [("deltas", json!([delta])), ("tombstones", tombstones.clone())] {
        if value[0].is_null() && value["sha256"].is_null() {
            current.as_object_mut().expect("an object").remove(field);
        } else {
            current[field] = value;
        }
    }
    let current = serde_json::to_vec(&current).expect("a JSON value");
    check_current(&current);
    let Some(current) = accepted(Current::parse(&current)) else { return };
    let named = Manifest::parse_named(&written, &audience(), &current);
    assert_eq!(named.expect("CURRENT names it"), manifest);
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
    for (file, entry) in changes.iter().zip([current.deltas.first(), current.tombstones.as_ref()]) {
        let read = entry.map(|entry| accepted(Delta::parse(file, entry)).map(Arc::new));
        match read {
            Some(None) => return,
            read => layers.push(read.flatten()),
        }
    }
    let (tombstones, delta) = (layers.pop().flatten(), layers.pop().flatten());
    // A manifest that is built of these chunks has the same entries.
    let mut builder = ManifestBuilder::new(*manifest.filter(), manifest.target_fpr());
    if manifest.filter().kind().is_growable() {
        for (entry, file) in manifest.chunks().iter().zip(files) {
            builder.add(&BuiltChunk::grown(manifest.filter(), Some((entry, file)), &[]).0);
        }
        let built = builder.finish(audience(), 7, 1, BuildReport::default());
        assert_eq!(built.chunks(), manifest.chunks());
        assert!(read_manifest(&built.to_bytes()).is_some());
    }

    let snapshot = Snapshot::assemble(manifest, chunks);
    let overlay = Overlay::new(current, delta.clone().into_iter().collect(), tombstones.clone());
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
        assert!(exact.is_none_or(|exact| exact == *member), "deltas are exact");
    }
    assert_eq!(snapshot.contains_any(&keys), members.contains(&true));
}
