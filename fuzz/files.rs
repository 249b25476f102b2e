//! Properties of readers of snapshot files: crafted files with repaired checksums.
//!
//! A reader rejects a file with an error of one line, or returns a value that encodes to the same
//! file. Its memory is bounded by the file's length. The first bytes of an input select repairs of
//! sizes, counts and digests, so that a mutated file passes the checks before the mutated field.

use std::error::Error;

use rtad_core::filter::FilterKind;
use rtad_core::snapshot::{
    AudienceName, ChunkEntry, Current, GenerationEntry, Manifest, StagePlace,
};
use serde_json::{Value, json};

use super::memory::bounded;

mod chunk;
mod delta;
mod snapshot;

pub use chunk::check_chunk;
pub use delta::check_delta;
pub use snapshot::check_snapshot;

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
        assert!(
            !text.is_empty() && !text.contains('\n') && text.len() < 4000,
            "{text:?}"
        );
        cause = error.source();
    }
    None
}

fn audience() -> AudienceName {
    "old".parse().expect("a name")
}

/// Checks the reader of records with this text.
///
/// # Panics
///
/// If a property does not hold.
pub fn check_current(text: &[u8]) {
    let read = bounded("record", text.len(), 12, || Current::parse(text));
    let Some(current) = accepted(read) else {
        return;
    };
    for written in [
        &current,
        &current.next(),
        &current.deleted(),
        &current.next().deleted(),
    ] {
        let again = Current::parse(&written.to_bytes()).expect("a written record is readable");
        assert_eq!(&again, written);
    }
    assert!((1..=current.sequence).contains(&current.published_sequence()));
    assert!(current.highest_generation() >= current.generation);
    assert!(current.next().sequence >= current.sequence);
    assert!(!current.deleted().state.is_live());
    assert!(current.deleted().generations().is_empty());
    let seen = current.clone().seen_from(StagePlace::LAST);
    assert_eq!(seen.live_entry(), current.live_entry());
    if current.staged.is_none() {
        assert_eq!(seen, current);
    }
    let next = current.next_generation();
    assert!(next > current.highest_generation() || next == u64::MAX);
    for entry in current.generations() {
        assert_eq!(current.entry(entry.generation), Some(entry));
        assert!(next > entry.generation || next == u64::MAX);
    }
}

/// Checks the reader of manifests with this text, and with its totals repaired.
///
/// # Panics
///
/// If a property does not hold.
pub fn check_manifest(text: &[u8]) {
    read_manifest(text);
    let Ok(mut manifest) = serde_json::from_slice::<Value>(text) else {
        return;
    };
    if manifest.is_object() {
        repair_totals(&mut manifest);
        read_manifest(&serde_json::to_vec(&manifest).expect("a JSON value"));
    }
}

fn read_manifest(text: &[u8]) -> Option<Manifest> {
    let (audience, generation) = (audience(), 7);
    let read = bounded("manifest", text.len(), 12, || {
        Manifest::parse(text, &audience, generation)
    });
    let manifest = accepted(read)?;
    let written = manifest.to_bytes();
    assert_eq!(
        Manifest::parse(&written, &audience, generation).expect("readable"),
        manifest
    );
    let entry = GenerationEntry::of(generation, &written);
    let named = Manifest::parse_named(&written, &audience, &entry).expect("its digest is right");
    assert_eq!(named, manifest);
    for changed in [written[1..].to_vec(), [&written[1..], b" "].concat()] {
        assert!(accepted(Manifest::parse_named(&changed, &audience, &entry)).is_none());
    }
    let shards = |entry: &ChunkEntry| entry.first_shard..entry.first_shard + entry.shard_count;
    let mut end = 0;
    for entry in manifest.chunks() {
        let least = if manifest.filter().kind() == FilterKind::Ribbon {
            4
        } else {
            8
        };
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
        let numbers = chunks
            .iter()
            .map(|chunk| chunk[field].as_u64().unwrap_or(0));
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
