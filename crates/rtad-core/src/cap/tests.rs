//! Tests of the cap's table: exactness alone and under threads, against a set, and its export.

use std::collections::HashSet;
use std::sync::Barrier;

use proptest::prelude::*;

use super::*;

/// Device `n`, as uniform as an md5.
fn device(n: u64) -> DeviceKey {
    let mut bytes = [0; 16];
    let half = |n| fold(n ^ 0x5851_f42d_4c95_7f2d, 0xbf58_476d_1ce4_e5b9);
    bytes[..8].copy_from_slice(&half(n + 1).to_le_bytes());
    bytes[8..].copy_from_slice(&half(n ^ 1 << 60).to_le_bytes());
    DeviceKey::from_bytes(bytes)
}

/// A table with a fixed seed: with a random one, rare runs take a new device for a counted one.
fn table(limit: u64) -> CapTable {
    CapTable::new(limit, CapSeed::from_words([7, 11]))
}

#[test]
fn limit_is_reached_exactly_and_counted_devices_still_pass() {
    let cap = table(3);
    assert_eq!(cap.look_up(&device(1)), Counted::Now);
    for n in 0..3 {
        assert_eq!(cap.seek(&device(n)).count(), Counted::Now);
        assert_eq!(cap.seek(&device(n)).count(), Counted::Before);
    }
    assert!(cap.is_full());
    assert_eq!(cap.seek(&device(3)).count(), Counted::Full);
    assert_eq!(cap.look_up(&device(3)), Counted::Full);
    assert_eq!(cap.seek(&device(2)).count(), Counted::Before);
    assert_eq!(cap.look_up(&device(2)), Counted::Before);
    assert_eq!(cap.count(), 3);
}

#[test]
fn every_limit_has_room_for_its_devices() {
    for limit in (1..600).chain([1_000, 4_096, 10_007, 300_000]) {
        let cap = table(limit);
        let counted = (0..limit + 100).filter(|n| cap.seek(&device(*n)).count() == Counted::Now);
        assert_eq!(counted.count() as u64, limit);
        assert!(
            (0..limit).all(|n| cap.look_up(&device(n)) == Counted::Before),
            "{limit}"
        );
    }
}

#[test]
fn limit_changes_within_the_room_of_the_table() {
    let cap = table(1_000);
    let admitted = |first: u64| {
        (first..first + 5_000)
            .filter(|n| cap.seek(&device(*n)).count() == Counted::Now)
            .count()
    };
    assert_eq!(admitted(0), 1_000);
    assert!(cap.set_limit(1_250));
    assert_eq!(admitted(10_000), 250);
    assert!(cap.set_limit(10));
    assert_eq!(admitted(20_000), 0);
    assert_eq!(cap.seek(&device(0)).count(), Counted::Before);
    assert!(!cap.set_limit(2_000));
    assert_eq!((cap.limit(), cap.count()), (10, 1_250));
}

#[test]
fn carried_devices_take_part_of_the_limit() {
    let cap = table(10).with_carried(8);
    let admitted = (0..20).filter(|n| cap.seek(&device(*n)).count() == Counted::Now);
    assert_eq!((admitted.count(), cap.count()), (2, 10));
    let mut restored = CapTable::new(10, cap.seed()).with_carried(8);
    restored.import(cap.export());
    assert_eq!((restored.count(), restored.is_full()), (10, true));
}

#[test]
fn a_million_devices_take_six_bytes_each() {
    assert_eq!(CapTable::bytes_for(1_000_000), 6_000_256);
    assert_eq!(
        table(1_000_000).buckets() as u64 * 64,
        CapTable::bytes_for(1_000_000)
    );
    assert_eq!(size_of::<Bucket>(), BUCKET_BYTES);
}

