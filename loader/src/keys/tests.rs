//! Keys in equal keys out, for every memory size: in segments, spilled, in one unit or in pieces.

use rtad_core::device::{DeviceKey, SHARDS};
use rtad_core::snapshot::SortedKeys;

use super::*;

fn key(n: u64) -> DeviceKey {
    DeviceKey::of_canonical(&n.to_le_bytes())
}

/// Keys in one shard of partition 7.
fn key_in(shard: u8, n: u64) -> DeviceKey {
    let mut bytes = *key(n).as_bytes();
    (bytes[0], bytes[1]) = (7, shard);
    DeviceKey::from_bytes(bytes)
}

fn sorted(keys: &[DeviceKey], unwanted: &SortedKeys) -> Vec<DeviceKey> {
    let mut keys = keys.to_vec();
    keys.sort();
    keys.dedup();
    keys.retain(|key| !unwanted.contains(key));
    keys
}

fn read_all(
    keys: &dyn ShardKeys,
    unit_bytes: usize,
) -> Result<(Vec<DeviceKey>, Distinct), SpillError> {
    let (mut out, mut distinct) = (Vec::new(), Distinct::default());
    let mut worker = Worker::new(unit_bytes);
    // Parts of one partition, and several partitions.
    for shards in [0..16, 16..1800, 1800..2304, 2304..SHARDS] {
        let mut last = None;
        let found = keys.shards(shards.clone(), &mut worker, &mut |shard, keys| {
            assert!(shards.contains(&usize::from(shard)) && last < Some(shard) && !keys.is_empty());
            assert!(keys.iter().all(|key| device_key(key).shard() == shard));
            last = Some(shard);
            out.extend(keys.iter().map(device_key));
            true
        })?;
        distinct = distinct.and(found);
    }
    Ok((out, distinct))
}

/// Fills with three threads.
fn gather<'m, 'd>(
    keys: &[DeviceKey],
    slab: &'m mut Slab,
    budget: &Budget,
    dir: &'d SpillDir,
) -> Keys<'m, 'd> {
    let gathered = Keys::new(slab, budget, dir);
    let mut fillers: Vec<_> = (0..3).map(|_| Filler::new(&gathered)).collect();
    std::thread::scope(|scope| {
        for (filler, keys) in fillers
            .iter_mut()
            .zip(keys.chunks(keys.len().div_ceil(3).max(1)))
        {
            scope.spawn(|| keys.chunks(999).for_each(|keys| filler.take(keys, &[])));
        }
    });
    fillers.iter_mut().for_each(Filler::flush);
    drop(fillers);
    gathered.check().unwrap();
    gathered
}

fn spill<'d>(keys: &[DeviceKey], dir: &'d SpillDir) -> Spilled<'d> {
    let budget = Budget::tiny(4 << 20, 3);
    let mut slab = Slab::of(budget.segments()).unwrap();
    gather(keys, &mut slab, &budget, dir)
        .into_spilled()
        .unwrap()
}

#[test]
fn keys_come_out_sorted_and_once_from_memory_and_disk() {
    let keys: Vec<_> = (0..400_000).map(|n| key(n % 300_000)).collect();
    let unwanted = SortedKeys::sort(vec![key(11), key(300_000), key(299_999)]);
    let (expected, dir) = (sorted(&keys, &unwanted), SpillDir::temporary());
    let mut listed = [key(11), key(12), key(299_998), key(300_001)];
    listed.sort();
    let checks = KeyChecks {
        unwanted: Some(&unwanted),
        carried_added: &listed,
        ..KeyChecks::default()
    };
    let distinct = Distinct {
        found: 300_000,
        left: 299_998,
        carried_added: 2,
        ..Distinct::default()
    };

    let budget = Budget::tiny(64 << 20, 3);
    let mut slab = Slab::of(budget.segments()).unwrap();
    let gathered = gather(&keys, &mut slab, &budget, &dir);
    assert!(gathered.fit(&budget, |_| 0));
    let in_memory = gathered.into_sorted(3, checks, |_| {});
    assert_eq!(in_memory.distinct(), distinct);
    assert!(read_all(&in_memory, 0).unwrap().0 == expected);

    let budget = Budget::tiny(4 << 20, 3);
    let mut slab = Slab::of(budget.segments()).unwrap();
    let gathered = gather(&keys, &mut slab, &budget, &dir);
    assert!(!gathered.fit(&budget, |_| 0), "some was spilled");
    let spilled = gathered.into_spilled().unwrap();
    drop(slab);
    // The last page of each thread's last segment of each partition is padded.
    assert!(
        (400_000..400_000 + 3 * 256 * 256).contains(&spilled.keys()),
        "{}",
        spilled.keys()
    );
    assert_eq!(spilled.keys() * 16, spilled.bytes());
    // A whole partition, two or three passes, and split.
    for unit_bytes in [1 << 20, 16 << 10, 10 << 10, 5000] {
        let (out, found) = read_all(&spilled.units(unit_bytes, checks), unit_bytes).unwrap();
        assert_eq!(found, distinct, "{unit_bytes}");
        assert!(out == expected, "{unit_bytes}");
    }
    let estimate = spilled
        .units(1 << 20, KeyChecks::default())
        .estimate(&mut Worker::new(1 << 20))
        .unwrap();
    assert!((290_000..310_000).contains(&estimate), "{estimate}");
}

