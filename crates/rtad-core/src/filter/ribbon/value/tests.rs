//! Values, rates and sizes of ribbon filters with values.

use proptest::prelude::*;

use super::super::tests::keys;
use super::super::{BITS, PartBytes, RibbonBuilder, nominal_fpr};
use super::*;
use crate::filter::{FilterKind, FilterSpec, ShardFilter, SizingError};

struct Built {
    spec: FilterSpec,
    shard: u16,
    parts: [Vec<u8>; 3],
}

fn spec(millibits: u32) -> FilterSpec {
    FilterSpec::new(FilterKind::Ribbon, 2, millibits)
        .unwrap()
        .with_value_bits(4)
        .unwrap()
}

impl Built {
    fn new(millibits: u32, shard: u16, members: &[(DeviceKey, u8)]) -> Self {
        let spec = spec(millibits);
        let mut parts = [const { Vec::new() }; 3];
        let mut builder = RibbonBuilder::default();
        let counts = builder.build(&spec, shard, members.iter().copied(), parts.each_mut());
        let found = parts.each_ref().map(|part| part.len() as u64);
        let PartBytes {
            first,
            second,
            list,
        } = spec.part_bytes(shard, counts);
        assert_eq!(found, [first, second, list], "sizes follow from the counts");
        assert!(counts.diverted <= counts.max_diverted() && counts.listed <= counts.keys);
        Self { spec, shard, parts }
    }

    fn filter(&self) -> ShardFilter<'_> {
        let [first, second, list] = &self.parts;
        ShardFilter {
            first,
            second,
            list,
        }
    }

    fn value(&self, key: &DeviceKey) -> Option<u8> {
        self.spec.value(self.filter(), key)
    }

    /// Number of members without their value.
    fn wrong(&self, members: &[(DeviceKey, u8)]) -> usize {
        let is_wrong = |(key, value): &&(DeviceKey, u8)| {
            self.value(key) != Some(*value) || !self.spec.contains(self.filter(), key)
        };
        members.iter().filter(is_wrong).count()
    }

    fn bytes(&self) -> usize {
        self.filter().len()
    }

    fn positives(&self, probes: usize) -> usize {
        let is_positive = |key: &&DeviceKey| self.spec.contains(self.filter(), key);
        keys(self.shard, 77, probes)
            .iter()
            .filter(is_positive)
            .count()
    }
}

/// Keys with values that do not depend on the hash bits of the row alone.
fn with_values(keys: &[DeviceKey]) -> Vec<(DeviceKey, u8)> {
    let mixed = |sum: u8, byte: &u8| sum.wrapping_mul(31).wrapping_add(*byte);
    keys.iter()
        .map(|key| (*key, key.as_bytes().iter().fold(7, mixed) >> 4))
        .collect()
}

#[test]
fn every_size_keeps_its_values() {
    for millibits in [12_000, 12_500, 13_000, 13_367, 14_000, 15_500, 16_000] {
        for count in [
            0, 1, 2, 31, 32, 33, 34, 40, 63, 100, 333, 1000, 2999, 3000, 3001, 9000,
        ] {
            for shard in [0, 1, 0x8000, 0xffff] {
                let members = with_values(&keys(shard, u64::from(millibits), count));
                let built = Built::new(millibits, shard, &members);
                assert_eq!(built.wrong(&members), 0, "{millibits} {count}");
                assert!(
                    built.bytes() as u64 <= built.spec.filter_bytes(count as u32),
                    "{count}"
                );
            }
        }
    }
}

#[test]
fn all_keys_of_one_value_keep_it() {
    for value in [0, 15] {
        let members: Vec<_> = keys(1, 3, 9000)
            .into_iter()
            .map(|key| (key, value))
            .collect();
        assert_eq!(Built::new(13_000, 1, &members).wrong(&members), 0);
    }
}

/// Rows that are equal in all but their value: the tier alone would answer with the first's.
#[test]
fn keys_that_differ_in_their_value_only_are_told_apart() {
    for range in [2..4, 8..10, 10..12, 14..16] {
        let keys: Vec<_> = (0..5000_u16)
            .map(|number| {
                let mut bytes = [0x5a; 16];
                bytes[range.clone()].copy_from_slice(&number.to_be_bytes());
                DeviceKey::from_bytes(bytes)
            })
            .collect();
        let members = with_values(&keys);
        let built = Built::new(14_000, 0x5a5a, &members);
        // An entry of the list has bytes 2 to 9 but their last half byte.
        match range.start {
            2 => assert_eq!(built.wrong(&members), 0, "{range:?}"),
            _ => assert!(
                keys.iter().all(|key| built.value(key).is_some()),
                "{range:?}"
            ),
        }
    }
}

