//! Tests of caps over time: ends of periods, steps of the clock, and threads.

mod pods;

use std::time::UNIX_EPOCH;

use rtad_core::period::PeriodUnit;

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn config(limit: u64, period: PeriodUnit) -> CapConfig {
    CapConfig {
        name: "s".to_owned(),
        limit,
        period,
        time_zone: Some("Asia/Shanghai".to_owned()),
    }
}

fn device(n: u64) -> [DeviceKey; 1] {
    [DeviceKey::of_canonical(&n.to_le_bytes())]
}

/// A cap with a wall clock and a monotonic clock of its own.
struct World {
    cap: Cap,
    wall: SystemTime,
    now: Instant,
}

impl World {
    /// 2026-05-04 12:00:00 UTC, 20:00 in Shanghai.
    fn new(limit: u64, period: PeriodUnit) -> Self {
        let (wall, now) = (
            UNIX_EPOCH + Duration::from_secs(1_777_896_000),
            Instant::now(),
        );
        let world = Self {
            cap: Cap::new(&config(limit, period), wall, now),
            wall,
            now,
        };
        world.grant();
        world
    }

    /// Grants each table the whole cap.
    fn grant(&self) {
        for period_table in self.cap.tables().period_tables() {
            let table = &period_table.table;
            table.raise_limit(self.cap.config().limit - table.limit());
        }
    }

    /// Lets time pass, with the background task's seconds only at the end.
    fn pass(&mut self, time: Duration) {
        self.wall += time;
        self.now += time;
    }

    fn follow(&self) {
        self.cap.follow(self.wall, self.now);
        self.grant();
    }

    fn admits(&self, n: u64) -> bool {
        let would = self.cap.tables().would_admit(&device(n), self.now);
        let admits = self.cap.tables().seek(&device(n), self.now).admit();
        assert_eq!(would, admits);
        admits
    }
}

#[test]
fn first_request_after_the_end_is_counted_in_the_next_period() {
    let mut world = World::new(2, PeriodUnit::Hour);
    world.pass(HOUR - Duration::from_secs(5));
    world.follow();
    assert!(world.admits(1) && world.admits(2) && !world.admits(3));
    world.pass(Duration::from_secs(5) - Duration::from_nanos(1));
    assert!(!world.admits(3), "the period has not ended yet");
    // The background task has not run since.
    world.pass(Duration::from_nanos(1));
    assert!(world.admits(3) && world.admits(4) && !world.admits(1));
    world.pass(Duration::from_millis(700));
    world.follow();
    assert!(
        world.admits(3) && !world.admits(1),
        "the counts of the new period stay"
    );
    assert_eq!(
        world.cap.tables().ends_in(world.now),
        HOUR - Duration::from_millis(700)
    );
}

/// The process was paused before it prepared the next table.
#[test]
fn nobody_is_admitted_after_a_pause_over_the_end() {
    let mut world = World::new(2, PeriodUnit::Hour);
    world.pass(HOUR - LEAD - Duration::from_secs(1));
    world.follow();
    assert!(world.admits(1));
    world.pass(2 * LEAD);
    assert!(!world.admits(1) && !world.admits(2));
    let tables = world.cap.tables();
    assert!(!tables.seek(&[], world.now).admit());
    assert_eq!(tables.refuse(world.now), Decision::NO_GRANT);
    assert_eq!(tables.ends_in(world.now), Duration::ZERO);
    world.follow();
    assert!(world.admits(1));

    // Over two ends, with the next table.
    world.pass(HOUR - 2 * LEAD);
    world.follow();
    world.pass(HOUR + LEAD);
    assert!(!world.admits(1));
}

#[test]
fn next_table_exists_only_around_the_end() {
    let mut world = World::new(2, PeriodUnit::Hour);
    let has_next = |world: &World| world.cap.state.load().next.is_some();
    world.pass(HOUR - LEAD - Duration::from_secs(1));
    world.follow();
    assert!(!has_next(&world));
    world.pass(Duration::from_secs(1));
    world.follow();
    assert!(has_next(&world));
    world.pass(LEAD);
    world.follow();
    assert!(!has_next(&world));
    assert!(world.cap.replaced.lock().is_empty());
}

