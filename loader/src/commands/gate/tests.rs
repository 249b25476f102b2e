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
        max_fpr: 2.0 * fpr,
        max_fill: Some(max_fill),
        ..Gate::without_live()
    }
}

/// A gate over generations of so many keys, the oldest first.
fn gate_over(generations: &[u64], max_change: f64) -> Gate {
    let mut recent_keys = generations.to_vec();
    let live_keys = recent_keys.pop();
    recent_keys.reverse();
    let mut gate = Gate {
        live_generation: Some(7),
        live_keys,
        recent_keys,
        max_change: Some(max_change),
        ..Gate::without_live()
    };
    gate.set_limits();
    gate
}

fn with_change(gate: &Gate, change: MaxChange) -> Gate {
    let mut gate = gate.clone();
    match change {
        MaxChange::Any => return Gate::without_live(),
        MaxChange::Share(share) => gate.max_change = Some(share),
    }
    gate.set_limits();
    gate
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
            let checked = gate.check_filters(&manifest, &FilterCheck::default());
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
fn filters_beyond_a_limit_are_rejected() {
    let filter = FilterSpec::for_fpr(FilterKind::Block512, 0.0001).unwrap();
    let manifest = built(filter, &keys(5000, 255));
    let gate = gate(&filter, 0.0001);
    let max_fill = gate.max_fill.unwrap();
    assert!((0.4..0.5).contains(&max_fill), "{max_fill}");
    let max_fill = Some(manifest.fill_ratio().unwrap().max - 0.001);
    let fill = Gate {
        max_fill,
        ..gate.clone()
    };
    let check = FilterCheck::default();
    assert!(matches!(
        fill.check_filters(&manifest, &check),
        Err(GateError::Fill { .. })
    ));
    let fpr = Gate {
        max_fpr: manifest.expected_fpr() / 2.0,
        ..gate.clone()
    };
    assert!(matches!(
        fpr.check_filters(&manifest, &check),
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
    let refused = limits
        .check_filters(&manifest, &missing)
        .unwrap_err()
        .to_string();
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
    limits.check_filters(&manifest, &measured(99)).unwrap();
    let refused = limits
        .check_filters(&manifest, &measured(200))
        .unwrap_err()
        .to_string();
    assert!(refused.contains("among 16384 random keys"), "{refused}");
}

#[test]
fn too_few_keys_are_rejected_with_a_sufficient_change() {
    for (generations, max_change, keys, passes) in [
        (&[1000][..], 0.2, 900, true),
        (&[1000], 0.2, 899, false),
        (&[1001], 0.2, 901, true),
        (&[1001], 0.2, 900, false),
        (&[1000], 0.0, 1000, true),
        (&[1000], 0.0, 999, false),
        (&[1000], 1.0, 500, true),
        (&[1000], 1.0, 499, false),
        (&[0], 0.2, 0, true),
        (&[3], 0.2, 2, false),
        (&[3_000_000_000], 0.2, 2_700_000_000, true),
        (&[3_000_000_000], 0.2, 2_699_999_999, false),
        // The largest counts, wherever it is.
        (&[100, 1000, 950, 900, 940, 930, 920], 0.2, 900, true),
        (&[100, 1000, 950, 900, 940, 930, 920], 0.2, 899, false),
        // A smaller one was accepted by a flag. A change that is larger than it counts those
        // before it, too.
        (&[1000, 850], 0.2, 765, true),
        (&[1000, 850], 0.2, 764, false),
        (&[1000, 850], 0.4, 799, false),
        (&[1000, 850, 640], 0.2, 576, true),
        (&[1000, 100, 1000], 0.2, 899, false),
    ] {
        let gate = gate_over(generations, max_change);
        match gate.check_change(keys, None) {
            Ok(()) => assert!(passes, "{generations:?} {max_change} {keys}"),
            Err(GateError::Shrunk { needed, .. }) => {
                assert!(!passes, "{generations:?} {max_change} {keys}");
                with_change(&gate, needed).check_change(keys, None).unwrap();
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}

/// One flag accepts what several limits refuse.
#[test]
fn suggested_change_accepts_keys_and_overlap() {
    let gate = gate_over(&[1000, 850], 0.2);
    for keys in (0..850).step_by(7) {
        for kept in [0, 100, 400, keys] {
            let overlap = Some(Overlap::of(850, kept.min(keys)));
            let needed = match gate.check_change(keys, overlap) {
                Ok(()) => continue,
                Err(GateError::Shrunk { needed, .. } | GateError::Overlap { needed, .. }) => needed,
                Err(other) => panic!("{other:?}"),
            };
            let accepting = with_change(&gate, needed);
            accepting.check_change(keys, overlap).unwrap();
        }
    }
}

#[test]
fn growth_beyond_five_times_is_rejected_but_after_a_trial() {
    for (live, added, keys, passes) in [
        (5000, 0, 25_000, true),
        (5000, 0, 25_001, false),
        (5000, 5000, 50_000, true),
        (5000, 5000, 50_001, false),
        (TRIAL_KEYS, 0, 1_000_000, true),
        (TRIAL_KEYS, 1, 1_000_000, false),
        (0, 0, 1_000_000, true),
    ] {
        let mut gate = gate_over(&[live], 0.2);
        gate.live_added = added;
        gate.set_limits();
        match gate.check_change(keys, None) {
            Ok(()) => assert!(passes, "{live} {added} {keys}"),
            Err(GateError::Grown { .. }) => assert!(!passes, "{live} {added} {keys}"),
            Err(other) => panic!("{other:?}"),
        }
    }
    Gate::without_live().check_change(u64::MAX, None).unwrap();
}

#[test]
fn manifest_has_the_keys_of_six_generations_before_it() {
    assert!(Gate::without_live().recent_keys().is_empty());
    assert_eq!(gate_over(&[1, 2], 0.2).recent_keys(), [2, 1]);
    assert_eq!(
        gate_over(&[1, 2, 3, 4, 5, 6, 7], 0.2).recent_keys(),
        [7, 6, 5, 4, 3, 2]
    );
}
