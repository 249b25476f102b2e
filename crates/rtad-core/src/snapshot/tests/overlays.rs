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
        changes
            .iter()
            .filter(move |(_, is)| **is == wanted)
            .map(|(number, _)| device(*number))
    };
    BuiltDelta::new(sequence, sequence, of(true).collect(), of(false).collect())
        .map(|built| Arc::new(built.delta))
}

fn overlay(first: u64, all: &[Changes], erased: &[u32]) -> Overlay {
    let deltas: Vec<_> = (first..)
        .zip(all)
        .filter_map(|(sequence, changes)| delta(sequence, changes))
        .collect();
    let tombstones = BuiltDelta::new(
        1,
        1,
        Vec::new(),
        erased.iter().map(|number| device(*number)).collect(),
    );
    let tombstones = tombstones.map(|built| Arc::new(built.delta));
    let mut current = Current::new(first + all.len() as u64, 1, b"", None);
    current.deltas = deltas.iter().map(|delta| delta.entry().clone()).collect();
    current.tombstones = tombstones.as_ref().map(|delta| delta.entry().clone());
    Overlay::new(&current, tombstones.into_iter().chain(deltas).collect())
}

fn changes() -> impl Strategy<Value = Vec<Changes>> {
    prop::collection::vec(
        prop::collection::btree_map(0..DEVICES, any::<bool>(), 0..8),
        0..5,
    )
}

fn over(served: &Overlay, next: Overlay) -> Overlay {
    Overlay::over(served, Newer::Deltas(next))
}

/// The table of the module's documentation. A layer is named by the device that it adds; device 0
/// is erased by tombstones.
#[test]
fn overlay_over_a_served_one_follows_the_table() {
    let layer = |number: u32| delta(u64::from(number), &Changes::from([(number, true)])).unwrap();
    let erasure = || delta(1, &Changes::from([(0, false)]));
    let current = |publish: u64, numbers: &[u32], is_erased: bool, state: State| {
        let mut current = Current::new(publish, publish, b"", None);
        (0..100).for_each(|_| current = current.next());
        current.deltas = numbers
            .iter()
            .map(|number| layer(*number).entry().clone())
            .collect();
        current.tombstones = is_erased.then(|| erasure().unwrap().entry().clone());
        current.state = state;
        current
    };
    let whole = |current: &Current, numbers: &[u32]| {
        let tombstones = current.tombstones.as_ref().and_then(|_| erasure());
        let deltas = numbers.iter().map(|number| layer(*number));
        Overlay::new(current, tombstones.into_iter().chain(deltas).collect())
    };
    let shown = |overlay: &Overlay| {
        let names = overlay
            .deltas()
            .rev()
            .map(|delta| delta.entry().last)
            .collect::<Vec<_>>();
        (overlay.state(), overlay.tombstones().is_some(), names)
    };
    use State::{Deleted, Disabled, Live};
    // Served: the first publish with delta 3, and two states that a poll may leave behind.
    let first = whole(&current(1, &[3], false, Live), &[3]);
    let second = current(2, &[5], true, Live);
    let ahead = over(&first, whole(&second, &[5]));
    let mixed = Overlay::over(&ahead, Newer::Filters);
    let deleted = Overlay::over(&first, Newer::Current(&current(2, &[], false, Deleted)));
    let later = |state| current(2, &[5, 6], false, state);
    let third = current(3, &[7], false, Live);
    for (served, newer, expected) in [
        // record restricts, and makes nothing available.
        (&first, Newer::Current(&second), (Live, false, vec![3])),
        (
            &first,
            Newer::Current(&later(Disabled)),
            (Disabled, false, vec![3]),
        ),
        (
            &first,
            Newer::Current(&later(Deleted)),
            (Deleted, false, vec![3]),
        ),
        (&deleted, Newer::Current(&third), (Deleted, false, vec![3])),
        // Tombstones come and go without deltas.
        (&first, Newer::Tombstones(erasure()), (Live, true, vec![3])),
        (&ahead, Newer::Tombstones(None), (Live, false, vec![5, 3])),
        // Deltas of the same generation replace its own.
        (
            &first,
            Newer::Deltas(whole(&current(1, &[3, 4], true, Live), &[3, 4])),
            (Live, true, vec![4, 3]),
        ),
        (
            &first,
            Newer::Deltas(whole(&current(1, &[4], false, Disabled), &[4])),
            (Disabled, false, vec![4]),
        ),
        // Deltas of the next generation come above those of the served filters.
        (
            &first,
            Newer::Deltas(whole(&second, &[5])),
            (Live, true, vec![5, 3]),
        ),
        (
            &ahead,
            Newer::Deltas(whole(&later(Live), &[5, 6])),
            (Live, false, vec![6, 5, 3]),
        ),
        // No filters of generation 2 are served: its deltas and those below become one.
        (
            &ahead,
            Newer::Deltas(whole(&third, &[7])),
            (Live, false, vec![7, 5]),
        ),
        // Some are served: they need its deltas, and the first ones need theirs.
        (
            &mixed,
            Newer::Deltas(whole(&third, &[7])),
            (Live, false, vec![7, 5, 3]),
        ),
        (
            &mixed,
            Newer::Deltas(whole(&later(Live), &[5, 6])),
            (Live, false, vec![6, 5, 3]),
        ),
        // Filters of a deleted audience answer no more.
        (
            &deleted,
            Newer::Deltas(whole(&third, &[7])),
            (Deleted, false, vec![7, 3]),
        ),
        (&ahead, Newer::Filters, (Live, true, vec![5, 3])),
    ] {
        let step = format!("{newer:?}");
        assert_eq!(
            shown(&Overlay::over(served, newer)),
            expected,
            "{step} over {served:?}"
        );
    }
}

/// A pod that fails to load a generation polls many the records of it, each with other deltas.
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
        served = over(&served, Overlay::new(&current, vec![delta]));
        assert_eq!(
            served.deltas().count(),
            2,
            "the accepted one and the newest"
        );
        assert_eq!(
            (
                served.membership(&device(1)),
                served.membership(&device(2 + step))
            ),
            (Some(true), Some(true))
        );
    }
    // Another generation: the deltas of the one before are kept if shards of it are loaded.
    let current = Current::new(500, 3, b"", None);
    let next = Overlay::new(&current, Vec::new());
    let mixed = Overlay::over(&served, Newer::Filters);
    assert_eq!(over(&mixed, next.clone()).deltas().count(), 2);
    assert_eq!(over(&served, next).deltas().count(), 1);
}

/// The loaded generation and a refused one share a delta. Another generation without it drops the
/// refused one's deltas only.
#[test]
fn shared_delta_of_a_refused_generation_stays() {
    let shared = delta(2, &Changes::from([(1, true)])).expect("it has a key");
    let with = |sequence, generation, deltas: &[Arc<Delta>]| {
        let mut current = Current::new(sequence, generation, b"", None);
        current.deltas = deltas.iter().map(|delta| delta.entry().clone()).collect();
        Overlay::new(&current, deltas.to_vec())
    };
    let loaded = with(1, 1, &[Arc::clone(&shared)]);
    let refused = over(&loaded, with(3, 2, &[shared]));
    let next = over(&refused, with(4, 3, &[]));
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
        let both = over(&before, after.clone());
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
