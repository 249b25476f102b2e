//! Clock of a window: the wall clock, which never goes back here.
//!
//! After a step back, time stands still until the wall clock has caught up. A step ahead counts
//! once it has stood for a minute: a clock that is wrong for seconds must not end a day, which
//! empties the window and its audiences.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tokio::time::Instant;

use rtad_core::clock;
use rtad_core::period::{Calendar, Period};
use rtad_core::snapshot::AudienceName;
use rtad_window::Now;

use super::config::{Length, TICKS_PER_LENGTH};

/// Largest step ahead of the monotonic clock that counts at once.
const LARGEST_STEP: Duration = Duration::from_secs(60);
/// Time for which a larger step must stand before it counts.
const HOLD: Duration = Duration::from_secs(60);

pub struct Clock {
    length: Length,
    time: Mutex<WindowTime>,
    /// The day that was asked for last.
    day: Mutex<Option<Period>>,
}

/// Time of a window, since the Unix epoch.
struct WindowTime {
    /// For the log.
    window: AudienceName,
    now: Duration,
    /// The monotonic clock at it.
    read_at: Instant,
    /// Begin of a step ahead that does not count yet.
    held_since: Option<Instant>,
    /// Whether the wall clock was set back, so that time stands still.
    is_behind: bool,
}

impl WindowTime {
    /// Moves to a reading of both clocks.
    fn advance(&mut self, wall: Duration, at: Instant) {
        let window = self.window.as_str();
        // The time that the monotonic clock allows.
        let steady = self.now + at.saturating_duration_since(self.read_at);
        let ahead = wall.saturating_sub(steady);
        let behind = self.now.saturating_sub(wall);
        self.read_at = at;

        if behind > LARGEST_STEP && !self.is_behind {
            let seconds = behind.as_secs();
            tracing::error!(
                window,
                seconds,
                "the wall clock was set back; nothing expires until it has caught up"
            );
        }
        self.is_behind = behind > LARGEST_STEP;

        if ahead <= LARGEST_STEP {
            if self.held_since.take().is_some() {
                tracing::info!(window, "the wall clock is right again");
            }
            self.now = self.now.max(wall);
            return;
        }

        let seconds = ahead.as_secs();
        let held_since = match self.held_since {
            Some(since) => since,
            None => {
                tracing::error!(
                    window,
                    seconds,
                    "the wall clock has stepped ahead; the window follows it in a minute"
                );
                *self.held_since.insert(at)
            }
        };
        if at.saturating_duration_since(held_since) < HOLD {
            self.now = steady;
        } else {
            tracing::error!(
                window,
                seconds,
                "the window follows the wall clock, which has stepped ahead"
            );
            self.held_since = None;
            self.now = wall;
        }
    }
}

fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn sliding_tick(length: Duration, time: Duration) -> u64 {
    let tick = length / u32::from(TICKS_PER_LENGTH);
    (time.as_nanos() / tick.as_nanos()) as u64
}

impl Clock {
    /// Starts a clock at the time of the wall clock. A window whose files are of a later tick
    /// stays at that one until the clock has reached it.
    pub fn start(window: &AudienceName, length: &Length) -> Self {
        Self::start_at(window, length, since_epoch(clock::now()), Instant::now())
    }

    fn start_at(window: &AudienceName, length: &Length, now: Duration, read_at: Instant) -> Self {
        let time = WindowTime {
            window: window.clone(),
            now,
            read_at,
            held_since: None,
            is_behind: false,
        };
        Self {
            length: length.clone(),
            time: Mutex::new(time),
            day: Mutex::default(),
        }
    }

    /// A reading for the window's engine.
    pub fn now(&self) -> Now {
        self.now_at(since_epoch(clock::now()), Instant::now())
    }

    fn now_at(&self, wall: Duration, at: Instant) -> Now {
        let time = self.time_at(wall, at);
        Now {
            tick: self.tick(time),
            seconds: time.as_secs(),
        }
    }

    fn time_at(&self, wall: Duration, at: Instant) -> Duration {
        let mut time = self.time.lock();
        time.advance(wall, at);
        time.now
    }

