//! Delta files, merging, and exact key sets.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn key(number: u32) -> DeviceKey {
    DeviceKey::of_canonical(&number.to_le_bytes())
}

fn keys(numbers: impl IntoIterator<Item = u32>) -> Vec<DeviceKey> {
    numbers.into_iter().map(key).collect()
}

fn built(first: u64, last: u64, added: &[u32], removed: &[u32]) -> BuiltDelta {
    BuiltDelta::new(
        first,
        last,
        keys(added.iter().copied()),
        keys(removed.iter().copied()),
    )
    .unwrap()
}

#[test]
fn delta_file_reads_back_equal() {
    let BuiltDelta { delta, bytes } = built(3, 5, &[5, 1, 9, 1], &[2]);
    assert_eq!((delta.entry().added, delta.entry().removed), (3, 1));
    assert_eq!(bytes.len() as u64, delta.entry().size_bytes());
    let read = Delta::parse(&bytes, delta.entry()).unwrap();
    assert_eq!(read.entry(), delta.entry());
    for (number, expected) in [
        (1, Some(true)),
        (5, Some(true)),
        (9, Some(true)),
        (2, Some(false)),
        (3, None),
    ] {
        assert_eq!(read.membership(&key(number)), expected, "{number}");
    }
}

fn valued(added: &[(u32, Option<u8>)], removed: &[u32]) -> BuiltDelta {
    let mut added: Vec<_> = added
        .iter()
        .map(|(number, value)| (key(*number), *value))
        .collect();
    added.sort();
    BuiltDelta::with_values(3, 5, &added, keys(removed.iter().copied())).unwrap()
}

#[test]
fn values_read_back_exactly() {
    let BuiltDelta { delta, bytes } = valued(&[(5, Some(15)), (1, None), (9, Some(0))], &[2]);
    assert_eq!(bytes.len(), 64 + 4 * 16 + 3);
    let read = Delta::parse(&bytes, delta.entry()).unwrap();
    for (number, expected) in [(5, Some(15)), (1, None), (9, Some(0)), (2, None), (3, None)] {
        assert_eq!(read.value(&key(number)), expected, "{number}");
    }
    assert!(read.members().eq(delta.members()));
    let json = serde_json::to_string(delta.entry()).unwrap();
    assert!(json.contains("\"values\":true"), "{json}");
    // Without any value the file is that of keys alone.
    let none = valued(&[(5, None), (1, None)], &[2]);
    assert_eq!(none.bytes, built(3, 5, &[5, 1], &[2]).bytes);
    assert!(
        !serde_json::to_string(none.delta.entry())
            .unwrap()
            .contains("values")
    );
}

