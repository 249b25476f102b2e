//! Tests of the files of caps, and of caps over reloads and restarts.

use super::*;

/// Whether a device gets a bid now.
fn admits(cap: &Cap, n: u64) -> bool {
    cap.tables().seek(&device(n), Instant::now()).admit()
}

/// A zone in which it is about noon: no test runs over midnight.
static ZONE: LazyLock<String> = LazyLock::new(|| {
    let hour = (rtad_core::clock::now_unix_seconds() / 3600 % 24) as i64;
    // Names of this family have the opposite sign.
    format!("Etc/GMT{:+}", hour - 12)
});

/// [`config`] in that zone.
fn at_noon(unique_devices: u64, per: PeriodUnit) -> CapConfig {
    CapConfig {
        time_zone: Some(ZONE.clone()),
        ..config(unique_devices, per)
    }
}

/// The cap, after a reload with it alone.
fn serve_one(caps: &Caps, config: &CapConfig) -> Arc<Cap> {
    let served = caps.serve(std::slice::from_ref(config), None);
    Arc::clone(&served[0])
}

/// The cap of a pod that starts with this cache.
fn started(cache: &std::path::Path, config: &CapConfig) -> (Caps, Arc<Cap>) {
    let caps = Caps::in_cache(Some(cache));
    let cap = serve_one(&caps, config);
    (caps, cap)
}

/// The devices were leased for the cap's current table.
fn grant(caps: &Caps, cap: &Cap, devices: u64) {
    caps.grant(&cap.tables().current.period_table, devices);
}

#[test]
fn restart_restores_the_counts_of_the_period() {
    let cache = tempfile::tempdir().unwrap();
    let config = at_noon(100, PeriodUnit::Day);
    let (caps, cap) = started(cache.path(), &config);
    (0..60).for_each(|n| assert!(admits(&cap, n)));
    caps.save();
    drop(caps);
    let (caps, cap) = started(cache.path(), &config);
    assert_eq!(cap.usage().devices, 60);
    let admitted = (40..200).filter(|n| admits(&cap, *n));
    assert_eq!(admitted.count(), 60, "20 counted before and 40 new ones");
    caps.save();
    drop(caps);
    let (_caps, cap) = started(cache.path(), &config);
    assert!(admits(&cap, 3) && !admits(&cap, 999));
}

#[test]
fn changed_periods_count_anew() {
    let cache = tempfile::tempdir().unwrap();
    let day = at_noon(100, PeriodUnit::Day);
    let (caps, cap) = started(cache.path(), &day);
    assert!(admits(&cap, 1));
    caps.save();
    drop(caps);
    let other_zone = CapConfig {
        time_zone: Some("UTC".to_owned()),
        ..day.clone()
    };
    for other in [at_noon(100, PeriodUnit::Hour), other_zone] {
        assert_eq!(started(cache.path(), &other).1.usage().devices, 0);
    }
    // A file of the day before: a later start of its period does not restore it.
    let yesterday = SystemTime::now() - 24 * HOUR;
    let old = Cap::new(&day, yesterday, Instant::now());
    assert!(admits(&old, 1));
    old.save(&cache.path().join("_caps")).unwrap();
    assert_eq!(started(cache.path(), &day).1.usage().devices, 0);
}

