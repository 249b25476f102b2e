use super::*;
use rtad_core::device::DeviceKey;
use testkit::store::{Spec, snapshot};

/// A generation of equally many keys in each of these shards.
fn generation(
    number: u64,
    seed: u64,
    shards: Range<u16>,
    shards_per_chunk: u32,
) -> (Manifest, Chunks) {
    let key = |shard: u16, index: u64| {
        let mut key = [0; 16];
        key[..2].copy_from_slice(&shard.to_be_bytes());
        key[2..10].copy_from_slice(
            &(seed << 32 | index)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .to_le_bytes(),
        );
        DeviceKey::from_bytes(key)
    };
    let mut keys: Vec<_> = shards
        .flat_map(|shard| (0..100).map(move |index| key(shard, index)))
        .collect();
    keys.sort_unstable();
    let snapshot = snapshot(
        "old_users",
        number,
        &keys,
        &Spec {
            shards_per_chunk,
            ..Spec::small()
        },
    );
    let chunks = snapshot
        .chunks()
        .iter()
        .map(|chunk| (*chunk.digest(), Arc::clone(chunk)));
    (snapshot.manifest().clone(), chunks.collect())
}

fn shards(plan: &RollPlan) -> Vec<Range<usize>> {
    plan.steps.iter().map(|step| step.shards.clone()).collect()
}

/// The peak in chunks of sixteen shards, which all have one size.
fn chunks_at_peak(plan: &RollPlan, manifest: &Manifest) -> f64 {
    plan.peak_bytes as f64 / manifest.chunks()[0].filter_bytes(FilterKind::Block512) as f64
}

#[test]
fn equal_chunk_boundaries_need_memory_for_one_more_chunk() {
    let (old, chunks) = generation(1, 1, 0..128, 16);
    let served = assemble(old, &chunks);
    let (new, _) = generation(2, 2, 0..128, 16);
    let plan = RollPlan::new(&served, &new);
    assert_eq!(
        shards(&plan),
        (0..8)
            .map(|index| index * 16..(index + 1) * 16)
            .collect::<Vec<_>>()
    );
    assert!(
        (1.0..1.2).contains(&chunks_at_peak(&plan, &new)),
        "{}",
        plan.peak_bytes
    );
}

#[test]
fn different_chunk_boundaries_need_memory_for_two_more_chunks() {
    let (old, chunks) = generation(1, 1, 0..128, 32);
    let served = assemble(old, &chunks);
    let (new, _) = generation(2, 2, 0..128, 16);
    let plan = RollPlan::new(&served, &new);
    assert!(
        (1.9..2.2).contains(&chunks_at_peak(&plan, &new)),
        "{}",
        plan.peak_bytes
    );

    let (coarse, _) = generation(2, 2, 0..128, 128);
    let plan = RollPlan::new(&served, &coarse);
    assert_eq!(
        plan.peak_bytes,
        coarse.chunks()[0].filter_bytes(FilterKind::Block512),
        "a single chunk holds all shards"
    );
}

#[test]
fn larger_generation_needs_its_growth_and_one_chunk() {
    let (old, chunks) = generation(1, 1, 0..64, 16);
    let served = assemble(old, &chunks);
    let (new, _) = generation(2, 2, 0..128, 16);
    let plan = RollPlan::new(&served, &new);
    assert!(
        (4.0..4.5).contains(&chunks_at_peak(&plan, &new)),
        "{}",
        plan.peak_bytes
    );
    let (smaller, _) = generation(2, 2, 0..32, 16);
    let plan = RollPlan::new(&served, &smaller);
    assert!(
        (1.0..1.2).contains(&chunks_at_peak(&plan, &smaller)),
        "{}",
        plan.peak_bytes
    );
}

#[test]
fn held_chunks_join_the_step_of_the_next_missing_chunk() {
    let (old, chunks) = generation(1, 1, 0..128, 16);
    let served = assemble(old.clone(), &chunks);
    let plan = RollPlan::new(&served, &old);
    assert!(plan.steps.is_empty() && plan.held.len() == 8 && plan.peak_bytes == 0);

    // Chunks 0 and 3 are missing; 1 and 2 join the step of 3, and all later ones are held.
    let (other, other_chunks) = generation(2, 2, 0..128, 16);
    let digest = |manifest: &Manifest, index: usize| manifest.chunks()[index].digest;
    let mixed = served.with_chunks(0..16, &[Arc::clone(&other_chunks[&digest(&other, 0)])]);
    let mixed = mixed.with_chunks(48..64, &[Arc::clone(&other_chunks[&digest(&other, 3)])]);
    let plan = RollPlan::new(&mixed, &old);
    assert_eq!(shards(&plan), [0..16, 16..64]);
    assert_eq!(plan.steps[1].held.len(), 2);
    assert_eq!(plan.held.len(), 6);
}