#[test]
fn invalid_values_are_rejected() {
    let BuiltDelta { delta, bytes } = valued(&[(5, Some(15)), (1, None)], &[]);
    let at = bytes.len() - 2;
    for value in [16, 254] {
        let mut changed = bytes.clone();
        changed[at + 1] = value;
        let error = parse_with_digest_repaired(&changed, delta.entry());
        assert!(matches!(error, DeltaError::Value { index: 1, found } if found == value));
    }
    let mut changed = bytes;
    changed[at..].fill(NO_VALUE);
    let error = parse_with_digest_repaired(&changed, delta.entry());
    assert!(
        matches!(
            error,
            DeltaError::Field {
                field: "values",
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn summary_filters_out_most_keys_that_a_delta_does_not_name() {
    let added: Vec<u32> = (0..30_000).collect();
    let delta = built(1, 1, &added, &(30_000..40_000).collect::<Vec<_>>()).delta;
    assert!(
        (0..40_000).all(|number| delta.summary.may_contain(&key(number))),
        "no false negatives"
    );
    let looked_up = (40_000..140_000)
        .filter(|number| delta.summary.may_contain(&key(*number)))
        .count();
    assert!((500..2000).contains(&looked_up), "{looked_up} of 100,000");
    assert!(
        delta.memory_bytes() < 40_000 * 19,
        "{} bytes",
        delta.memory_bytes()
    );
}

#[test]
fn no_delta_without_changes() {
    assert!(BuiltDelta::new(1, 1, Vec::new(), Vec::new()).is_none());
    assert!(BuiltDelta::merged(1, []).is_none());
}

/// The error for `bytes` with a matching digest in the entry.
fn parse_with_digest_repaired(bytes: &[u8], entry: &DeltaEntry) -> DeltaError {
    let entry = DeltaEntry {
        sha256: Digest::of(bytes),
        ..entry.clone()
    };
    Delta::parse(bytes, &entry).unwrap_err()
}

#[test]
fn change_of_any_byte_is_rejected() {
    let BuiltDelta { delta, bytes } = built(3, 5, &[5, 1], &[2, 7]);
    let entry = delta.entry();
    for offset in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[offset] ^= 1;
        let error = Delta::parse(&changed, entry).unwrap_err();
        assert!(
            matches!(error, DeltaError::Digest { .. }),
            "byte {offset}: {error}"
        );
        if offset < 64 {
            let error = parse_with_digest_repaired(&changed, entry);
            let expected = match offset {
                0..8 => matches!(error, DeltaError::Magic),
                8..12 => matches!(error, DeltaError::Version { .. }),
                _ => matches!(error, DeltaError::Field { .. }),
            };
            assert!(expected, "byte {offset}: {error}");
        }
    }
    for length in [0, 1, 63, 64, bytes.len() - 1] {
        assert!(
            matches!(
                parse_with_digest_repaired(&bytes[..length], entry),
                DeltaError::Length { .. }
            ),
            "{length} bytes"
        );
    }
    let long = [&bytes[..], &[0]].concat();
    assert!(matches!(
        parse_with_digest_repaired(&long, entry),
        DeltaError::Length { .. }
    ));
}

#[test]
fn unsorted_repeated_or_contradicting_keys_are_rejected() {
    let BuiltDelta { delta, bytes } = built(3, 5, &[5, 1], &[2, 7]);
    let entry = delta.entry();
    let (a, b, c, d) = (64..80, 80..96, 96..112, 112..128);
    for (from, to, list) in [
        (a.clone(), b.clone(), "added"),
        (c.clone(), d, "removed"),
        (a, c.clone(), "removed"),
    ] {
        let mut changed = bytes.clone();
        changed.copy_within(from, to.start);
        // Keep both lists ascending: only the key in both is wrong.
        if to == c && changed[96..112] >= changed[112..128] {
            let (left, right) = changed.split_at_mut(112);
            left[96..112].swap_with_slice(&mut right[..16]);
        }
        let error = parse_with_digest_repaired(&changed, entry);
        assert!(
            matches!(error, DeltaError::Order { list: found } if found == list),
            "{error}"
        );
    }
}

#[test]
fn invalid_entry_is_rejected_by_field() {
    let entry = built(3, 5, &[1], &[]).delta.entry().clone();
    assert!(entry.check("deltas[0]", 5).is_ok());
    for (broken, field) in [
        (
            DeltaEntry {
                first: 0,
                ..entry.clone()
            },
            "first",
        ),
        (
            DeltaEntry {
                first: 6,
                ..entry.clone()
            },
            "first",
        ),
        (
            DeltaEntry {
                added: 0,
                ..entry.clone()
            },
            "added",
        ),
        (
            DeltaEntry {
                added: MAX_DELTA_KEYS,
                removed: 1,
                ..entry.clone()
            },
            "added",
        ),
        (
            DeltaEntry {
                added: 0,
                removed: 1,
                has_values: true,
                ..entry.clone()
            },
            "added",
        ),
        (
            DeltaEntry {
                added: u64::MAX,
                removed: u64::MAX,
                ..entry.clone()
            },
            "added",
        ),
    ] {
        let error = broken.check("deltas[0]", 5).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("deltas[0].{field} is ")),
            "{error}"
        );
    }
    assert!(
        entry
            .check("deltas[0]", 4)
            .unwrap_err()
            .to_string()
            .starts_with("deltas[0].last is 5")
    );
}

#[test]
fn sorted_keys_are_exact_at_all_sizes() {
    for count in [0, 1, 2, 3, 4, 7, 8, 100, 4095, 4096, 50_000] {
        let set = SortedKeys::sort(keys(0..count));
        assert_eq!(set.len() as u32, count);
        assert!((0..count).all(|number| set.contains(&key(number))));
        assert!((count..count + 10_000).all(|number| !set.contains(&key(number))));
    }
}

#[test]
fn keys_with_a_common_prefix_are_found() {
    let prefixed = |number: u32| {
        let mut bytes = [0xff; 16];
        bytes[12..].copy_from_slice(&number.to_be_bytes());
        DeviceKey::from_bytes(bytes)
    };
    let set = SortedKeys::sort((0..5000).map(|number| prefixed(number * 2)).collect());
    assert!(
        (0..5000).all(|number| set.contains(&prefixed(number * 2))
            && !set.contains(&prefixed(number * 2 + 1)))
    );
}

/// A value, or none.
fn value() -> impl Strategy<Value = Option<u8>> {
    prop::option::of(0_u8..16)
}

proptest! {
    /// Few distinct keys, so that most changes overlap.
    #[test]
    fn newest_delta_decides_after_merging(
        changes in prop::collection::vec(
            prop::collection::btree_map(0_u32..40, prop::option::of(value()), 1..20),
            1..8,
        ),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut model: BTreeMap<u32, Option<Option<u8>>> = BTreeMap::new();
        let deltas: Vec<Delta> = (1..).zip(&changes).map(|(sequence, change)| {
            model.extend(change);
            let added = change.iter().filter_map(|(number, added)| Some((key(*number), (*added)?)));
            let mut added: Vec<_> = added.collect();
            added.sort();
            let removed = change.iter().filter(|(_, added)| added.is_none());
            let removed = keys(removed.map(|(number, _)| *number));
            BuiltDelta::with_values(sequence, sequence, &added, removed).unwrap().delta
        }).collect();
        let last = deltas.len() as u64;
        let merged = BuiltDelta::merged(last, &deltas).unwrap();
        let read = Delta::parse(&merged.bytes, merged.delta.entry()).unwrap();
        prop_assert_eq!((read.entry().first, read.entry().last), (1, deltas.len() as u64));
        for number in 0..40 {
            let expected = model.get(&number).copied();
            let (key, value) = (key(number), expected.flatten().flatten());
            prop_assert_eq!(read.membership(&key), expected.map(|added| added.is_some()));
            prop_assert_eq!(read.value(&key), value);
        }
        // Merging a prefix twice changes nothing.
        let cut = cut.index(deltas.len());
        let parts = [BuiltDelta::merged(last, &deltas[..cut]), BuiltDelta::merged(last, &deltas)];
        let parts = parts.iter().flatten().map(|part| &part.delta);
        let again = BuiltDelta::merged(last, parts).unwrap();
        prop_assert_eq!(again.bytes, merged.bytes);
    }
}
