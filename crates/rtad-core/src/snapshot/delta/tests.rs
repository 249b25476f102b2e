use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn key(number: u32) -> DeviceKey {
    DeviceKey::of_canonical(&number.to_le_bytes())
}

fn keys(numbers: impl IntoIterator<Item = u32>) -> Vec<DeviceKey> {
    numbers.into_iter().map(key).collect()
}

fn built(first: u64, last: u64, added: &[u32], removed: &[u32]) -> BuiltDelta {
    BuiltDelta::new(first, last, keys(added.iter().copied()), keys(removed.iter().copied()))
        .unwrap()
}

#[test]
fn a_file_is_read_as_it_was_written() {
    let BuiltDelta { delta, bytes } = built(3, 5, &[5, 1, 9, 1], &[2]);
    assert_eq!((delta.entry().added, delta.entry().removed), (3, 1));
    assert_eq!(bytes.len() as u64, delta.entry().size_bytes());
    let read = Delta::parse(&bytes, delta.entry()).unwrap();
    assert_eq!(read.entry(), delta.entry());
    for (number, says) in
        [(1, Some(true)), (5, Some(true)), (9, Some(true)), (2, Some(false)), (3, None)]
    {
        assert_eq!(read.says(&key(number)), says, "of {number}");
    }
}

#[test]
fn of_keys_that_it_does_not_name_hardly_any_are_looked_up_in_its_lists() {
    let added: Vec<u32> = (0..30_000).collect();
    let delta = built(1, 1, &added, &(30_000..40_000).collect::<Vec<_>>()).delta;
    assert!((0..40_000).all(|number| delta.summary.may_name(&key(number))), "all that it names");
    let looked_up =
        (40_000..140_000).filter(|number| delta.summary.may_name(&key(*number))).count();
    assert!((500..2000).contains(&looked_up), "{looked_up} of 100,000");
    assert!(delta.memory_bytes() < 40_000 * 19, "{} bytes", delta.memory_bytes());
}

#[test]
fn without_changes_there_is_no_delta() {
    assert!(BuiltDelta::new(1, 1, Vec::new(), Vec::new()).is_none());
    assert!(BuiltDelta::merged(1, []).is_none());
}

/// A file with other bytes, and the entry that names just them: what only the fields can tell.
fn forged(bytes: &[u8], entry: &DeltaEntry) -> DeltaError {
    let entry = DeltaEntry { sha256: Digest::of(bytes), ..entry.clone() };
    Delta::parse(bytes, &entry).unwrap_err()
}

#[test]
fn every_byte_counts() {
    let BuiltDelta { delta, bytes } = built(3, 5, &[5, 1], &[2, 7]);
    let entry = delta.entry();
    for place in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[place] ^= 1;
        let error = Delta::parse(&changed, entry).unwrap_err();
        assert!(matches!(error, DeltaError::Digest { .. }), "byte {place}: {error}");
        if place < 64 {
            let error = forged(&changed, entry);
            let expected = match place {
                0..8 => matches!(error, DeltaError::Magic),
                8..12 => matches!(error, DeltaError::Version { .. }),
                _ => matches!(error, DeltaError::Field { .. }),
            };
            assert!(expected, "byte {place}: {error}");
        }
    }
    for length in [0, 1, 63, 64, bytes.len() - 1] {
        assert!(
            matches!(forged(&bytes[..length], entry), DeltaError::Length { .. }),
            "{length} bytes"
        );
    }
    let long = [&bytes[..], &[0]].concat();
    assert!(matches!(forged(&long, entry), DeltaError::Length { .. }));
}

#[test]
fn keys_out_of_order_twice_or_in_both_lists_are_refused() {
    let BuiltDelta { delta, bytes } = built(3, 5, &[5, 1], &[2, 7]);
    let entry = delta.entry();
    let (a, b, c, d) = (64..80, 80..96, 96..112, 112..128);
    for (from, to, list) in
        [(a.clone(), b.clone(), "added"), (c.clone(), d, "removed"), (a, c.clone(), "removed")]
    {
        let mut changed = bytes.clone();
        changed.copy_within(from, to.start);
        // Both lists ascending still, so that only the key in both is wrong.
        if to == c && changed[96..112] >= changed[112..128] {
            let (left, right) = changed.split_at_mut(112);
            left[96..112].swap_with_slice(&mut right[..16]);
        }
        let error = forged(&changed, entry);
        assert!(matches!(error, DeltaError::Order { list: found } if found == list), "{error}");
    }
}

