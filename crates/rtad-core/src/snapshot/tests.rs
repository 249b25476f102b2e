//! Rejected files and their errors, by a table of mutations per file kind. Checksums around a
//! mutation are repaired: otherwise the digest check would hide all later checks.

mod chunks;
mod currents;
mod manifests;
mod mixed;
mod overlays;
mod properties;

use std::error::Error;

use serde_json::{Value, json};

use super::*;
use crate::filter::{FilterKind, FilterSpec};

const KINDS: [FilterKind; 2] = [FilterKind::Block512, FilterKind::Ribbon];

fn audience() -> AudienceName {
    "old_users".parse().unwrap()
}

fn spec(kind: FilterKind) -> FilterSpec {
    FilterSpec::for_fpr(kind, 0.001).unwrap()
}

/// Sorted, distinct keys in shards 0x0000 to 0x0007 and 0x7000 to 0x7007: two chunks, with empty
/// shards in neither.
fn keys(seed: &str, count: usize) -> Vec<DeviceKey> {
    let key = |index| {
        let mut key = *DeviceKey::of_canonical(format!("{seed}-{index}").as_bytes()).as_bytes();
        key[0] &= 0x70;
        key[0] = if key[0] > 0x30 { 0x70 } else { 0 };
        key[1] &= 7;
        DeviceKey::from_bytes(key)
    };
    let mut keys: Vec<_> = (0..count).map(key).collect();
    keys.sort_unstable();
    keys
}

/// A value for every key.
fn value(key: &DeviceKey) -> u8 {
    key.as_bytes()[3] & 15
}

/// A chunk, with values if its filters hold them.
fn built(spec: &FilterSpec, keys: &[DeviceKey]) -> BuiltChunk {
    match spec.value_bits() {
        0 => BuiltChunk::build(spec, keys),
        _ => BuiltChunk::build_with_values(spec, keys, value),
    }
}

fn facts() -> GenerationFacts {
    GenerationFacts {
        created_unix_seconds: 1_763_722_800,
        ..GenerationFacts::default()
    }
}

fn build(spec: &FilterSpec, generation: u64, keys: &[DeviceKey]) -> (Manifest, Vec<Vec<u8>>) {
    let mut builder = ManifestBuilder::new(*spec, 0.001);
    let mut files = Vec::new();
    for run in chunk_runs(keys, shards_per_chunk(spec, keys.len() as u64)) {
        let chunk = built(spec, run);
        builder.add(&chunk);
        files.push(chunk.bytes);
    }
    let manifest = builder.finish(audience(), facts()).unwrap();
    (manifest.numbered(generation), files)
}

/// Decodes a chunk in pieces of `piece_bytes`.
fn decode(
    manifest: &Manifest,
    entry: &ChunkEntry,
    file: &[u8],
    piece_bytes: usize,
) -> Result<Chunk, ChunkError> {
    let mut decoder = ChunkDecoder::new(manifest.filter(), entry);
    for piece in file.chunks(piece_bytes) {
        decoder.feed(piece)?;
    }
    decoder.finish()
}

/// The files of one generation, to be mutated; manifest and record as JSON values.
#[derive(Clone)]
struct Files {
    current: Value,
    manifest: Value,
    chunks: Vec<Vec<u8>>,
}

impl Files {
    fn new(kind: FilterKind) -> Self {
        let (manifest, chunks) = build(&spec(kind), 7, &keys("device", 400));
        assert_eq!(chunks.len(), 2);
        let bytes = manifest.to_bytes();
        let current = Current::new(9, 7, &bytes, None).to_bytes();
        let json = |bytes: &[u8]| serde_json::from_slice(bytes).unwrap();
        Self {
            current: json(&current),
            manifest: json(&bytes),
            chunks,
        }
    }

    /// Updates digests, sizes and totals after a mutation of the chunks.
    fn repair_manifest(&mut self) {
        let total: usize = self.chunks.iter().map(Vec::len).sum();
        self.manifest["size_bytes"] = json!(total);
        for (index, chunk) in self.chunks.iter().enumerate() {
            self.manifest["chunks"][index]["size_bytes"] = json!(chunk.len());
            self.manifest["chunks"][index]["digest"] = json!(Digest::of(chunk));
        }
    }

