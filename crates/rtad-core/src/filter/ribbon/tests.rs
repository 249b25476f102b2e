//! Members, rates and sizes of ribbon filters, from none to thousands of keys, and of arbitrary
//! bytes.

use proptest::prelude::*;

use super::*;
use crate::filter::{FilterKind, FilterSpec, RibbonBuilder, ShardFilter};
use crate::synth::random_key;

/// Random keys of one shard, sorted.
pub fn keys(shard: u16, seed: u64, count: usize) -> Vec<DeviceKey> {
    let key = |index: u64| {
        let mut bytes = *random_key((seed << 32) + index).as_bytes();
        bytes[..2].copy_from_slice(&shard.to_be_bytes());
        DeviceKey::from_bytes(bytes)
    };
    let mut keys: Vec<_> = (0..count as u64).map(key).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

struct Built {
    spec: FilterSpec,
    shard: u16,
    parts: [Vec<u8>; 3],
    counts: ShardCounts,
}

impl Built {
    fn new(millibits: u32, shard: u16, keys: &[DeviceKey]) -> Self {
        let spec = FilterSpec::new(FilterKind::Ribbon, 2, millibits).unwrap();
        let mut parts = [const { Vec::new() }; 3];
        let mut builder = RibbonBuilder::default();
        let members = keys.iter().map(|key| (*key, 0));
        let counts = builder.build(&spec, shard, members, parts.each_mut());
        let found = parts.each_ref().map(|part| part.len() as u64);
        let PartBytes {
            first,
            second,
            list,
        } = spec.part_bytes(shard, counts);
        assert_eq!(found, [first, second, list], "sizes follow from the counts");
        assert!(counts.diverted <= counts.max_diverted() && counts.listed <= counts.keys);
        Self {
            spec,
            shard,
            parts,
            counts,
        }
    }

    fn filter(&self) -> ShardFilter<'_> {
        let [first, second, list] = &self.parts;
        ShardFilter {
            first,
            second,
            list,
        }
    }

    fn contains(&self, key: &DeviceKey) -> bool {
        self.spec.contains(self.filter(), key)
    }

    fn bytes(&self) -> usize {
        self.filter().len()
    }

    fn positives(&self, probes: usize) -> usize {
        keys(self.shard, 77, probes)
            .iter()
            .filter(|key| self.contains(key))
            .count()
    }
}

const MILLIBITS: [u32; 7] = [12_000, 12_500, 13_000, 13_367, 14_000, 15_500, 16_000];

#[test]
fn every_size_keeps_its_members() {
    for millibits in MILLIBITS {
        for count in [
            0, 1, 2, 31, 32, 33, 34, 40, 63, 100, 333, 1000, 2999, 3000, 3001, 9000,
        ] {
            for shard in [0, 1, 0x8000, 0xffff] {
                let keys = keys(shard, u64::from(millibits), count);
                let built = Built::new(millibits, shard, &keys);
                for key in &keys {
                    assert!(built.contains(key), "{millibits} {count}");
                }
                assert!(
                    built.bytes() as u64 <= built.spec.filter_bytes(count as u32),
                    "{count}"
                );
            }
        }
    }
}

#[test]
fn empty_filter_contains_nothing() {
    let built = Built::new(13_000, 5, &[]);
    assert!(built.filter().is_empty());
    assert_eq!(built.positives(10_000), 0);
    assert_eq!(built.spec.expected_fpr(5, built.filter()), 0.0);
}

/// Keys that agree in bytes 2 to 9 all start in the same line.
#[test]
fn keys_that_share_eight_bytes_are_kept() {
    for count in [2, 31, 33, 100, 2999, 3100, 20_000] {
        let mut keys = keys(9, 1, count);
        for key in &mut keys {
            let mut bytes = *key.as_bytes();
            bytes[2..10].fill(0xa5);
            *key = DeviceKey::from_bytes(bytes);
        }
        keys.sort_unstable();
        let built = Built::new(13_000, 9, &keys);
        assert!(keys.iter().all(|key| built.contains(key)), "{count}");
    }
}

#[test]
fn keys_that_share_all_but_two_bytes_are_kept() {
    for range in [2..4, 8..10, 10..12, 14..16] {
        let keys: Vec<_> = (0..5000_u16)
            .map(|number| {
                let mut bytes = [0x5a; 16];
                bytes[range.clone()].copy_from_slice(&number.to_be_bytes());
                DeviceKey::from_bytes(bytes)
            })
            .collect();
        let built = Built::new(14_000, 0x5a5a, &keys);
        assert!(keys.iter().all(|key| built.contains(key)), "{range:?}");
    }
}

#[test]
fn large_shards_meet_size_and_rate() {
    // A shard of 1.5 billion keys. Twenty shards, two million non-members: a standard deviation of
    // the rate is 4.5 to 9 %. The bounds on bits are those of the design.
    for (millibits, most_bits) in [(12_000, 12.5), (13_000, 13.45), (14_000, 14.55)] {
        let (mut bytes, mut positives, mut expected) = (0, 0, 0.0);
        for shard in 0..20 {
            let keys = keys(shard, u64::from(shard) + 100, 22_888);
            let built = Built::new(millibits, shard, &keys);
            bytes += built.bytes();
            positives += built.positives(100_000);
            expected += built.spec.expected_fpr(shard, built.filter()) / 20.0;
        }
        let bits = bytes as f64 * 8.0 / (20.0 * 22_888.0);
        assert!(bits <= most_bits, "{millibits}: {bits} bits per key");
        let nominal = 2_f64.powi(-(millibits as i32 / 1000));
        assert!(
            expected > nominal && expected < 1.03 * nominal,
            "{millibits}: {expected:e}"
        );
        let measured = positives as f64 / 2e6;
        let sigma = (expected / 2e6).sqrt();
        assert!(
            (measured - expected).abs() < 4.5 * sigma,
            "{millibits}: {measured:e}"
        );
    }
}