#[test]
fn an_entry_that_cannot_be_is_refused() {
    let entry = built(3, 5, &[1], &[]).delta.entry().clone();
    assert!(entry.check("deltas[0]", 5).is_ok());
    for (broken, field) in [
        (DeltaEntry { first: 0, ..entry.clone() }, "first"),
        (DeltaEntry { first: 6, ..entry.clone() }, "first"),
        (DeltaEntry { added: 0, ..entry.clone() }, "added"),
        (DeltaEntry { added: MAX_DELTA_KEYS, removed: 1, ..entry.clone() }, "added"),
        (DeltaEntry { added: u64::MAX, removed: u64::MAX, ..entry.clone() }, "added"),
    ] {
        let error = broken.check("deltas[0]", 5).unwrap_err().to_string();
        assert!(error.starts_with(&format!("deltas[0].{field} is ")), "{error}");
    }
    assert!(
        entry.check("deltas[0]", 4).unwrap_err().to_string().starts_with("deltas[0].last is 5")
    );
}

#[test]
fn sets_of_all_sizes_hold_what_they_hold_and_nothing_else() {
    for count in [0, 1, 2, 3, 4, 7, 8, 100, 4095, 4096, 50_000] {
        let set = SortedKeys::sort(keys(0..count));
        assert_eq!(set.len() as u32, count);
        assert!((0..count).all(|number| set.contains(&key(number))));
        assert!((count..count + 10_000).all(|number| !set.contains(&key(number))));
    }
}

#[test]
fn keys_that_begin_alike_are_found_too() {
    let alike = |number: u32| {
        let mut bytes = [0xff; 16];
        bytes[12..].copy_from_slice(&number.to_be_bytes());
        DeviceKey::from_bytes(bytes)
    };
    let set = SortedKeys::sort((0..5000).map(|number| alike(number * 2)).collect());
    assert!(
        (0..5000).all(|number| set.contains(&alike(number * 2)) && !set.contains(&alike(number * 2 + 1)))
    );
}

proptest! {
    /// A handful of keys, so that most changes meet others.
    #[test]
    fn of_merged_deltas_the_newest_decides(
        changes in prop::collection::vec(prop::collection::btree_map(0_u32..40, any::<bool>(), 1..20), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut model: BTreeMap<u32, bool> = BTreeMap::new();
        let deltas: Vec<Delta> = (1..).zip(&changes).map(|(sequence, change)| {
            model.extend(change);
            let of = |wanted| change.iter().filter(|(_, is)| **is == wanted).map(|(key, _)| *key).collect::<Vec<_>>();
            built(sequence, sequence, &of(true), &of(false)).delta
        }).collect();
        let last = deltas.len() as u64;
        let merged = BuiltDelta::merged(last, &deltas).unwrap();
        let read = Delta::parse(&merged.bytes, merged.delta.entry()).unwrap();
        prop_assert_eq!((read.entry().first, read.entry().last), (1, deltas.len() as u64));
        for number in 0..40 {
            prop_assert_eq!(read.says(&key(number)), model.get(&number).copied());
        }
        // Merged in part, and a part of it applied again below: the same.
        let cut = cut.index(deltas.len());
        let parts = [BuiltDelta::merged(last, &deltas[..cut]), BuiltDelta::merged(last, &deltas)];
        let again = BuiltDelta::merged(last, parts.iter().flatten().map(|part| &part.delta)).unwrap();
        prop_assert_eq!(again.bytes, merged.bytes);
    }

    #[test]
    fn unions_and_differences_are_those_of_sets(
        a in prop::collection::btree_set(0_u32..300, 0..200),
        b in prop::collection::btree_set(0_u32..300, 0..200),
    ) {
        let set = |numbers: &BTreeSet<u32>| SortedKeys::sort(keys(numbers.iter().copied()));
        let (left, right) = (set(&a), set(&b));
        prop_assert!(union(&left, &right) == set(&(&a | &b)).to_vec());
        prop_assert!(without(&left, &right) == set(&(&a - &b)).to_vec());
    }
}