#[test]
fn largest_value_of_equal_list_entries_is_kept() {
    let key = |last| DeviceKey::from_bytes([7, 7, 1, 2, 3, 4, 5, 6, 7, 0x10, 0, 0, 0, 0, 0, last]);
    let built = Built::new(13_000, 0x0707, &[(key(1), 3), (key(2), 9), (key(3), 4)]);
    assert_eq!(built.parts[2].len(), LIST_ENTRY_BYTES);
    assert_eq!([1, 2, 3].map(|last| built.value(&key(last))), [Some(9); 3]);
}

#[test]
fn large_shards_meet_size_and_rate() {
    // See the test of the same name without values. 915,000 keys, of which some five cannot be
    // placed because of their value.
    for (millibits, most_bits) in [(12_000, 16.9), (13_000, 17.5), (14_000, 18.75)] {
        let (mut bytes, mut positives, mut expected) = (0, 0, 0.0);
        for shard in 0..20 {
            let members = with_values(&keys(shard, u64::from(shard) + 100, 22_888));
            let built = Built::new(millibits, shard, &members);
            assert_eq!(built.wrong(&members), 0);
            bytes += built.bytes();
            positives += built.positives(100_000);
            expected += built.spec.expected_fpr(shard, built.filter()) / 20.0;
        }
        let bits = bytes as f64 * 8.0 / (20.0 * 22_888.0);
        assert!(bits <= most_bits, "{millibits}: {bits} bits per key");
        let measured = positives as f64 / 2e6;
        let sigma = (expected / 2e6).sqrt();
        assert!(
            (measured - expected).abs() < 4.5 * sigma,
            "{millibits}: {measured:e}"
        );
    }
}

#[test]
fn nominal_rate_is_not_below_the_expected_one() {
    for fingerprint in BITS {
        for count in [3000, 10_000, 22_888, 60_000] {
            let members = with_values(&keys(0x1234, 5, count));
            let built = Built::new(1000 * fingerprint, 0x1234, &members);
            let expected = built.spec.expected_fpr(0x1234, built.filter());
            let slack = if count == 3000 { 1.03 } else { 1.01 };
            let nominal = nominal_fpr(RowBits {
                fingerprint,
                value: 4,
            });
            assert!(
                expected <= slack * nominal,
                "{fingerprint} {count}: {expected:e}"
            );
        }
    }
}

#[test]
fn only_ribbon_filters_hold_values() {
    let sized = |kind| FilterSpec::with_values_for_fpr(kind, 1.22e-4);
    assert_eq!(
        sized(FilterKind::Block512),
        Err(SizingError::NoValues {
            kind: FilterKind::Block512
        })
    );
    let spec = sized(FilterKind::Ribbon).unwrap();
    assert!(
        (13_000..13_060).contains(&spec.millibits_per_key()),
        "{spec:?}"
    );
    assert_eq!(
        spec.with_value_bits(5),
        Err(SizingError::ValueBits { found: 5 })
    );
}

proptest! {
    /// Any bytes in any part: no panic, no read out of bounds, and an answer.
    #[test]
    fn arbitrary_bytes_are_looked_up(
        first in proptest::collection::vec(any::<u8>(), 0..400),
        second in proptest::collection::vec(any::<u8>(), 0..400),
        list in proptest::collection::vec(any::<u8>(), 0..50),
        millibits in 12_000..=16_000_u32,
        key in any::<[u8; 16]>(),
    ) {
        let spec = spec(millibits);
        let key = DeviceKey::from_bytes(key);
        let filter = ShardFilter { first: &first, second: &second, list: &list };
        prop_assert!(spec.value(filter, &key).is_none_or(|value| value < 16));
        prop_assert!((0.0..=1.0).contains(&spec.expected_fpr(key.shard(), filter)));
    }

    #[test]
    fn random_sizes_keep_their_values(
        count in 0..4000_usize,
        seed in 0..1_000_000_u64,
        shard in any::<u16>(),
        millibits in 12_000..=16_000_u32,
        // Few distinct values of the second half of the hash: dependent rows, equal rows.
        mask in prop_oneof![Just(0xff_u8), Just(0x03), any::<u8>()],
    ) {
        let mut keys = keys(shard, seed, count);
        for key in &mut keys {
            let mut bytes = *key.as_bytes();
            bytes[10..].iter_mut().for_each(|byte| *byte &= mask);
            *key = DeviceKey::from_bytes(bytes);
        }
        keys.sort_unstable();
        keys.dedup();
        let members = with_values(&keys);
        prop_assert_eq!(Built::new(millibits, shard, &members).wrong(&members), 0);
    }
}
