//! Filter sizes, frozen probe positions, and measured false-positive rates.

use super::*;
use proptest::prelude::*;

/// Uniform 16-byte keys, as md5 makes them, from a counter (SplitMix64).
fn key(index: u64) -> DeviceKey {
    let mix = |mut z: u64| {
        z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&mix(index).to_le_bytes());
    bytes[8..].copy_from_slice(&mix(index ^ 0x5851_f42d_4c95_7f2d).to_le_bytes());
    DeviceKey::from_bytes(bytes)
}

fn filter_of(spec: &FilterSpec, keys: std::ops::Range<u64>) -> Vec<u8> {
    let count = u32::try_from(keys.end - keys.start).unwrap();
    let mut filter = vec![0; usize::try_from(spec.filter_bytes(count)).unwrap()];
    for index in keys {
        spec.insert(&mut filter, &key(index));
    }
    filter
}

#[test]
fn parameters_out_of_range_are_rejected() {
    for fpr in [0.0, -1.0, 0.2, 1.0, 1e-8, f64::NAN, f64::INFINITY] {
        assert!(matches!(
            FilterSpec::for_fpr(FilterKind::Block512, fpr),
            Err(SizingError::FprOutOfRange { .. })
        ));
    }
    assert!(matches!(
        FilterSpec::new(FilterKind::Block512, 11, 20_000),
        Err(SizingError::HashesOutOfRange { .. })
    ));
    assert!(matches!(
        FilterSpec::new(FilterKind::Block512, 0, 20_000),
        Err(SizingError::HashesOutOfRange { .. })
    ));
    assert!(matches!(
        FilterSpec::new(FilterKind::Block512, 3, 999),
        Err(SizingError::BitsOutOfRange { .. })
    ));
}

#[test]
fn filter_sizes_are_whole_blocks() {
    let block = FilterSpec::new(FilterKind::Block512, 9, 24_000).unwrap();
    assert_eq!(block.filter_bytes(0), 0);
    assert_eq!(block.filter_bytes(1), 64);
    assert_eq!(
        block.filter_bytes(22),
        128,
        "1.03 blocks round up below eight blocks"
    );
    assert_eq!(
        block.filter_bytes(180),
        8 * 64,
        "8.44 blocks round to the nearest"
    );
    assert_eq!(
        block.filter_bytes(184),
        9 * 64,
        "8.63 blocks round to the nearest"
    );
}

#[test]
fn probe_positions_are_frozen() {
    // Computed by hand from the specification; h1 is bytes 2..10, h2 is bytes 8..16.
    let key = DeviceKey::from_bytes([
        0xff, 0xff, 0x05, 0, 0, 0, 0, 0, 0x00, 0x01, 0x45, 0x23, 0x01, 0xef, 0xcd, 0xab,
    ]);
    assert_eq!(hashes(&key), (0x0100_0000_0000_0005, 0xabcd_ef01_2345_0100));
    let block = FilterSpec::new(FilterKind::Block512, 10, 19_000).unwrap();
    let bits: Vec<usize> = block_probes(&block, &key)
        .map(|(byte, mask)| byte * 8 + mask.trailing_zeros() as usize)
        .collect();
    let expected: Vec<usize> = (0..10u32)
        .map(|i| {
            let word: u64 = if i < 5 {
                0xabcd_ef01_2345_0100 >> (16 + 9 * i)
            } else {
                0x0100_0000_0000_0005 >> (9 * (i - 5))
            };
            (word % 512) as usize
        })
        .collect();
    assert_eq!(bits, expected);
}

#[test]
fn measured_fpr_matches_the_formula() {
    // 22,888 keys is a shard of 1.5 billion. With 20 shards and two million non-members, one
    // standard deviation of the measured rate is under 3 % at 1e-3: 12 % is four of them.
    let spec = FilterSpec::for_fpr(FilterKind::Block512, 1e-3).unwrap();
    let (mut positives, mut expected) = (0_u32, 0.0);
    for shard in 0..20_u64 {
        let first = shard * 1_000_000;
        let filter = filter_of(&spec, first..first + 22_888);
        expected += spec.expected_fpr(0, &filter[..]) / 20.0;
        positives += (first + 500_000..first + 600_000)
            .filter(|i| spec.contains(&filter[..], &key(*i)))
            .count() as u32;
    }
    let measured = f64::from(positives) / 2e6;
    assert!((measured / 1e-3 - 1.0).abs() < 0.12, "measured {measured}");
    assert!(
        (expected / 1e-3 - 1.0).abs() < 0.05,
        "expected from fill {expected}"
    );
}

#[test]
fn empty_filter_contains_nothing() {
    let spec = FilterSpec::for_fpr(FilterKind::Block512, 1e-3).unwrap();
    assert!(!spec.contains(ShardFilter::default(), &key(1)));
    assert_eq!(spec.expected_fpr(0, ShardFilter::default()), 0.0);
    assert_eq!(spec.probe_target(&[], &key(1)).touch(), 0);
    assert_eq!(
        fill_ratio(&[0xff, 0x0f, 0, 0, 0, 0, 0, 0, 0xff]),
        20.0 / 72.0
    );
}

proptest! {
    #[test]
    fn no_false_negatives(
        first in any::<u64>(),
        count in 1..3000_u64,
        exponent in 1.0..6.0_f64,
    ) {
        let spec = FilterSpec::for_fpr(FilterKind::Block512, 10_f64.powf(-exponent)).unwrap();
        let keys = first.saturating_sub(count)..first.saturating_sub(count) + count;
        let filter = filter_of(&spec, keys.clone());
        for index in keys {
            prop_assert!(spec.contains(&filter[..], &key(index)));
        }
    }
}
