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
    table_of(limit, [7, 11])
}

fn table_of(limit: u64, seed: [u64; 2]) -> CapTable {
    let table = CapTable::new(limit, CapSeed(seed));
    table.raise_limit(limit);
    table
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
fn limit_is_raised_and_lowered_to_the_count_at_most() {
    let cap = CapTable::new(1_000, CapSeed([7, 11]));
    let admitted = |first: u64| {
        (first..first + 5_000)
            .filter(|n| cap.seek(&device(*n)).count() == Counted::Now)
            .count()
    };
    assert_eq!(admitted(0), 0);
    cap.raise_limit(600);
    assert_eq!(cap.lower_limit(100), 100);
    assert_eq!(admitted(0), 500);
    assert_eq!(cap.lower_limit(100), 0);
    cap.raise_limit(750);
    assert_eq!((admitted(10_000), cap.count()), (750, 1_250));
    cap.raise_limit(30);
    assert_eq!(cap.lower_limit(u64::MAX), 30);
    assert_eq!((cap.limit(), cap.close()), (1_250, 0));
    assert_eq!(cap.seek(&device(0)).count(), Counted::Before);
    assert!(cap.has_room(1_250) && !cap.has_room(2_000));
}

/// Threads count while the limit is lowered and raised.
#[test]
fn lowered_limit_and_count_add_up_under_threads() {
    let cap = table(100_000);
    let lowered = std::thread::scope(|scope| {
        for part in 0..4 {
            let cap = &cap;
            scope.spawn(move || {
                for n in (part..200_000).step_by(4) {
                    cap.seek(&device(n)).count();
                }
            });
        }
        let mut lowered = 0;
        for _ in 0..1_000 {
            lowered += cap.lower_limit(100);
            cap.raise_limit(50);
        }
        lowered
    });
    assert_eq!(cap.limit(), 100_000 + 50_000 - lowered);
    assert!(cap.count() <= cap.limit());
}

#[test]
fn carried_devices_take_part_of_the_limit() {
    let cap = table(10).with_carried(8, 10);
    let admitted = (0..20).filter(|n| cap.seek(&device(*n)).count() == Counted::Now);
    assert_eq!((admitted.count(), cap.count()), (2, 10));
}

#[test]
fn a_million_devices_take_six_bytes_each() {
    assert_eq!(CapTable::bytes_for(1_000_000), 6_000_256);
    assert_eq!(
        table(1_000_000).buckets.len() as u64 * 64,
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
    let slots = cap.buckets.iter().flat_map(|bucket| &bucket.0);
    let taken = slots.filter(|slot| slot.load(Acquire) != EMPTY);
    assert_eq!(taken.count(), 900);
}

#[test]
fn false_answers_are_rarer_than_one_in_ten_million() {
    let cap = table(100_000);
    (0..100_000).for_each(|n| assert_ne!(cap.seek(&device(n)).count(), Counted::Full));
    let beyond = 1_000_000..11_000_000;
    let passed = beyond
        .filter(|n| cap.seek(&device(*n)).count() != Counted::Full)
        .count();
    assert!(passed <= 1, "{passed} of 10 million further devices passed");
}

#[test]
fn debug_hides_the_seed() {
    assert_eq!(format!("{:?}", CapSeed([7, 8])), "CapSeed(hidden)");
}

proptest! {
    #[test]
    fn answers_are_those_of_a_set(
        limit in 1_u64..200,
        seed in any::<[u64; 2]>(),
        devices in prop::collection::vec((0_u64..300, any::<bool>()), 0..600),
    ) {
        let cap = table_of(limit, seed);
        let mut model = HashSet::new();
        for (n, only_look) in devices {
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
