//! Tests of sketches: the registers of the library, errors, threads, and ends of days.

use datasketches::hash::value::raw_bytes;
use rtad_core::device::DeviceKey;

use super::*;
use crate::telemetry::count_as_worker;

fn key(number: u32) -> DeviceKey {
    DeviceKey::of_canonical(&number.to_le_bytes())
}

/// A sketch of these devices.
fn sketch(numbers: std::ops::Range<u32>) -> ReachSketch {
    let sketch = ReachSketch::new();
    numbers.for_each(|number| sketch.count(&ReachedDevice::new(Some(&key(number)))));
    sketch
}

fn read(sketch: &ReachSketch) -> HllSketch {
    sketch.merged(|register| register.load(Relaxed)).unwrap()
}

#[test]
fn registers_are_those_of_the_library() {
    let mut expected = HllSketch::new(LG_REGISTERS, HllType::Hll8).unwrap();
    for number in 0..100_000 {
        expected.update(raw_bytes::from_slice(key(number).as_bytes()));
    }
    let found = read(&sketch(0..100_000)).serialize();
    let expected = expected.serialize();
    assert!(found[PREAMBLE_BYTES..] == expected[PREAMBLE_BYTES..]);
    assert_eq!(found[..5], expected[..5]);
    // The flag and the history of a union differ; the sums and the number of zeros do not.
    assert_eq!(found[16..PREAMBLE_BYTES], expected[16..PREAMBLE_BYTES]);
}

#[test]
fn error_is_below_two_percent() {
    for count in [1, 10, 1_000, 50_000, 1_000_000] {
        let found = devices(&read(&sketch(0..count)));
        assert!(
            u64::from(count).abs_diff(found) <= u64::from(count) / 50,
            "{found} of {count}"
        );
    }
}

#[test]
fn sketches_of_eight_pods_add_up() {
    // Each pod sees a third of the devices of its neighbor.
    let mut union = HllUnion::new(LG_REGISTERS).unwrap();
    for pod in 0..8 {
        let bytes = read(&sketch(pod * 100_000..pod * 100_000 + 150_000)).serialize();
        union.update(&HllSketch::deserialize(&bytes).unwrap());
    }
    let found = devices(&union.to_sketch(HllType::Hll8));
    assert!(850_000_u64.abs_diff(found) <= 850_000 / 50, "{found}");
}

#[test]
fn workers_and_other_threads_count_into_one_sketch() {
    let sketch = ReachSketch::new();
    std::thread::scope(|scope| {
        for (number, worker) in [Some(0), Some(1), None, None].into_iter().enumerate() {
            let sketch = &sketch;
            scope.spawn(move || {
                worker.into_iter().for_each(count_as_worker);
                for device in 0..20_000 {
                    sketch.count(&ReachedDevice::new(Some(&key(
                        number as u32 * 10_000 + device
                    ))));
                }
            });
        }
    });
    assert_eq!(
        read(&sketch).serialize(),
        read(&super::tests::sketch(0..50_000)).serialize()
    );
}

#[test]
fn day_ends_with_its_devices_and_drops_unused_sketches() {
    let reach = Reach::default();
    let kept = reach.sketch(ReachLabels::of("kept"));
    for strategy in ["kept", "gone"] {
        // A reload gets the same sketch.
        let again = reach.sketch(ReachLabels::of(strategy));
        again.count(&ReachedDevice::new(Some(&key(1))));
        again.count(&ReachedDevice::new(None));
    }
    let names = |sketches: Vec<(ReachLabels, HllSketch)>| {
        let of = |(labels, sketch): (ReachLabels, _)| (labels.strategy, devices(&sketch));
        sketches.into_iter().map(of).collect::<Vec<_>>()
    };
    let both = [("gone".to_owned(), 1), ("kept".to_owned(), 1)];
    assert_eq!(names(reach.sketches()), both);
    assert_eq!(names(reach.take()), both);
    assert_eq!(reach.counts(), [(ReachLabels::of("kept"), 0)]);
    kept.count(&ReachedDevice::new(Some(&key(2))));
    reach.restore(ReachLabels::of("kept"), &read(&sketch(1..10)));
    assert_eq!(names(reach.take()), [("kept".to_owned(), 9)]);
}

#[test]
fn unused_sketches_keep_their_devices_in_one_slot() {
    let reach = Reach::default();
    let labels = || ReachLabels::of("s");
    let used = reach.sketch(labels());
    std::thread::scope(|scope| {
        for (number, worker) in [Some(0), Some(1), None].into_iter().enumerate() {
            let used = &used;
            scope.spawn(move || {
                worker.into_iter().for_each(count_as_worker);
                for device in 0..2_000 {
                    used.count(&ReachedDevice::new(Some(&key(
                        number as u32 * 1_000 + device
                    ))));
                }
            });
        }
    });
    let allocated = |sketch: &ReachSketch| sketch.0.iter().filter_map(OnceLock::get).count();
    let before = reach.counts();
    assert!(allocated(&used) > 1);
    drop(used);
    assert_eq!(reach.counts(), before);
    // A later catalog goes on with it.
    assert_eq!(allocated(&reach.sketch(labels())), 1);
    assert_eq!(reach.counts(), before);
}

#[test]
fn sketches_of_many_replaced_catalogs_are_bounded() {
    let reach = Reach::default();
    let catalog = |name: &str| -> Vec<_> {
        let labels = |number| ReachLabels::of(&format!("{name}-{number:03}"));
        (0..MAX_SKETCHES)
            .map(|number| reach.sketch(labels(number)))
            .collect()
    };
    let mut served = catalog("a");
    for name in ["b", "c", "d"] {
        served[0].count(&ReachedDevice::new(Some(&key(1))));
        served = catalog(name);
        assert_eq!(reach.counts().len(), MOST);
    }
    // The catalog before the served one is the last whose devices are kept.
    let names: Vec<_> = reach
        .sketches()
        .into_iter()
        .map(|(labels, _)| labels.strategy)
        .collect();
    assert_eq!(names, ["c-000"]);
    reach.take();
    assert_eq!(reach.counts().len(), served.len());
}
