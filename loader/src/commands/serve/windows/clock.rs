//! Clock of a window: its current tick. A tick never goes back.
//!
//! A sliding window counts ticks with the monotonic clock, so that a step of the wall clock makes
//! nothing expire early or late; the wall clock decides only how long a stopped process was gone. A
//! day follows the wall clock: a step over midnight begins the next day at once, and a step back
//! over midnight leaves the new day running.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rtad_core::period::{Calendar, Period};

use super::config::{Length, TICKS};

pub(super) enum Clock {
    Sliding { started: Instant, first: u64, tick: Duration },
    Day { calendar: Calendar, today: Mutex<Period> },
}

/// The tick at a time, for a window that is opened.
pub(super) fn tick_at(length: &Length, now: SystemTime) -> u64 {
    match length {
        Length::Sliding(length) => {
            let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
            (since.as_nanos() / tick_of(*length).as_nanos()) as u64
        }
        Length::Day(calendar) => calendar.at(now).number,
    }
}

fn tick_of(length: Duration) -> Duration {
    length / u32::from(TICKS)
}

impl Clock {
    /// Starts a clock at the tick of an opened window, which is `tick_at` or later.
    pub(super) fn start(length: &Length, tick: u64, now: SystemTime) -> Self {
        match length {
            Length::Sliding(length) => {
                Self::Sliding { started: Instant::now(), first: tick, tick: tick_of(*length) }
            }
            Length::Day(calendar) => {
                let today = Mutex::new(calendar.at(now));
                Self::Day { calendar: calendar.clone(), today }
            }
        }
    }

    /// The current tick; may lie before an earlier one after a step of the wall clock.
    pub(super) fn tick(&self) -> u64 {
        match self {
            Self::Sliding { started, first, tick } => {
                first + (started.elapsed().as_nanos() / tick.as_nanos()) as u64
            }
            Self::Day { .. } => self.day(SystemTime::now()),
        }
    }

    fn day(&self, now: SystemTime) -> u64 {
        let Self::Day { calendar, today } = self else { return 0 };
        let mut today = today.lock().unwrap_or_else(PoisonError::into_inner);
        if !today.contains(now) {
            *today = calendar.at(now);
        }
        today.number
    }

    /// Age of an entry, from its ticks. `None` for days: the entry is of today.
    pub(super) fn age(&self, ticks: u64) -> Option<Duration> {
        match self {
            Self::Sliding { tick, .. } => Some(tick.saturating_mul(ticks as u32)),
            Self::Day { .. } => None,
        }
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
        let at = |hours: u64| tick_at(&day, midnight + Duration::from_secs(hours * 3600));
        assert_eq!(at(0), at(24));
        assert_eq!(at(25), at(0) + 1);
    }

    #[test]
    fn sliding_ticks_continue_after_the_opened_tick() {
        let length = Length::Sliding(Duration::from_millis(1280));
        let now = SystemTime::now();
        let opened = tick_at(&length, now) + 5;
        let clock = Clock::start(&length, opened, now);
        assert!((opened..opened + 3).contains(&clock.tick()));
        std::thread::sleep(Duration::from_millis(50));
        assert!(clock.tick() >= opened + 5);
    }

    fn day(zone: &str, now: SystemTime) -> Clock {
        let calendar = Calendar::new(PeriodUnit::Day, Some(zone)).unwrap();
        let length = Length::Day(calendar);
        Clock::start(&length, tick_at(&length, now), now)
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
            let window = window(clock.day(now));
            let mut news = 0;
            // Ahead, back, back, ahead: over midnight the day ahead has begun, and goes on.
            for at in [now, now + hour, now, now - hour, now, now + hour, now] {
                window.set_tick(clock.day(at));
                news += usize::from(window.observe(&[[7; 16]])[0] == Seen::New);
            }
            assert_eq!(news, expected);
        }
    }

    fn window(tick: u64) -> Window {
        let spec =
            WindowSpec { capacity: 100, fpr: 1e-9, count: 1, whole_keys: false, lifetime: 1 };
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
            let window = window(clock.day(begin));
            let mut resets = Vec::new();
            for minute in 0..hours.iter().sum::<u64>() * 60 {
                window.set_tick(clock.day(begin + Duration::from_secs(minute * 60)));
                if window.observe(&[[7; 16]])[0] == Seen::New {
                    resets.push(minute);
                }
            }
            let half_hour = if zone.starts_with("Australia") { 30 } else { 0 };
            let expected = [0, hours[0] * 60, (hours[0] + hours[1]) * 60 + half_hour];
            assert_eq!(resets, expected, "{zone}");
        }
    }
}
