//! Clock of a window: its current tick. A tick never goes back.
//!
//! The window's time is that of the monotonic clock, so that a step of the wall clock makes nothing
//! expire early or late. Ticks of a sliding window and kept answers follow it. The wall clock
//! decides only how long a stopped process was gone: the files know by how much it was ahead.
//!
//! A day follows the wall clock: a step over midnight begins the next day at once, and a correction
//! back over midnight leaves the new day running. After a longer step back, the window's days are
//! ahead of the calendar: the day goes on until midnight, and then the next one begins.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use rtad_core::period::{Calendar, Period};
use rtad_window::Now;

use super::config::{Length, TICKS_PER_LENGTH};

/// A step back over midnight by more comes from a clock that was wrong.
const LARGEST_CORRECTION: Duration = Duration::from_secs(2 * 3600);

pub enum Clock {
    Sliding {
        time: WindowTime,
        tick: Duration,
    },
    Day {
        time: WindowTime,
        calendar: Calendar,
        today: Mutex<Today>,
    },
}

/// The day of the wall clock.
pub struct Today {
    period: Period,
    /// Days by which the window's ticks are ahead of the calendar.
    ahead: u64,
}

/// Time of a window: steady while the process runs.
pub struct WindowTime {
    started: Instant,
    /// Time from the Unix epoch to the start.
    at_start: Duration,
}

/// The window's time at a time of the wall clock, which is ahead of it by an offset.
fn time_at(wall_offset_millis: i64, now: SystemTime) -> Duration {
    let wall = since_epoch(now);
    let offset = Duration::from_millis(wall_offset_millis.unsigned_abs());
    if wall_offset_millis < 0 {
        wall + offset
    } else {
        wall.saturating_sub(offset)
    }
}

