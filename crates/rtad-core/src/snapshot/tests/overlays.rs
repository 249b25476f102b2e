//! Deltas over filters: which decides, and what applies while one generation replaces another.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;

const DEVICES: u32 = 30;

fn device(number: u32) -> DeviceKey {
    DeviceKey::of_canonical(&number.to_le_bytes())
}

/// Devices, and whether each is added.
type Changes = BTreeMap<u32, bool>;

fn delta(sequence: u64, changes: &Changes) -> Option<Arc<Delta>> {
    let of = |wanted: bool| {
        changes.iter().filter(move |(_, is)| **is == wanted).map(|(number, _)| device(*number))
    };
    BuiltDelta::new(sequence, sequence, of(true).collect(), of(false).collect())
        .map(|built| Arc::new(built.delta))
}

fn overlay(first: u64, all: &[Changes], buried: &[u32]) -> Overlay {
    let deltas: Vec<_> =
        (first..).zip(all).filter_map(|(sequence, changes)| delta(sequence, changes)).collect();
    let tombstones =
        BuiltDelta::new(1, 1, Vec::new(), buried.iter().map(|number| device(*number)).collect());
    let tombstones = tombstones.map(|built| Arc::new(built.delta));
    let mut current = Current::new(first + all.len() as u64, 1, b"", None);
    current.deltas = deltas.iter().map(|delta| delta.entry().clone()).collect();
    current.tombstones = tombstones.as_ref().map(|delta| delta.entry().clone());
    Overlay::new(&current, deltas, tombstones)
}

fn changes() -> impl Strategy<Value = Vec<Changes>> {
    prop::collection::vec(prop::collection::btree_map(0..DEVICES, any::<bool>(), 0..8), 0..5)
}

/// A pod that cannot have a generation sees one `CURRENT` of it after the other, each with other
/// deltas.
#[test]
fn what_is_laid_over_again_and_again_does_not_grow() {
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
        served = Overlay::new(&current, vec![delta], None).over(&served);
        assert_eq!(served.deltas().count(), 2, "the accepted one and the newest");
        assert_eq!(
            (served.says(&device(1)), served.says(&device(2 + step))),
            (Some(true), Some(true))
        );
    }
    // Another generation: what applied to the one before may be in it, and is asked for still.
    let current = Current::new(500, 3, b"", None);
    assert_eq!(Overlay::new(&current, Vec::new(), None).over(&served).deltas().count(), 2);
}

proptest! {
    #[test]
    fn the_newest_delta_decides_and_tombstones_before_all(
        all in changes(),
        buried in prop::collection::btree_set(0..DEVICES, 0..5),
    ) {
        let buried: Vec<u32> = buried.into_iter().collect();
        let overlay = overlay(2, &all, &buried);
        for number in 0..DEVICES {
            let newest = all.iter().rev().find_map(|changes| changes.get(&number).copied());
            let expected = if buried.contains(&number) { Some(false) } else { newest };
            prop_assert_eq!(overlay.says(&device(number)), expected);
        }
        let [added, removed, tombstones] = overlay.keys();
        let count = |wanted| all.iter().flat_map(|changes| changes.values()).filter(|is| **is == wanted).count();
        prop_assert_eq!((added as usize, removed as usize), (count(true), count(false)));
        prop_assert_eq!(tombstones as usize, buried.len());
    }

    /// The new generation has taken the older changes up; some of its shards are served, and some
    /// of the old one's.
    #[test]
    fn while_one_generation_replaces_another_each_device_is_what_either_makes_of_it(
        input in prop::collection::btree_set(0..DEVICES, 0..20),
        export in prop::collection::btree_set(0..DEVICES, 0..20),
        older in changes(),
        newer in changes(),
        lifted in prop::collection::btree_set(0..DEVICES, 0..4),
        buried in prop::collection::btree_set(0..DEVICES, 0..4),
    ) {
        let (lifted, buried): (Vec<u32>, Vec<u32>) = (lifted.into_iter().collect(), buried.into_iter().collect());
        let before = overlay(2, &older, &lifted);
        let after = overlay(10, &newer, &buried);
        let both = after.clone().over(&before);
        let last = |all: &[Changes], number: u32| all.iter().rev().find_map(|changes| changes.get(&number).copied());
        for number in 0..DEVICES {
            let key = device(number);
            // What the filters of both would say without mistakes.
            let in_old = input.contains(&number);
            let in_new = last(&older, number).unwrap_or_else(|| export.contains(&number));
            let served_new = after.says(&key).unwrap_or(in_new);
            prop_assert_eq!(both.says(&key).unwrap_or(in_new), served_new, "of a shard that is new");
            let buried = buried.contains(&number);
            let served_old = !buried && last(&newer, number).or(last(&older, number)).unwrap_or(in_old);
            prop_assert_eq!(both.says(&key).unwrap_or(in_old), served_old, "of a shard that is old");
        }
    }
}
