//! Chunks with keys inserted after they were built.

use super::*;
use crate::filter::{FilterKind, FilterSpec};

fn sorted(seed: &str, count: usize, shards: std::ops::Range<u16>) -> Vec<DeviceKey> {
    let span = usize::from(shards.end - shards.start);
    let mut keys: Vec<DeviceKey> = (0..count)
        .map(|index| {
            let mut bytes =
                *DeviceKey::of_canonical(format!("{seed}-{index}").as_bytes()).as_bytes();
            let shard = shards.start + (index * 7 % span) as u16;
            bytes[..2].copy_from_slice(&shard.to_be_bytes());
            DeviceKey::from_bytes(bytes)
        })
        .collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

fn read(spec: &FilterSpec, built: &BuiltChunk) -> Snapshot {
    let mut manifest = ManifestBuilder::new(*spec, 0.0001);
    manifest.add(built);
    let manifest = manifest.finish("a".parse().unwrap(), 1, 1, BuildReport::default());
    let mut decoder = ChunkDecoder::new(spec, &built.entry);
    decoder.feed(&built.bytes).unwrap();
    Snapshot::assemble(manifest, vec![Arc::new(decoder.finish().unwrap())])
}

#[test]
fn grown_chunk_is_valid_and_has_all_keys() {
    let spec = FilterSpec::for_fpr(FilterKind::Block512, 0.0001).unwrap();
    let old = sorted("old", 3000, 100..150);
    let chunk = BuiltChunk::build(&spec, &old);
    for new in [
        sorted("new", 200, 100..150),
        sorted("before", 50, 20..99),
        sorted("after", 50, 160..300),
        sorted("around", 500, 10..400),
        vec![old[5]],
        Vec::new(),
    ] {
        let (grown, inserted) = BuiltChunk::grown(&spec, Some((&chunk.entry, &chunk.bytes)), &new);
        let snapshot = read(&spec, &grown);
        assert!(old.iter().chain(&new).all(|key| snapshot.contains(key)));
        let had_none = |key: &&DeviceKey| !(100..150).contains(&key.shard());
        let known = new
            .iter()
            .filter(|key| old.contains(key) || had_none(key))
            .count();
        assert!(
            inserted as usize <= new.len() - known && inserted as usize + 3 >= new.len() - known
        );
        // The stated fill is that of the filters.
        let expected: f64 = (0..=u16::MAX)
            .map(|shard| spec.expected_fpr(shard, snapshot.filter(shard)))
            .sum();
        assert!((snapshot.manifest().expected_fpr() * 65_536.0 - expected).abs() < 1e-9);
        if new.len() < 2 {
            assert_eq!(
                grown.bytes, chunk.bytes,
                "keys that are present change nothing"
            );
        }
    }
}

#[test]
fn chunk_grown_from_nothing_equals_a_built_chunk() {
    let spec = FilterSpec::for_fpr(FilterKind::Block512, 0.0001).unwrap();
    let keys = sorted("new", 500, 10..400);
    let (grown, inserted) = BuiltChunk::grown(&spec, None, &keys);
    let built = BuiltChunk::build(&spec, &keys);
    assert_eq!(
        (grown.entry, grown.bytes, inserted),
        (built.entry, built.bytes, 0)
    );
}