    fn manifest_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(&self.manifest).unwrap()
    }

    /// Reads all files as a service does. Repairs the digest in the record first.
    fn read(&self) -> Result<Snapshot, Box<dyn Error>> {
        let manifest = self.manifest_bytes();
        let mut current = self.current.clone();
        current["manifest_size_bytes"] = json!(manifest.len());
        current["manifest_sha256"] = json!(Digest::of(&manifest));
        let current = Current::parse(&serde_json::to_vec(&current).unwrap())?;
        let manifest = Manifest::parse_named(&manifest, &audience(), &current.live_entry())?;
        let mut chunks = Vec::new();
        for (entry, file) in manifest.chunks().iter().zip(&self.chunks) {
            chunks.push(decode(&manifest, entry, file, file.len().max(1))?.into());
        }
        Ok(Snapshot::assemble(manifest, chunks))
    }
}

/// The variant's name, and the message with its cause.
fn describe<E: Error + ?Sized>(error: &E) -> (String, String) {
    let variant = format!("{error:?}")
        .chars()
        .take_while(char::is_ascii_alphanumeric)
        .collect();
    let cause = error
        .source()
        .map(|cause| format!(": {cause}"))
        .unwrap_or_default();
    (variant, format!("{error}{cause}"))
}

/// Asserts that a read fails with this variant and a message that starts with `message`.
#[track_caller]
fn assert_rejected<T, E: Error + ?Sized>(
    read: Result<T, Box<E>>,
    case: &str,
    variant: &str,
    message: &str,
) {
    let Err(error) = read else {
        panic!("{case}: accepted")
    };
    let found = describe(error.as_ref());
    assert!(
        found.0 == variant && found.1.starts_with(message),
        "{case}: expected {variant}: {message}, got {found:?}"
    );
}

#[test]
fn unmodified_files_are_read() {
    for kind in KINDS {
        let snapshot = Files::new(kind).read().unwrap();
        assert!(keys("device", 400).iter().all(|key| snapshot.contains(key)));
        assert_eq!(snapshot.manifest().keys(), 400);
        assert!(snapshot.filter(0x1234).is_empty());
        assert_eq!(
            snapshot.filter_bytes(),
            snapshot
                .chunks()
                .iter()
                .map(|c| c.filters().len() as u64)
                .sum::<u64>()
        );
    }
}

#[test]
fn empty_audience_is_a_valid_snapshot() {
    let (manifest, _) = build(&spec(FilterKind::Block512), 1, &[]);
    let manifest = Manifest::parse(&manifest.to_bytes(), &audience(), 1).unwrap();
    let snapshot = Snapshot::assemble(manifest, Vec::new());
    assert!(!keys("device", 100).iter().any(|key| snapshot.contains(key)));
}

#[test]
fn batch_lookup_equals_single_lookups() {
    let snapshot = Files::new(FilterKind::Block512).read().unwrap();
    let queried = [keys("device", 50), keys("non-member", 51)].concat();
    let mut members = vec![false; queried.len() + 3];
    snapshot.contains_many(&queried, &mut members);
    for (key, member) in queried.iter().zip(&members) {
        assert_eq!(snapshot.contains(key), *member);
    }
}

#[test]
#[should_panic(expected = "chunks are in the manifest's order")]
fn assemble_rejects_chunks_of_another_manifest() {
    let (old, old_files) = build(&spec(FilterKind::Block512), 1, &keys("old", 100));
    let (new, _) = build(&spec(FilterKind::Block512), 2, &keys("new", 100));
    let chunks = old.chunks().iter().zip(&old_files);
    let chunks = chunks
        .map(|(entry, file)| decode(&old, entry, file, file.len()).unwrap().into())
        .collect();
    let _ = Snapshot::assemble(new, chunks);
}