    fn tick(&self, time: Duration) -> u64 {
        match &self.length {
            Length::Sliding(length) => sliding_tick(*length, time),
            Length::Day(calendar) => self.day(calendar, UNIX_EPOCH + time),
        }
    }

    fn day(&self, calendar: &Calendar, time: SystemTime) -> u64 {
        let mut day = self.day.lock();
        match *day {
            Some(day) if day.contains(time) => day.number,
            _ => day.insert(calendar.at(time)).number,
        }
    }

    /// The tick of an event, by the wall clock.
    pub fn tick_of(&self, event: SystemTime) -> u64 {
        self.tick_of_at(event, since_epoch(clock::now()), Instant::now())
    }

    fn tick_of_at(&self, event: SystemTime, wall: Duration, at: Instant) -> u64 {
        let now = self.time_at(wall, at);
        // While the window is ahead of a clock that was set back, its events are too. A step ahead
        // that does not count makes no event older.
        let age = wall.min(now).saturating_sub(since_epoch(event));
        self.tick(now.saturating_sub(age))
    }
}

#[cfg(test)]
mod tests {
    use rtad_core::period::PeriodUnit;
    use rtad_window::{Seen, Window, WindowSpec};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MINUTE: Duration = Duration::from_secs(60);
    const HOUR: Duration = Duration::from_secs(3600);
    const DAY: Duration = Duration::from_secs(86_400);
    /// In Shanghai.
    const NOON: Duration = Duration::from_secs(1_793_073_600);

    /// A window on clocks that a test moves.
    struct Tested {
        clock: Clock,
        window: Window,
        wall: Duration,
        monotonic: Instant,
    }

    impl Tested {
        fn start(length: &Length, wall: Duration) -> Self {
            let monotonic = Instant::now();
            let clock = Clock::start_at(&"w".parse().unwrap(), length, wall, monotonic);
            let lifetime = match length {
                Length::Sliding(_) => TICKS_PER_LENGTH + 1,
                Length::Day(_) => 1,
            };
            let spec = WindowSpec {
                capacity: 100,
                fpr: 1e-9,
                count: 1,
                whole_keys: false,
                lifetime,
            };
            let window = Window::new(spec, clock.now_at(wall, monotonic).tick).unwrap();
            Self {
                clock,
                window,
                wall,
                monotonic,
            }
        }

        /// Both clocks go on, with a reading each second.
        fn pass(&mut self, time: Duration) {
            for _ in 0..time.as_secs() {
                self.wall += SECOND;
                self.monotonic += SECOND;
                self.read();
            }
        }

        fn read(&mut self) -> Now {
            let now = self.clock.now_at(self.wall, self.monotonic);
            self.window.set_tick(now.tick);
            now
        }

        /// Whether an event is the first one of its device.
        fn is_new(&mut self) -> bool {
            self.read();
            self.window.observe(&[[7; 16]]) == [Seen::New]
        }

        fn tick_of(&self, event: Duration) -> u64 {
            let event = UNIX_EPOCH + event;
            self.clock.tick_of_at(event, self.wall, self.monotonic)
        }
    }

    fn days(zone: &str) -> Length {
        Length::Day(Calendar::new(PeriodUnit::Day, Some(zone)).unwrap())
    }

    #[test]
    fn days_of_a_zone_have_their_own_length() {
        // 2026-10-24T22:00Z to 2026-10-25T23:00Z: a day of 25 hours.
        let midnight = Duration::from_secs(1_792_879_200);
        let day = days("Europe/Berlin");
        let at = |hours: u32| Tested::start(&day, midnight + HOUR * hours).read().tick;
        assert_eq!(at(0), at(24));
        assert_eq!(at(25), at(0) + 1);
    }

    #[test]
    fn sliding_entries_expire_after_their_length() {
        let mut tested = Tested::start(&Length::Sliding(256 * SECOND), NOON);
        assert!(tested.is_new());
        tested.pass(256 * SECOND);
        assert!(!tested.is_new());
        tested.pass(3 * SECOND);
        assert!(tested.is_new());
    }

