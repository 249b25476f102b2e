use rtad_core::device::DeviceKey;
use rtad_core::filter::FilterKind;
use rtad_core::snapshot::{BuiltChunk, chunk_runs};

use super::*;
use crate::keys::{Filler, KeyChecks, Keys, Slab, SpillDir};

fn key(n: u32) -> DeviceKey {
    DeviceKey::of_canonical(&n.to_le_bytes())
}

/// Builds from memory or from disk, whichever fits the budget.
fn built(keys: &[DeviceKey], chunk_rule: ChunkRule, budget: Budget) -> (Manifest, Distinct) {
    let audience: AudienceName = "a".parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let plan = BuildPlan {
        audience: &audience,
        filter: FilterSpec::for_fpr(FilterKind::Block512, 0.0001).unwrap(),
        target_fpr: 0.0001,
        budget,
        counts: Counts {
            keys: keys.len() as u64,
            ..Counts::default()
        },
        merged: &MergedDeltas::default(),
        carried: None,
        gate: &Gate::without_live(),
        live: None,
        lineage: Default::default(),
        expiry: ExpiryArgs::default(),
        stage: None,
        runtime: &runtime,
        progress: &Progress::new(false),
        chunk_rule,
    };
    let dir = SpillDir::temporary();
    let mut slab = Slab::of(budget.segments()).unwrap();
    let collected = Keys::new(&mut slab, &budget, &dir);
    let mut filler = Filler::new(&collected);
    filler.take(keys, &[]);
    filler.flush();
    drop(filler);
    let sink = || Ok(ChunkSink::Nowhere);
    let done = if collected.fit(&budget, |partitions| plan.largest_chunk(partitions)) {
        plan.build_sorted(
            &collected.into_sorted(2, KeyChecks::default(), |_| {}),
            0,
            sink,
        )
        .unwrap()
    } else {
        plan.build_spilled(&collected.into_spilled().unwrap(), sink)
            .unwrap()
    };
    (done.manifest, done.distinct)
}

fn sequential_chunks(
    keys: &[DeviceKey],
    shards_per_chunk: u32,
) -> Vec<rtad_core::snapshot::ChunkEntry> {
    let filter = FilterSpec::for_fpr(FilterKind::Block512, 0.0001).unwrap();
    let mut keys = keys.to_vec();
    keys.sort();
    keys.dedup();
    chunk_runs(&keys, shards_per_chunk)
        .map(|run| BuiltChunk::build(&filter, run).entry)
        .collect()
}

/// The cases go from chunks that span sixteen partitions to sixteen chunks in one partition.
#[test]
fn parallel_chunks_equal_sequential_chunks() {
    let keys: Vec<_> = (0..5000).chain(0..50).map(key).collect();
    let rules: [(u32, ChunkRule); 4] = [
        (4096, |_, _| 4096),
        (512, |_, _| 512),
        (256, |_, _| 256),
        (16, |_, _| 16),
    ];
    for (per_chunk, rule) in rules {
        for (budget, fits) in [
            (Budget::tiny(64 << 20, 3), true),
            (Budget::tiny(1 << 20, 3), false),
        ] {
            let many: Vec<_> = if fits {
                keys.clone()
            } else {
                (0..60_000).chain(0..50).map(key).collect()
            };
            let (manifest, distinct) = built(&many, rule, budget);
            assert_eq!(
                manifest.chunks(),
                sequential_chunks(&many, per_chunk),
                "{per_chunk} shards per chunk"
            );
            assert_eq!(
                (distinct.left, manifest.build().duplicates),
                (many.len() as u64 - 50, 50)
            );
        }
    }
}

/// One partition has distinct keys, the others repeat theirs, so the first estimate is wrong.
#[test]
fn wrong_estimate_rebuilds_chunks() {
    const LIMIT: u64 = 10_000;
    let rule: ChunkRule = |_, keys| if keys > LIMIT { 256 } else { 4096 };
    let in_partition = |partition: u32, n: u32| {
        let mut bytes = *key(n).as_bytes();
        bytes[0] = partition as u8;
        DeviceKey::from_bytes(bytes)
    };
    let repeated = |middling: u32| {
        (0..=255_u32).flat_map(move |partition| {
            (0..300_u32 + partition).map(move |n| {
                let is_distinct = partition == middling;
                in_partition(partition, if is_distinct { n } else { n % 5 })
            })
        })
    };
    // The estimate samples the partition of median size.
    let few: Vec<_> = repeated(128).collect();
    let (manifest, distinct) = built(&few, rule, Budget::tiny(1 << 20, 2));
    assert!(distinct.left < LIMIT);
    assert_eq!(manifest.chunks(), sequential_chunks(&few, 4096));
    assert_eq!(
        manifest.build().duplicates,
        few.len() as u64 - distinct.left
    );
}