#[test]
fn days_end_at_midnight_of_the_time_zone() {
    let mut world = World::new(1, PeriodUnit::Day);
    assert!(world.admits(1) && !world.admits(2));
    assert_eq!(world.cap.tables().ends_in(world.now), 4 * HOUR);
    world.pass(4 * HOUR);
    world.follow();
    assert!(world.admits(2) && !world.admits(1));
    assert_eq!(world.cap.tables().ends_in(world.now), 24 * HOUR);
}

#[test]
fn a_clock_set_back_by_an_hour_does_not_reset_the_cap() {
    for per in PeriodUnit::ALL {
        let mut world = World::new(1, per);
        world.pass(Duration::from_secs(60));
        world.follow();
        assert!(world.admits(1) && !world.admits(2));
        world.wall -= HOUR;
        world.follow();
        assert!(world.admits(1) && !world.admits(2), "{per:?}");
        world.pass(HOUR);
        world.follow();
        assert!(world.admits(1) && !world.admits(2), "{per:?}");
    }
}

#[test]
fn a_clock_set_forward_by_an_hour_and_back_starts_one_period() {
    let mut world = World::new(1, PeriodUnit::Hour);
    assert!(world.admits(1) && !world.admits(2));
    world.wall += HOUR;
    world.follow();
    assert!(world.admits(2) && !world.admits(1));
    world.wall -= HOUR;
    world.follow();
    assert!(world.admits(2) && !world.admits(1));
    world.pass(2 * HOUR);
    world.follow();
    assert!(world.admits(1) && !world.admits(2));
}

#[test]
fn a_clock_that_was_wrong_by_years_counts_anew() {
    let mut world = World::new(1, PeriodUnit::Day);
    world.wall += 24 * HOUR * 3650;
    world.follow();
    assert!(world.admits(1) && !world.admits(2));
    world.wall -= 24 * HOUR * 3650;
    world.follow();
    assert!(world.admits(2) && !world.admits(1));
}

#[test]
fn any_order_of_ids_is_one_device() {
    let world = World::new(1, PeriodUnit::Day);
    let [[a], [b]] = [device(1), device(2)];
    assert!(world.cap.tables().seek(&[a, b], world.now).admit());
    assert!(world.cap.tables().seek(&[b, a], world.now).admit());
    assert_eq!(world.cap.usage().devices, 1);
}

#[test]
fn requests_without_a_device_pass_until_the_limit_is_reached() {
    let world = World::new(1, PeriodUnit::Day);
    assert!(world.cap.tables().seek(&[], world.now).admit());
    assert_eq!(world.cap.usage().devices, 0);
    assert!(world.admits(1));
    assert!(!world.cap.tables().seek(&[], world.now).admit());
}

/// Threads count while the period ends.
#[test]
fn both_periods_keep_their_limits_under_threads() {
    const LIMIT: u64 = 10_000;
    let mut world = World::new(LIMIT, PeriodUnit::Hour);
    world.pass(HOUR - Duration::from_secs(1));
    world.follow();
    let (before, after) = (world.now, world.now + Duration::from_secs(1));
    let cap = &world.cap;
    let counts = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                scope.spawn(move || {
                    let admitted = |at, first: u64| {
                        let devices = (first..4 * LIMIT).step_by(8);
                        devices
                            .filter(|n| cap.tables().seek(&device(*n), at).admit())
                            .count() as u64
                    };
                    (admitted(before, thread), admitted(after, thread))
                })
            })
            .collect();
        world.cap.follow(world.wall + Duration::from_secs(1), after);
        let add = |(a, b), (c, d)| (a + c, b + d);
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .fold((0, 0), add)
    });
    // Requests that came before the end, and are decided after it, count in the new period.
    let (first, second) = counts;
    assert!(first + second <= 2 * LIMIT + LIMIT, "{counts:?}");
    assert_eq!(world.cap.usage().devices, LIMIT);
}
