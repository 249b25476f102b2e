use rtad_core::device::DeviceKey;
use rtad_core::snapshot::{BuiltChunk, GenerationFacts, ManifestBuilder, chunk_runs};

use super::*;

fn built(filter: FilterSpec, keys: &[DeviceKey]) -> Manifest {
    let mut builder = ManifestBuilder::new(filter, 0.0001);
    chunk_runs(keys, 4096).for_each(|run| builder.add(&BuiltChunk::build(&filter, run)));
    builder
        .finish("a".parse().unwrap(), GenerationFacts::default())
        .unwrap()
}

fn keys(count: u32, narrow: u16) -> Vec<DeviceKey> {
    let key = |n: u32| {
        let mut key = *DeviceKey::of_canonical(&n.to_le_bytes()).as_bytes();
        key[0] = 0;
        key[1] &= narrow as u8;
        DeviceKey::from_bytes(key)
    };
    let mut keys: Vec<_> = (0..count).map(key).collect();
    keys.sort_unstable();
    keys
}

fn gate(filter: &FilterSpec, fpr: f64) -> Gate {
    let max_fill = largest_fill(filter);
    Gate {
        max_shrink: 0.5,
        max_growth: Some(1.0),
        max_fpr: 2.0 * fpr,
        max_fill: Some(max_fill),
        ..Gate::without_limits()
    }
}

/// The shards have one key to thousands, with the worst rounding and chance.
#[test]
fn sound_filters_pass_at_any_size_and_rate() {
    for fpr in [0.1, 0.01, 0.001, 0.0001, 0.000_001, 0.000_000_1] {
        let filter = FilterSpec::for_fpr(FilterKind::Block512, fpr).unwrap();
        let gate = gate(&filter, fpr);
        for (count, narrow) in [
            (1, 255),
            (100, 255),
            (3000, 255),
            (20_000, 255),
            (20_000, 15),
            (20_000, 0),
        ] {
            let manifest = built(filter, &keys(count, narrow));
            let checked = gate.check(&manifest, &FilterCheck::default());
            let fill = manifest.fill_ratio().unwrap().max;
            assert!(
                checked.is_ok(),
                "{fpr} {count} {narrow}: {fill} of {:?}, {checked:?}",
                gate.max_fill
            );
        }
    }
}

#[test]
fn exceeded_limits_are_rejected_with_a_sufficient_override() {
    let filter = FilterSpec::for_fpr(FilterKind::Block512, 0.0001).unwrap();
    let manifest = built(filter, &keys(5000, 255));
    let gate = gate(&filter, 0.0001);
    let max_fill = gate.max_fill.unwrap();
    assert!((0.4..0.5).contains(&max_fill), "{max_fill}");
    let max_fill = Some(manifest.fill_ratio().unwrap().max - 0.001);
    let fill = Gate { max_fill, ..gate };
    let check = FilterCheck::default();
    assert!(matches!(
        fill.check(&manifest, &check),
        Err(GateError::Fill { .. })
    ));
    let fpr = Gate {
        max_fpr: manifest.expected_fpr() / 2.0,
        ..gate
    };
    assert!(matches!(
        fpr.check(&manifest, &check),
        Err(GateError::Fpr { .. })
    ));

    let limits = Gate {
        max_fpr: 1.0,
        ..gate
    };
    let missing = FilterCheck {
        members_checked: 900,
        members_missing: 1,
        ..check
    };
    let refused = limits.check(&manifest, &missing).unwrap_err().to_string();
    assert!(
        refused.contains("1 of 900 members are missing"),
        "{refused}"
    );
    // 256 shards of 65,536 have keys and 64 probes each.
    let probes = 256 * FilterCheck::PROBES_PER_SHARD;
    let measured = |false_positives| FilterCheck {
        probes,
        false_positives,
        ..check
    };
    limits.check(&manifest, &measured(99)).unwrap();
    let refused = limits
        .check(&manifest, &measured(200))
        .unwrap_err()
        .to_string();
    assert!(refused.contains("among 16384 random keys"), "{refused}");

    let over = |live, max_shrink| Gate {
        live_generation: Some(7),
        live_keys: Some(live),
        max_shrink,
        ..gate
    };
    for (added, keys, passes) in [
        (0, 10_000, true),
        (0, 10_001, false),
        (5000, 20_000, true),
        (5000, 20_001, false),
    ] {
        let gate = Gate {
            live_added: added,
            ..over(5000, 0.5)
        };
        match gate.check_keys(keys) {
            Ok(()) => assert!(passes, "{added} {keys}"),
            Err(GateError::Grown { needed, .. }) => {
                let max_growth = Some(needed);
                assert!(!passes && Gate { max_growth, ..gate }.check_keys(keys).is_ok());
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    over(TRIAL_KEYS, 0.5).check_keys(1_000_000).unwrap();
    Gate {
        max_growth: None,
        ..over(5000, 0.5)
    }
    .check_keys(u64::MAX)
    .unwrap();
    for (live, max_shrink, keys, passes) in [
        (1000, 0.5, 500, true),
        (1000, 0.5, 499, false),
        (1001, 0.5, 501, true),
        (1001, 0.5, 500, false),
        (1000, 0.0, 1000, true),
        (1000, 0.0, 999, false),
        (1000, 1.0, 0, true),
        (0, 0.5, 0, true),
        (3, 0.5, 1, false),
        (3_000_000_000, 0.5, 1_500_000_000, true),
        (3_000_000_000, 0.5, 1_499_999_999, false),
    ] {
        let gate = over(live, max_shrink);
        match gate.check_keys(keys) {
            Ok(()) => assert!(passes, "{live} {max_shrink} {keys}"),
            Err(GateError::Shrunk { needed, .. }) => {
                assert!(!passes, "{live} {max_shrink} {keys}");
                assert!(
                    Gate {
                        max_shrink: needed,
                        ..gate
                    }
                    .check_keys(keys)
                    .is_ok(),
                    "{needed}"
                );
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}