/// 16 threads ask for 10 million devices, each device in two threads.
#[test]
fn threads_count_exactly_the_limit() {
    const THREADS: u64 = 16;
    const LIMIT: u64 = 100_000;
    const DEVICES: u64 = 10_000_000;
    let cap = table(LIMIT);
    let start = Barrier::new(THREADS as usize);
    let (mut bids, mut counted) = (HashSet::new(), 0);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS / 2)
            .flat_map(|part| [part, part])
            .map(|part| {
                let (cap, start) = (&cap, &start);
                scope.spawn(move || {
                    start.wait();
                    let (mut bids, mut counted) = (Vec::new(), 0);
                    for n in (part..DEVICES).step_by(THREADS as usize / 2) {
                        match cap.seek(&device(n)).count() {
                            Counted::Now => (counted += 1, bids.push(n)).1,
                            Counted::Before => bids.push(n),
                            Counted::Full => {}
                        }
                        assert!(cap.count() <= LIMIT);
                    }
                    (bids, counted)
                })
            })
            .collect();
        for thread in threads {
            let (of_thread, count): (_, u64) = thread.join().unwrap();
            bids.extend(of_thread);
            counted += count;
        }
    });
    assert_eq!((cap.count(), counted), (LIMIT, LIMIT));
    let beyond = bids.len() as u64 - LIMIT;
    assert!(
        beyond <= LIMIT * 3 / 1000,
        "{beyond} devices beyond the cap"
    );
    let present = bids
        .iter()
        .filter(|n| cap.look_up(&device(**n)) == Counted::Before);
    assert_eq!(present.count(), bids.len());
}

/// All threads ask for the same devices at the same time.
#[test]
fn a_device_of_many_threads_is_counted_once() {
    let cap = table(1_000);
    let start = Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                start.wait();
                for n in 0..900 {
                    assert_ne!(cap.seek(&device(n)).count(), Counted::Full);
                }
            });
        }
    });
    assert_eq!(cap.count(), 900);
    let slots = cap
        .export()
        .flat_map(|bucket| bucket.as_chunks().0.to_vec());
    assert_eq!(slots.filter(|slot: &[u8; 4]| *slot != [0; 4]).count(), 900);
}

#[test]
fn false_answers_are_rarer_than_one_in_ten_million() {
    let cap = CapTable::new(100_000, CapSeed::from_words([7, 11]));
    (0..100_000).for_each(|n| assert_ne!(cap.seek(&device(n)).count(), Counted::Full));
    let beyond = 1_000_000..11_000_000;
    let passed = beyond
        .filter(|n| cap.seek(&device(*n)).count() != Counted::Full)
        .count();
    assert!(passed <= 1, "{passed} of 10 million further devices passed");
}

#[test]
fn export_under_threads_keeps_every_device_that_was_counted_before() {
    let cap = table(200_000);
    (0..50_000).for_each(|n| assert_ne!(cap.seek(&device(n)).count(), Counted::Full));
    let exports: Vec<Vec<_>> = std::thread::scope(|scope| {
        for part in 0..2 {
            let cap = &cap;
            scope.spawn(move || {
                for n in (50_000 + part..200_000).step_by(2) {
                    cap.seek(&device(n)).count();
                }
            });
        }
        (0..5).map(|_| cap.export().collect()).collect()
    });
    for export in exports {
        let mut restored = CapTable::new(cap.limit(), cap.seed());
        restored.import(export.into_iter());
        assert!((0..50_000).all(|n| restored.look_up(&device(n)) == Counted::Before));
        // Whatever the export missed is counted now, and nothing twice.
        for n in 0..200_000 {
            restored.seek(&device(n)).count();
        }
        let counted = (0..200_000).filter(|n| restored.look_up(&device(*n)) == Counted::Before);
        assert_eq!((restored.count(), counted.count()), (cap.count(), 200_000));
    }
}

#[test]
fn debug_hides_the_seed() {
    assert_eq!(
        format!("{:?}", CapSeed::from_words([7, 8])),
        "CapSeed(hidden)"
    );
}

proptest! {
    #[test]
    fn answers_are_those_of_a_set(
        limit in 1_u64..200,
        seed in any::<[u64; 2]>(),
        devices in prop::collection::vec((0_u64..300, any::<bool>()), 0..600),
        restart in 0_usize..600,
    ) {
        let mut cap = CapTable::new(limit, CapSeed::from_words(seed));
        let mut model = HashSet::new();
        for (step, (n, only_look)) in devices.into_iter().enumerate() {
            if step == restart {
                let export: Vec<_> = cap.export().collect();
                cap = CapTable::new(limit, CapSeed::from_words(seed));
                cap.import(export.into_iter());
            }
            let expected = match model.contains(&n) {
                true => Counted::Before,
                false if model.len() as u64 == limit => Counted::Full,
                false => Counted::Now,
            };
            let answer = if only_look {
                cap.look_up(&device(n))
            } else {
                if expected == Counted::Now {
                    model.insert(n);
                }
                cap.seek(&device(n)).count()
            };
            prop_assert_eq!(answer, expected);
            prop_assert_eq!(cap.count(), model.len() as u64);
        }
    }
}