#[test]
fn skewed_prefixes_and_duplicates_need_no_more_memory() {
    let dir = SpillDir::temporary();
    let many_times = (0..200_000).map(|n| key_in(3, n % 500));
    let others = (0..300_000).map(|n| key_in(n as u8, n / 2));
    let keys: Vec<_> = many_times.chain(others).collect();
    let none = SortedKeys::sort(Vec::new());
    let spilled = spill(&keys, &dir);
    for unit_bytes in [8 << 20, 2 << 20, 100 << 10, 60 << 10] {
        let (out, _) =
            read_all(&spilled.units(unit_bytes, KeyChecks::default()), unit_bytes).unwrap();
        assert!(out == sorted(&keys, &none), "{unit_bytes}");
    }
    let error = read_all(&spilled.units(16 << 10, KeyChecks::default()), 16 << 10).unwrap_err();
    assert!(
        matches!(
            error,
            SpillError::ShardTooLarge {
                shard: 0x0700,
                found: 769..,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn empty_input_gives_no_keys() {
    let dir = SpillDir::temporary();
    let spilled = spill(&[], &dir);
    assert_eq!(
        read_all(&spilled.units(5000, KeyChecks::default()), 5000).unwrap(),
        (Vec::new(), Distinct::default())
    );
    assert_eq!(
        spilled
            .units(5000, KeyChecks::default())
            .estimate(&mut Worker::new(5000))
            .unwrap(),
        0
    );
}

#[test]
fn largest_value_of_each_key_comes_out_of_memory_and_disk() {
    let dir = SpillDir::temporary();
    let keys: Vec<_> = (0..400_000).map(|n| key(n % 300_000)).collect();
    let values: Vec<u8> = (0..400_000_u64).map(|n| (n / 7 % 16) as u8).collect();
    let mut expected: Vec<_> = (0..300_000).map(|n| (keys[n], values[n])).collect();
    for n in 300_000..400_000 {
        let value = &mut expected[n - 300_000].1;
        *value = values[n].max(*value);
    }
    expected.sort();
    let mut carried = [key(11), key(12), key(300_001)];
    carried.sort();
    let unwanted = SortedKeys::sort(vec![key(11)]);
    expected.retain(|(other, _)| *other != key(11));
    let checks = KeyChecks {
        has_values: true,
        unwanted: Some(&unwanted),
        carried_added: &carried,
        ..KeyChecks::default()
    };
    let members = |keys: &dyn ShardKeys, unit_bytes| {
        let mut out = Vec::new();
        let mut worker = Worker::new(unit_bytes);
        let distinct = keys.shards(0..SHARDS, &mut worker, &mut |shard, records| {
            out.extend(records.iter().map(|record| member(shard, *record)));
            true
        });
        assert_eq!(distinct.unwrap().left, 299_999);
        out
    };
    for memory in [64 << 20, 4 << 20] {
        let budget = Budget::tiny(memory, 3);
        let mut slab = Slab::of(budget.segments()).unwrap();
        let gathered = Keys::new(&mut slab, &budget, &dir);
        let mut filler = Filler::new(&gathered);
        filler.take(&keys, &values);
        filler.flush();
        drop(filler);
        if memory == 64 << 20 {
            let sorted = gathered.into_sorted(3, checks, |_| {});
            let Distinct {
                found,
                carried_added,
                ..
            } = sorted.distinct();
            assert_eq!((found, carried_added), (300_000, 1));
            assert!(members(&sorted, 0) == expected);
        } else {
            let spilled = gathered.into_spilled().unwrap();
            for unit_bytes in [1 << 20, 5000] {
                assert!(members(&spilled.units(unit_bytes, checks), unit_bytes) == expected);
            }
        }
    }
}
