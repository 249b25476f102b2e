//! Overlays: precedence of layers, and the layers while one generation replaces another.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;

const DEVICES: u32 = 30;

fn device(number: u32) -> DeviceKey {
    DeviceKey::of_canonical(&number.to_le_bytes())
}

/// Changed devices: `true` is added, `false` is removed.
type Changes = BTreeMap<u32, bool>;

fn delta(sequence: u64, changes: &Changes) -> Option<Arc<Delta>> {
    let of = |wanted: bool| {
        changes.iter().filter(move |(_, is)| **is == wanted).map(|(number, _)| device(*number))
    };
    BuiltDelta::new(sequence, sequence, of(true).collect(), of(false).collect())
        .map(|built| Arc::new(built.delta))
}

fn overlay(first: u64, all: &[Changes], erased: &[u32]) -> Overlay {
    let deltas: Vec<_> =
        (first..).zip(all).filter_map(|(sequence, changes)| delta(sequence, changes)).collect();
    let tombstones =
        BuiltDelta::new(1, 1, Vec::new(), erased.iter().map(|number| device(*number)).collect());
    let tombstones = tombstones.map(|built| Arc::new(built.delta));
    let mut current = Current::new(first + all.len() as u64, 1, b"", None);
    current.deltas = deltas.iter().map(|delta| delta.entry().clone()).collect();
    current.tombstones = tombstones.as_ref().map(|delta| delta.entry().clone());
    Overlay::new(&current, deltas, tombstones)
}

fn changes() -> impl Strategy<Value = Vec<Changes>> {
    prop::collection::vec(prop::collection::btree_map(0..DEVICES, any::<bool>(), 0..8), 0..5)
}

/// A pod that fails to load a generation polls many `CURRENT`s of it, each with other deltas.
#[test]
fn repeated_layering_does_not_grow() {
    let one = |number: u32| Changes::from([(number, true)]);
    let accepted = overlay(2, &[one(1)], &[]);
    let mut served = accepted;
    for step in 0..100 {
        let delta = delta(10 + u64::from(step), &one(2 + step)).expect("it has a key");
        let mut current = Current::new(9, 2, b"", None);
        for _ in 0..=step + 1 {
            current = current.next();
        }
        current.deltas = vec![delta.entry().clone()];
        served = Overlay::new(&current, vec![delta], None).layered_over(&served);
        assert_eq!(served.deltas().count(), 2, "the accepted one and the newest");
        assert_eq!(
            (served.membership(&device(1)), served.membership(&device(2 + step))),
            (Some(true), Some(true))
        );
    }
    // Another generation: the deltas of the one before are kept if shards of it are loaded.
    let current = Current::new(500, 3, b"", None);
    let next = || Overlay::new(&current, Vec::new(), None);
    assert_eq!(next().layered_over(&served.clone().joined()).deltas().count(), 2);
    assert_eq!(next().layered_over(&served).deltas().count(), 1);
}

/// The loaded generation and a refused one share a delta. Another generation without it drops the
/// refused one's deltas only.
#[test]
fn shared_delta_of_a_refused_generation_stays() {
    let shared = delta(2, &Changes::from([(1, true)])).expect("it has a key");
    let with = |sequence, generation, deltas: &[Arc<Delta>]| {
        let mut current = Current::new(sequence, generation, b"", None);
        current.deltas = deltas.iter().map(|delta| delta.entry().clone()).collect();
        Overlay::new(&current, deltas.to_vec(), None)
    };
    let loaded = with(1, 1, &[Arc::clone(&shared)]);
    let refused = with(3, 2, &[shared]).layered_over(&loaded);
    let next = with(4, 3, &[]).layered_over(&refused);
    assert_eq!(next.membership(&device(1)), Some(true));
}

proptest! {
    #[test]
    fn tombstones_precede_deltas_and_newer_deltas_precede_older(
        all in changes(),
        erased in prop::collection::btree_set(0..DEVICES, 0..5),
    ) {
        let erased: Vec<u32> = erased.into_iter().collect();
        let overlay = overlay(2, &all, &erased);
        for number in 0..DEVICES {
            let newest = all.iter().rev().find_map(|changes| changes.get(&number).copied());
            let expected = if erased.contains(&number) { Some(false) } else { newest };
            prop_assert_eq!(overlay.membership(&device(number)), expected);
        }
        let [added, removed, tombstones] = overlay.keys();
        let count = |wanted| {
            all.iter().flat_map(|changes| changes.values()).filter(|is| **is == wanted).count()
        };
        prop_assert_eq!((added as usize, removed as usize), (count(true), count(false)));
        prop_assert_eq!(tombstones as usize, erased.len());
    }

    /// The new generation has the older changes merged; shards of both are served.
    #[test]
    fn each_device_is_answered_by_the_generation_of_its_shard(
        input in prop::collection::btree_set(0..DEVICES, 0..20),
        export in prop::collection::btree_set(0..DEVICES, 0..20),
        older in changes(),
        newer in changes(),
        lifted in prop::collection::btree_set(0..DEVICES, 0..4),
        erased in prop::collection::btree_set(0..DEVICES, 0..4),
    ) {
        let lifted: Vec<u32> = lifted.into_iter().collect();
        let erased: Vec<u32> = erased.into_iter().collect();
        let before = overlay(2, &older, &lifted);
        let after = overlay(10, &newer, &erased);
        let both = after.clone().layered_over(&before);
        let last = |all: &[Changes], number: u32| {
            all.iter().rev().find_map(|changes| changes.get(&number).copied())
        };
        for number in 0..DEVICES {
            let key = device(number);
            // Answers of the filters without false positives.
            let in_old = input.contains(&number);
            let in_new = last(&older, number).unwrap_or_else(|| export.contains(&number));
            let served_new = after.membership(&key).unwrap_or(in_new);
            prop_assert_eq!(both.membership(&key).unwrap_or(in_new), served_new, "new shard");
            let erased = erased.contains(&number);
            let changed = last(&newer, number).or(last(&older, number));
            let served_old = !erased && changed.unwrap_or(in_old);
            prop_assert_eq!(both.membership(&key).unwrap_or(in_old), served_old, "old shard");
        }
    }
}
