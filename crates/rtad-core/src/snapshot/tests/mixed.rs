//! Replacement of one generation by another, chunk by chunk: answers, and release of chunks.

use crate::device::SHARDS;
use std::sync::{Arc, Weak};

use proptest::prelude::*;

use super::properties::{any_keys, any_spec, sorted};
use super::*;

/// A generation in memory.
#[derive(Debug, Clone)]
struct Generation {
    manifest: Manifest,
    chunks: Vec<Arc<Chunk>>,
}

impl Generation {
    fn new(generation: u64, spec: &FilterSpec, keys: &[DeviceKey], shards_per_chunk: u32) -> Self {
        let mut builder = ManifestBuilder::new(*spec, 0.001);
        let mut files = Vec::new();
        for run in chunk_runs(keys, shards_per_chunk) {
            let chunk = built(spec, run);
            builder.add(&chunk);
            files.push(chunk.bytes);
        }
        let manifest = builder.finish(audience(), facts()).unwrap();
        let manifest = manifest.numbered(generation);
        let entries = manifest.chunks().iter().zip(&files);
        let chunks = entries
            .map(|(entry, file)| Arc::new(decode(&manifest, entry, file, file.len()).unwrap()));
        Self {
            chunks: chunks.collect(),
            manifest,
        }
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot::assemble(self.manifest.clone(), self.chunks.clone())
    }
}

fn any_generation(number: u64) -> impl Strategy<Value = (Generation, Vec<DeviceKey>)> {
    let cuts = prop_oneof![
        Just(1),
        2..200_u32,
        Just(16_384),
        Just(40_000),
        Just(65_536)
    ];
    (any_spec(), any_keys(0..200), cuts).prop_map(move |(spec, keys, cut)| {
        let keys = sorted(keys);
        (Generation::new(number, &spec, &keys, cut), keys)
    })
}

/// End of the replaced shards after each chunk of the new generation.
fn ends(new: &Generation) -> Vec<usize> {
    let end = |entry: &ChunkEntry| (entry.first_shard + entry.shard_count) as usize;
    new.manifest.chunks().iter().map(end).collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn each_key_is_answered_by_one_of_the_generations_at_every_step(
        (old, old_keys) in any_generation(1),
        (new, new_keys) in any_generation(2),
        others in any_keys(0..100),
        // A third generation starts before the second is complete.
        (third, third_keys) in any_generation(3),
        turn in any::<proptest::sample::Index>(),
    ) {
        let [before, after] = [&old, &new].map(Generation::snapshot);
        let queried = [&old_keys[..], &new_keys, &others, &third_keys].concat();
        for (snapshot, keys) in [(&before, &old_keys), (&after, &new_keys)] {
            for shard in queried.iter().map(DeviceKey::shard) {
                let count = keys.iter().filter(|key| key.shard() == shard).count();
                prop_assert_eq!(snapshot.shard_keys(shard) as usize, count);
            }
        }
        let mut mixed = old.snapshot();
        let mut begin = 0;
        let ends = ends(&new);
        let turn = turn.index(ends.len() + 1);
        for (chunk, end) in new.chunks.iter().zip(ends).take(turn) {
            mixed = mixed.with_chunks(begin..end, std::slice::from_ref(chunk));
            begin = end;
            prop_assert!(mixed.is_mixed());
            prop_assert_eq!(mixed.manifest(), &old.manifest);
            for key in &queried {
                let expected = if usize::from(key.shard()) < end { &after } else { &before };
                prop_assert_eq!(mixed.contains(key), expected.contains(key));
                let found = mixed.value(&[*key]);
                prop_assert_eq!(found, expected.value(&[*key]));
                prop_assert_eq!(mixed.shard_keys(key.shard()), expected.shard_keys(key.shard()));
            }
            // A member of both generations is a member at every step.
            for key in old_keys.iter().filter(|key| new_keys.binary_search(key).is_ok()) {
                prop_assert!(mixed.contains(key));
            }
            let mut members = vec![false; queried.len()];
            mixed.contains_many(&queried, &mut members);
            for (key, member) in queried.iter().zip(&members) {
                prop_assert_eq!(mixed.contains(key), *member);
            }
        }
        let target = if turn == new.chunks.len() { &new } else { &third };
        let from = if turn == new.chunks.len() { begin } else { 0 };
        let left = target.chunks.iter().filter(|chunk| {
            chunk.shards().next().is_some_and(|shard| usize::from(shard) >= from)
        });
        // The rest in one step.
        let left: Vec<_> = left.cloned().collect();
        mixed = mixed.with_chunks(from..SHARDS, &left);
        prop_assert!(mixed.chunks().iter().map(|chunk| chunk.digest())
            .eq(target.chunks.iter().map(|chunk| chunk.digest())));
        let whole = target.snapshot();
        for shard in 0..=u16::MAX {
            prop_assert!(mixed.filter(shard) == whole.filter(shard));
        }
    }

    #[test]
    fn chunk_is_released_with_its_last_shard(
        (old, old_keys) in any_generation(1),
        (new, _) in any_generation(2),
    ) {
        let mut mixed = old.snapshot();
        let watched: Vec<(Vec<u16>, Weak<Chunk>)> = old.chunks.iter().map(|chunk| {
            let filled = chunk.shards().filter(|shard| !chunk.filter(*shard).is_empty());
            (filled.collect(), Arc::downgrade(chunk))
        }).collect();
        prop_assert_eq!(old_keys.is_empty(), watched.is_empty());
        drop(old);
        let mut begin = 0;
        for (chunk, end) in new.chunks.iter().zip(ends(&new)) {
            mixed = mixed.with_chunks(begin..end, std::slice::from_ref(chunk));
            begin = end;
            for (shards, chunk) in &watched {
                let is_used = shards.iter().any(|shard| usize::from(*shard) >= end);
                prop_assert_eq!(chunk.strong_count() > 0, is_used);
            }
        }
    }
}

#[test]
#[should_panic(expected = "chunks replace only the given shards")]
fn chunk_with_shards_outside_the_range_panics() {
    let keys = keys("device", 100);
    let generation = Generation::new(1, &spec(FilterKind::Block512), &keys, 4096);
    let _ = generation
        .snapshot()
        .with_chunks(0..3, &generation.chunks[..1]);
}

#[test]
fn verifier_and_decoder_report_the_same_errors() {
    let keys = keys("device", 100);
    let (manifest, files) = build(&spec(FilterKind::Block512), 1, &keys);
    let (entry, file) = (&manifest.chunks()[0], &files[0]);
    let verify = |file: &[u8], piece_bytes: usize| {
        let mut verifier = ChunkVerifier::new(manifest.filter(), entry);
        file.chunks(piece_bytes)
            .try_for_each(|piece| verifier.feed(piece))?;
        verifier.finish()
    };
    for piece_bytes in [1, 63, 4096, file.len()] {
        verify(file, piece_bytes).unwrap();
        for (at, flip) in (0..file.len()).step_by(7).zip((1..=255_u8).cycle()) {
            let mut mutated = file.clone();
            mutated[at] ^= flip;
            let decoded = decode(&manifest, entry, &mutated, piece_bytes).unwrap_err();
            assert_eq!(
                describe(&verify(&mutated, piece_bytes).unwrap_err()),
                describe(&decoded)
            );
        }
        let (short, long) = (&file[..file.len() - 1], [&file[..], b"x"].concat());
        assert_eq!(
            verify(short, piece_bytes).unwrap_err().fault(),
            Fault::Truncated
        );
        assert_eq!(
            verify(&long, piece_bytes).unwrap_err().fault(),
            Fault::Truncated
        );
    }
}