pub fn since_epoch(now: SystemTime) -> Duration {
    now.duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The tick at a time, for a window that is opened.
pub fn tick_at(length: &Length, wall_offset_millis: i64, now: SystemTime) -> u64 {
    match length {
        Length::Sliding(length) => ticks_in(time_at(wall_offset_millis, now), tick_length(*length)),
        Length::Day(calendar) => calendar.at(now).number,
    }
}

fn ticks_in(time: Duration, tick: Duration) -> u64 {
    (time.as_nanos() / tick.as_nanos()) as u64
}

/// Whether a clock was wrong by more than a correction of the time, which may cross midnight.
fn is_far_before(now: SystemTime, midnight: SystemTime) -> bool {
    midnight
        .duration_since(now)
        .is_ok_and(|left| left > LARGEST_CORRECTION)
}

/// Length of a tick of a sliding window.
fn tick_length(length: Duration) -> Duration {
    length / u32::from(TICKS_PER_LENGTH)
}

impl Clock {
    /// Starts a clock at the tick of an opened window, which is `tick_at` or later.
    pub fn start(length: &Length, tick: u64, wall_offset_millis: i64, now: SystemTime) -> Self {
        let mut at_start = time_at(wall_offset_millis, now);
        let started = Instant::now();
        match length {
            Length::Sliding(length) => {
                let length = tick_length(*length);
                let first = length.as_nanos().saturating_mul(u128::from(tick));
                at_start = at_start.max(Duration::from_nanos_u128(first));
                Self::Sliding {
                    time: WindowTime { started, at_start },
                    tick: length,
                }
            }
            Length::Day(calendar) => {
                let period = calendar.at(now);
                // The next midnight resets the window. It is not known whether one has passed.
                let days = tick.saturating_sub(period.number);
                let ahead = if days > 1 || is_far_before(now, period.end) {
                    days
                } else {
                    0
                };
                let today = Mutex::new(Today { period, ahead });
                let time = WindowTime { started, at_start };
                Self::Day {
                    time,
                    calendar: calendar.clone(),
                    today,
                }
            }
        }
    }

    /// The window's time.
    pub fn time(&self) -> Duration {
        let (Self::Sliding { time, .. } | Self::Day { time, .. }) = self;
        time.at_start + time.started.elapsed()
    }

    /// A reading for the window's thread.
    pub fn now(&self) -> Now {
        Now {
            tick: self.tick(),
            time: self.time(),
            wall: since_epoch(SystemTime::now()),
        }
    }

    /// The current tick; may lie before an earlier one after a step of the wall clock.
    pub fn tick(&self) -> u64 {
        match self {
            Self::Sliding { tick, .. } => ticks_in(self.time(), *tick),
            Self::Day { .. } => self.day(SystemTime::now()),
        }
    }

    /// The tick of an event, by the wall clock.
    pub fn tick_of(&self, event: SystemTime) -> u64 {
        match self {
            Self::Sliding { tick, .. } => {
                let age = SystemTime::now().duration_since(event).unwrap_or_default();
                ticks_in(self.time().saturating_sub(age), *tick)
            }
            Self::Day { calendar, .. } => calendar.at(event).number + self.days_ahead(),
        }
    }

    /// Days by which the window's days are ahead of the calendar.
    pub fn days_ahead(&self) -> u64 {
        match self {
            Self::Sliding { .. } => 0,
            Self::Day { today, .. } => today.lock().ahead,
        }
    }

    fn day(&self, now: SystemTime) -> u64 {
        let Self::Day {
            calendar, today, ..
        } = self
        else {
            return 0;
        };
        let mut today = today.lock();
        if !today.period.contains(now) {
            let period = calendar.at(now);
            if period.number < today.period.number && is_far_before(now, today.period.start) {
                today.ahead += today.period.number - period.number;
            }
            today.period = period;
        }
        today.period.number + today.ahead
    }
}

#[cfg(test)]
mod tests {
    use rtad_core::period::PeriodUnit;
    use rtad_window::{Seen, Window, WindowSpec};

    use super::*;

    #[test]
    fn days_of_a_zone_have_their_own_length() {
        let calendar = Calendar::new(PeriodUnit::Day, Some("Europe/Berlin")).unwrap();
        // 2026-10-24T22:00Z to 2026-10-25T23:00Z: a day of 25 hours.
        let midnight = UNIX_EPOCH + Duration::from_secs(1_792_879_200);
        let day = Length::Day(calendar);
        let at = |hours: u64| tick_at(&day, 0, midnight + Duration::from_secs(hours * 3600));
        assert_eq!(at(0), at(24));
        assert_eq!(at(25), at(0) + 1);
    }

    #[test]
    fn sliding_ticks_continue_after_the_opened_tick() {
        let length = Length::Sliding(Duration::from_secs(256));
        let now = SystemTime::now();
        let opened = tick_at(&length, 0, now) + 5;
        let clock = Clock::start(&length, opened, 0, now);
        assert!((opened..opened + 3).contains(&clock.tick()));
        // A tick of 2 s passes.
        let begun = Instant::now();
        while clock.tick() < opened + 1 {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "the clock stands still"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The wall clock steps by an hour while the process runs; then the process is gone for 20 s.
    #[test]
    fn step_and_restart_count_the_time_gone_only() {
        let length = Length::Sliding(Duration::from_secs(1800));
        let hour = Duration::from_secs(3600);
        let begin = SystemTime::now();
        for stepped in [begin + hour, begin - hour] {
            let clock = Clock::start(&length, tick_at(&length, 0, begin), 0, begin);
            let time = clock.time();
            // The offset that the files hold.
            let offset = since_epoch(stepped).as_millis() as i64 - time.as_millis() as i64;
            let later = stepped + Duration::from_secs(20);
            let restarted = Clock::start(&length, tick_at(&length, offset, later), offset, later);
            let gone = restarted.time() - time;
            assert!((19_900..21_000).contains(&gone.as_millis()), "{gone:?}");
            assert!(restarted.tick() - clock.tick() <= 2);
        }
    }

    fn day(zone: &str, now: SystemTime) -> Clock {
        let calendar = Calendar::new(PeriodUnit::Day, Some(zone)).unwrap();
        let length = Length::Day(calendar);
        Clock::start(&length, tick_at(&length, 0, now), 0, now)
    }

    /// Steps of the wall clock by an hour, also over midnight: within a day nothing is new twice,
    /// and a key is forgotten once per day begun.
    #[test]
    fn steps_of_the_clock_make_nothing_new_twice_within_a_day() {
        // Noon and 23:30 in Shanghai.
        let noon = UNIX_EPOCH + Duration::from_secs(1_793_073_600);
        let late = noon + Duration::from_secs(11 * 3600 + 1800);
        let hour = Duration::from_secs(3600);
        for (now, expected) in [(noon, 1), (late, 2)] {
            let clock = day("Asia/Shanghai", now);
            let mut window = window(clock.day(now));
            let mut news = 0;
            // Ahead, back, back, ahead: over midnight the day ahead has begun, and goes on.
            for at in [now, now + hour, now, now - hour, now, now + hour, now] {
                window.set_tick(clock.day(at));
                news += usize::from(window.observe(&[[7; 16]]) == Some(vec![Seen::New]));
            }
            assert_eq!(news, expected);
        }
    }

    /// A clock that is days ahead, for an hour or at a start: the window is reset by it, and then
    /// once per midnight, also after a restart.
    #[test]
    fn day_after_a_clock_that_was_ahead_ends_at_midnight() {
        for ahead in [1, 3] {
            day_after_a_clock_ahead_ends_at_midnight(ahead);
        }
    }

    fn day_after_a_clock_ahead_ends_at_midnight(ahead: u32) {
        let noon = UNIX_EPOCH + Duration::from_secs(1_793_073_600);
        let (hour, days) = (Duration::from_secs(3600), |n: u32| {
            Duration::from_secs(86_400) * n
        });
        let clock = day("Asia/Shanghai", noon);
        let mut window = window(clock.day(noon));
        let mut observe = |clock: &Clock, at| {
            window.set_tick(clock.day(at));
            window.observe(&[[7; 16]]) == Some(vec![Seen::New])
        };
        assert!(observe(&clock, noon));
        assert!(observe(&clock, noon + days(ahead)));
        assert_eq!(clock.days_ahead(), 0);
        // Set back: the day goes on, and ends at midnight.
        assert!(!observe(&clock, noon + hour));
        let tick = clock.day(noon + hour);
        assert_eq!(
            (clock.days_ahead(), clock.tick_of(noon)),
            (ahead.into(), tick)
        );
        assert!(!observe(&clock, noon + 11 * hour));
        assert!(observe(&clock, noon + 12 * hour));
        assert!(!observe(&clock, noon + days(1)));
        // A restart at the tick of the files.
        let length = Length::Day(Calendar::new(PeriodUnit::Day, Some("Asia/Shanghai")).unwrap());
        let at = noon + days(1) + hour;
        let restarted = Clock::start(&length, clock.day(at), 0, at);
        assert!(!observe(&restarted, at));
        assert!(observe(&restarted, noon + days(2)));
    }

    fn window(tick: u64) -> Window {
        let spec = WindowSpec {
            capacity: 100,
            fpr: 1e-9,
            count: 1,
            whole_keys: false,
            lifetime: 1,
        };
        Window::new(spec, tick).unwrap()
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
            let begin = UNIX_EPOCH + Duration::from_secs(first_day);
            let clock = day(zone, begin);
            let mut window = window(clock.day(begin));
            let mut resets = Vec::new();
            for minute in 0..hours.iter().sum::<u64>() * 60 {
                window.set_tick(clock.day(begin + Duration::from_secs(minute * 60)));
                if window.observe(&[[7; 16]]) == Some(vec![Seen::New]) {
                    resets.push(minute);
                }
            }
            let half_hour = if zone.starts_with("Australia") { 30 } else { 0 };
            let expected = [0, hours[0] * 60, (hours[0] + hours[1]) * 60 + half_hour];
            assert_eq!(resets, expected, "{zone}");
        }
    }
}