    /// A clock that is days ahead for seconds, as after a wrong answer of a time server.
    #[test]
    fn step_ahead_of_seconds_empties_no_window() {
        for length in [days("Asia/Shanghai"), Length::Sliding(HOUR)] {
            let mut tested = Tested::start(&length, NOON);
            assert!(tested.is_new());
            let tick = tested.read().tick;
            tested.wall += 3 * DAY;
            tested.pass(3 * SECOND);
            assert!(!tested.is_new());
            // Events have the times of right clocks.
            assert_eq!(tested.tick_of(NOON), tick);
            tested.wall -= 3 * DAY;
            tested.pass(2 * MINUTE);
            assert!(!tested.is_new());
            let ahead = tested.read().seconds - NOON.as_secs();
            assert_eq!(ahead, 123, "the time of the wall clock");
        }
    }

    #[test]
    fn step_ahead_counts_after_a_minute() {
        let mut tested = Tested::start(&days("Asia/Shanghai"), NOON);
        assert!(tested.is_new());
        tested.wall += DAY;
        tested.pass(MINUTE);
        assert!(!tested.is_new());
        tested.pass(SECOND);
        assert!(tested.is_new());
        assert_eq!(tested.read().seconds, tested.wall.as_secs());
    }

    /// Corrections of less than a minute, as at the end of a day.
    #[test]
    fn small_steps_count_at_once_and_never_back() {
        let late = NOON + 12 * HOUR - 30 * SECOND;
        let mut tested = Tested::start(&days("Asia/Shanghai"), late);
        assert!(tested.is_new());
        tested.wall += MINUTE;
        assert!(tested.is_new());
        // Back over midnight: the new day goes on.
        tested.wall -= 50 * SECOND;
        assert!(!tested.is_new());
        tested.pass(DAY - MINUTE);
        assert!(!tested.is_new());
    }

    #[test]
    fn time_stands_still_after_a_step_back() {
        let mut tested = Tested::start(&Length::Sliding(1280 * SECOND), NOON);
        assert!(tested.is_new());
        let before = tested.read();
        tested.wall -= HOUR;
        // An event of now is of the window's present.
        assert_eq!(tested.tick_of(tested.wall), before.tick);
        tested.pass(HOUR);
        let after = tested.read();
        assert_eq!((after.tick, after.seconds), (before.tick, before.seconds));
        tested.pass(HOUR);
        assert!(tested.is_new());
    }

    /// The wall clock of the start may be before the time of the files.
    #[test]
    fn restart_with_an_earlier_clock_reopens_no_day() {
        let length = days("Asia/Shanghai");
        let mut tested = Tested::start(&length, NOON + DAY);
        assert!(tested.is_new());
        let monotonic = tested.monotonic;
        tested.clock = Clock::start_at(&"w".parse().unwrap(), &length, NOON, monotonic);
        tested.wall = NOON;
        assert!(!tested.is_new());
        tested.pass(DAY);
        assert!(!tested.is_new());
        tested.pass(12 * HOUR);
        assert!(tested.is_new());
    }

    /// Every minute of the days on which a zone changes its clocks: one reset per local midnight.
    #[test]
    fn days_of_a_clock_change_reset_once_per_midnight() {
        for (zone, first_day, hours) in [
            // 2026-10-25 has 25 hours, 2026-03-29 has 23.
            ("Europe/Berlin", 1_792_792_800, [24, 25, 24]),
            ("Europe/Berlin", 1_774_652_400, [24, 23, 24]),
            // 2026-04-05 has 24.5 hours.
            ("Australia/Lord_Howe", 1_775_221_200, [24, 24, 24]),
        ] {
            let mut tested = Tested::start(&days(zone), Duration::from_secs(first_day));
            let mut resets = Vec::new();
            for minute in 0..hours.iter().sum::<u64>() * 60 {
                if tested.is_new() {
                    resets.push(minute);
                }
                tested.wall += MINUTE;
                tested.monotonic += MINUTE;
            }
            let half_hour = if zone.starts_with("Australia") { 30 } else { 0 };
            let expected = [0, hours[0] * 60, (hours[0] + hours[1]) * 60 + half_hour];
            assert_eq!(resets, expected, "{zone}");
        }
    }
}