/// A shard of ten billion keys, and one that holds all keys of an audience.
#[test]
fn largest_shards_are_built() {
    for (count, masked) in [(152_588, 0), (300_000, 0), (40_000, 8)] {
        let mut keys = keys(3, 8, count);
        for key in &mut keys {
            let mut bytes = *key.as_bytes();
            bytes[2..2 + masked].fill(7);
            *key = DeviceKey::from_bytes(bytes);
        }
        keys.sort_unstable();
        let built = Built::new(13_000, 3, &keys);
        assert!(keys.iter().all(|key| built.contains(key)), "{count}");
        let bits = built.bytes() as f64 * 8.0 / count as f64;
        assert!(bits < 13.5 || masked > 0, "{count}: {bits}");
    }
}

#[test]
fn nominal_rate_is_not_below_the_expected_one() {
    for bits in BITS {
        for count in [3000, 10_000, 22_888, 60_000] {
            let shard = 0x1234;
            let built = Built::new(1000 * bits, shard, &keys(shard, 5, count));
            let expected = built.spec.expected_fpr(shard, built.filter());
            // Shards of 3,000 keys vary.
            let slack = if count == 3000 { 1.03 } else { 1.005 };
            assert!(
                expected
                    <= slack
                        * nominal_fpr(RowBits {
                            fingerprint: bits,
                            value: 0
                        }),
                "{bits} {count}: {expected:e}"
            );
        }
    }
}

#[test]
fn requested_rate_chooses_bits() {
    let millibits = |fpr| {
        FilterSpec::for_fpr(FilterKind::Ribbon, fpr)
            .unwrap()
            .millibits_per_key()
    };
    assert_eq!(millibits(0.1), 12_000);
    assert_eq!(millibits(2.5e-4), 12_000);
    assert!(
        (13_360..13_380).contains(&millibits(1e-4)),
        "{}",
        millibits(1e-4)
    );
    assert!(
        (15_950..=16_000).contains(&millibits(1.6e-5)),
        "{}",
        millibits(1.6e-5)
    );
    assert!(FilterSpec::for_fpr(FilterKind::Ribbon, 1.5e-5).is_err());
    for (hashes, millibits) in [(1, 13_000), (3, 13_000), (2, 11_999), (2, 16_001)] {
        assert!(FilterSpec::new(FilterKind::Ribbon, hashes, millibits).is_err());
    }
}

#[test]
fn longer_shards_have_their_share_and_are_spread() {
    for millibits in [12_001, 13_367, 14_500, 15_999] {
        let spec = FilterSpec::new(FilterKind::Ribbon, 2, millibits).unwrap();
        let longer = |shard: &u16| spec.fingerprint_bits(*shard) > millibits / 1000;
        let share = |shards: std::ops::RangeInclusive<u16>| {
            let all = f64::from(*shards.end()) - f64::from(*shards.start()) + 1.0;
            shards.filter(longer).count() as f64 / all
        };
        let expected = f64::from(millibits % 1000) / 1000.0;
        assert!((share(0..=u16::MAX) - expected).abs() < 2e-5, "{millibits}");
        for chunk in 0..256_u16 {
            let found = share(chunk * 256..=chunk * 256 + 255);
            assert!(
                (found - expected).abs() < 0.02,
                "{millibits} {chunk}: {found}"
            );
        }
    }
}

proptest! {
    #[test]
    fn parities_are_those_of_the_words(words in any::<[u64; 8]>()) {
        let parity = |word: &u64| u64::from(word.count_ones() & 1);
        let expected = words.iter().fold(0, |sum, word| sum << 1 | parity(word));
        prop_assert_eq!(parities(words), expected);
    }

    /// Any bytes in any part: no panic, no read out of bounds, and an answer.
    #[test]
    fn arbitrary_bytes_are_looked_up(
        first in proptest::collection::vec(any::<u8>(), 0..400),
        second in proptest::collection::vec(any::<u8>(), 0..400),
        list in proptest::collection::vec(any::<u8>(), 0..50),
        millibits in 12_000..=16_000_u32,
        key in any::<[u8; 16]>(),
    ) {
        let spec = FilterSpec::new(FilterKind::Ribbon, 2, millibits).unwrap();
        let key = DeviceKey::from_bytes(key);
        let filter = ShardFilter { first: &first, second: &second, list: &list };
        spec.contains(filter, &key);
        prop_assert!((0.0..=1.0).contains(&spec.expected_fpr(key.shard(), filter)));
    }

    #[test]
    fn random_sizes_keep_their_members(
        count in 0..4000_usize,
        seed in 0..1_000_000_u64,
        shard in any::<u16>(),
        millibits in 12_000..=16_000_u32,
        // Fewer distinct values of the hash: dependent rows, equal rows, crowded lines.
        mask in prop_oneof![Just(0xff_u8), Just(0x03), any::<u8>()],
        masked in 2..16_usize,
    ) {
        let mut keys = keys(shard, seed, count);
        for key in &mut keys {
            let mut bytes = *key.as_bytes();
            bytes[2..masked].iter_mut().for_each(|byte| *byte &= mask);
            *key = DeviceKey::from_bytes(bytes);
        }
        keys.sort_unstable();
        keys.dedup();
        let built = Built::new(millibits, shard, &keys);
        prop_assert_eq!(built.counts.keys as usize, keys.len());
        for key in &keys {
            prop_assert!(built.contains(key));
        }
    }
}