/// The new limit is that of the whole period: by a reload, and by a restart.
#[test]
fn changed_limit_keeps_the_counts() {
    for (limit, new_devices, keeps_devices) in [
        (50, 0, true),
        (100, 0, true),
        (120, 20, true),
        (1_000, 900, false),
    ] {
        for restarts in [false, true] {
            let cache = tempfile::tempdir().unwrap();
            let (caps, cap) = started(cache.path(), &at_noon(100, PeriodUnit::Day));
            (0..100).for_each(|n| assert!(admits(&cap, n)));
            let other = at_noon(limit, PeriodUnit::Day);
            let cap = if restarts {
                caps.save();
                drop(caps);
                let (caps, cap) = started(cache.path(), &other);
                assert_eq!(cap.usage().devices, 100);
                caps.save();
                drop(caps);
                started(cache.path(), &other).1
            } else {
                serve_one(&caps, &other)
            };
            let admits = |n: &u64| admits(&cap, *n);
            assert_eq!(
                (1_000..5_000).filter(admits).count(),
                new_devices,
                "{limit}"
            );
            assert_eq!(
                (0..100).filter(admits).count() == 100,
                keeps_devices,
                "{limit}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Any changed, missing or added byte.
    #[test]
    fn damaged_file_is_refused(at in any::<prop::sample::Index>(), damage in 0..3, flip in 1_u8..) {
        let cache = tempfile::tempdir().unwrap();
        let config = at_noon(100, PeriodUnit::Day);
        let (caps, cap) = started(cache.path(), &config);
        (0..60).for_each(|n| assert!(admits(&cap, n)));
        caps.save();
        drop(caps);
        let folder = cache.path().join("_caps");
        let path = file::path(&folder, "s");
        let mut bytes = std::fs::read(&path).unwrap();
        match damage {
            0 => { let at = at.index(bytes.len()); bytes[at] ^= flip; }
            1 => bytes.truncate(at.index(bytes.len())),
            _ => bytes.push(flip),
        }
        std::fs::write(&path, bytes).unwrap();
        let restored = Cap::restore(&folder, &config);
        // A changed header may be that of another cap.
        prop_assert!(!matches!(restored, Ok(Some(_))));
        prop_assert_eq!(started(cache.path(), &config).1.usage().devices, 0);
    }
}

#[cfg(unix)]
#[test]
fn file_is_readable_by_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let cache = tempfile::tempdir().unwrap();
    let (caps, _cap) = started(cache.path(), &at_noon(100, PeriodUnit::Day));
    caps.save();
    let file = std::fs::metadata(file::path(&cache.path().join("_caps"), "s")).unwrap();
    assert_eq!(file.permissions().mode() & 0o777, 0o600);
}

/// A killed pod may have used all that it had leased: what its file counts less is not leased.
#[test]
fn restored_pod_has_no_lease_left() {
    let cache = tempfile::tempdir().unwrap();
    let config = CapConfig {
        share: None,
        leased: true,
        ..at_noon(100, PeriodUnit::Day)
    };
    let (caps, cap) = started(cache.path(), &config);
    assert!(!admits(&cap, 1), "nothing is leased");
    grant(&caps, &cap, 60);
    assert_eq!((0..100).filter(|n| admits(&cap, *n)).count(), 60);
    grant(&caps, &cap, 20);
    caps.save();
    drop(caps);
    let (caps, cap) = started(cache.path(), &config);
    let Usage { devices, limit, .. } = cap.usage();
    assert_eq!((devices, limit), (60, 60));
    assert!(admits(&cap, 1) && !admits(&cap, 60));
    grant(&caps, &cap, 1);
    assert!(admits(&cap, 60) && !admits(&cap, 61));

    // With a share, what was leased stays leased, and what the share adds is not.
    caps.save();
    drop(caps);
    let share = CapConfig {
        share: Some(1.0),
        leased: false,
        ..config.clone()
    };
    let (caps, cap) = started(cache.path(), &share);
    assert_eq!(cap.usage().limit, 100);
    caps.save();
    assert!(admits(&cap, 98) && admits(&cap, 99));
    caps.save();
    drop(caps);
    let (_, cap) = started(cache.path(), &config);
    assert_eq!((cap.usage().devices, cap.usage().limit), (63, 61));
}

/// Devices that were counted without a lease are leased later, also after a restart.
#[test]
fn devices_of_a_share_are_not_leased() {
    let cache = tempfile::tempdir().unwrap();
    let share = at_noon(100, PeriodUnit::Day);
    let leased = CapConfig {
        share: None,
        leased: true,
        ..share.clone()
    };
    let (caps, cap) = started(cache.path(), &share);
    (0..40).for_each(|n| assert!(admits(&cap, n)));
    let cap = serve_one(&caps, &leased);
    assert_eq!((cap.usage().devices, cap.usage().limit), (40, 0));
    // The server does not answer.
    caps.save();
    drop(caps);
    let (caps, cap) = started(cache.path(), &leased);
    assert_eq!((cap.usage().devices, cap.usage().limit), (40, 0));
    grant(&caps, &cap, 50);
    // A reload to a share and back.
    for (config, limit) in [(&share, 100), (&leased, 50)] {
        let cap = serve_one(&caps, config);
        assert_eq!((cap.usage().devices, cap.usage().limit), (40, limit));
    }
}

/// The answer to a call comes after the reload.
#[test]
fn lease_during_a_reload_is_not_lost() {
    let cache = tempfile::tempdir().unwrap();
    let share = at_noon(100, PeriodUnit::Day);
    let leased = CapConfig {
        share: None,
        leased: true,
        ..share.clone()
    };
    let larger = CapConfig {
        unique_devices: 1_000_000,
        ..leased.clone()
    };
    let (caps, first) = started(cache.path(), &leased);
    let limit = |cap: &Cap| cap.usage().limit;
    // To a share, whose limit stays, and back.
    let second = serve_one(&caps, &share);
    grant(&caps, &first, 10);
    assert_eq!(limit(&second), 100);
    let third = serve_one(&caps, &leased);
    assert_eq!(limit(&third), 10);
    // To a cap with a larger table.
    let fourth = serve_one(&caps, &larger);
    grant(&caps, &third, 20);
    assert_eq!(limit(&fourth), 30);
    // To a cap of other periods: the retired one has them to give back.
    let fifth = serve_one(
        &caps,
        &CapConfig {
            per: PeriodUnit::Hour,
            ..leased
        },
    );
    grant(&caps, &fourth, 5);
    assert_eq!((limit(&fourth), limit(&fifth)), (35, 0));
}

/// Requests use the old table until the catalog has the new one.
#[test]
fn old_table_of_a_raised_cap_counts_no_further_device() {
    let cache = tempfile::tempdir().unwrap();
    let (caps, old) = started(cache.path(), &at_noon(100, PeriodUnit::Day));
    (0..50).for_each(|n| assert!(admits(&old, n)));
    let raised = at_noon(1_000, PeriodUnit::Day);
    let new = serve_one(&caps, &raised);
    assert!((50..100).all(|n| !admits(&old, n)) && (0..50).all(|n| admits(&old, n)));
    assert_eq!((1_000..5_000).filter(|n| admits(&new, *n)).count(), 950);
}

#[test]
fn one_process_uses_the_files() {
    let cache = tempfile::tempdir().unwrap();
    let config = at_noon(100, PeriodUnit::Day);
    let (first, cap) = started(cache.path(), &config);
    assert!(admits(&cap, 1));
    first.save();
    let file = || std::fs::read(file::path(&cache.path().join("_caps"), "s")).unwrap();
    let saved = file();
    // Another one counts on its own, and writes nothing, also when the first has ended.
    let (second, other) = started(cache.path(), &config);
    assert_eq!(other.usage().devices, 0);
    (10..15).for_each(|n| assert!(admits(&other, n)));
    second.save();
    assert!(file() == saved);
    drop(first);
    second.save();
    second.serve(&[], None);
    second.save();
    assert!(file() == saved);
    drop(second);
    assert_eq!(started(cache.path(), &config).1.usage().devices, 1);
}

/// Counts since the last save, ten seconds at most, are in the file too.
#[test]
fn cap_that_returns_goes_on_counting() {
    let cache = tempfile::tempdir().unwrap();
    let config = at_noon(100, PeriodUnit::Day);
    let (caps, cap) = started(cache.path(), &config);
    for round in 1..=3 {
        let last = serve_one(&caps, &config);
        assert!(admits(&last, round));
        caps.serve(&[], None);
        // A request of the old catalog.
        assert!(admits(&last, 100 + round));
        assert_eq!(last.usage().devices, 2 * round, "{:?}", cap.usage());
    }
}

#[test]
fn ended_files_of_removed_caps_are_deleted() {
    let cache = tempfile::tempdir().unwrap();
    let folder = cache.path().join("_caps");
    let day = at_noon(100, PeriodUnit::Day);
    let (caps, cap) = started(cache.path(), &day);
    assert!(admits(&cap, 1));
    caps.save();
    for (name, wall) in [
        ("old", SystemTime::now() - 48 * HOUR),
        ("new", SystemTime::now()),
    ] {
        let name = name.to_owned();
        let config = CapConfig {
            name,
            ..day.clone()
        };
        let cap = Cap::new(&config, wall, Instant::now());
        assert!(admits(&cap, 1));
        cap.save(&folder).unwrap();
    }
    std::fs::write(folder.join("s.cap.tmp"), "a killed process").unwrap();
    let others = ["foreign.cap", "x.tmp", "copy of s.cap.tmp"];
    for name in others {
        std::fs::write(folder.join(name), "mine").unwrap();
    }
    let files = || {
        let names = std::fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    };
    let mut expected = [&["LOCK", "new.cap", "s.cap"][..], &others].concat();
    expected.sort_unstable();
    caps.serve(&[day], None);
    assert_eq!(files(), expected);
    // A removed cap may come back within its period.
    caps.serve(&[], None);
    assert_eq!(files(), expected);
}

/// A larger cap takes a larger table; the lease goes on, and grants find it.
#[test]
fn changed_limit_keeps_what_was_leased() {
    let cache = tempfile::tempdir().unwrap();
    let leased = |limit| CapConfig {
        share: None,
        leased: true,
        ..at_noon(limit, PeriodUnit::Day)
    };
    let (caps, cap) = started(cache.path(), &leased(100));
    grant(&caps, &cap, 50);
    (0..30).for_each(|n| assert!(admits(&cap, n)));
    let record = |cap: &Cap| Arc::clone(&cap.tables().current.period_table.leases);
    for limit in [90, 10_000] {
        let new = serve_one(&caps, &leased(limit));
        assert_eq!((new.usage().devices, new.usage().limit), (30, 50));
        assert!(Arc::ptr_eq(&record(&new), &record(&cap)));
    }
    grant(&caps, &cap, 5);
    let new = serve_one(&caps, &leased(10_000));
    assert_eq!(new.usage().limit, 55);
    // Another period is another quota, also if both began at the same time.
    let hourly = CapConfig {
        per: PeriodUnit::Hour,
        ..leased(100)
    };
    let new = serve_one(&caps, &hourly);
    assert_eq!((new.usage().devices, new.usage().limit), (0, 0));
    assert!(!Arc::ptr_eq(&record(&new), &record(&cap)));
}

/// The file that a save is writing.
#[test]
fn reload_waits_for_a_save_before_it_cleans() {
    let cache = tempfile::tempdir().unwrap();
    let (caps, _) = started(cache.path(), &at_noon(100, PeriodUnit::Day));
    let staged = cache.path().join("_caps/s.cap.tmp");
    let is_closed = caps.is_closed.lock();
    std::fs::write(&staged, "half").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| caps.serve(&[], None));
        testkit::wait_until("the reload", || caps.served.lock().is_empty());
        assert!(staged.exists());
        drop(is_closed);
    });
    assert!(!staged.exists());
}
