//! Poll pacing: jitter, shorter intervals for audiences of windows, exponential backoff.

use std::time::Duration;

use rtad_core::backoff::Backoff;
use rtad_core::random;

/// Longest backoff while the store fails, in poll intervals.
const MAX_BACKOFF: u32 = 6;
/// Polls of an audience of a window per poll interval, but not more than one per
/// `LEAST_WINDOW_INTERVAL`.
const WINDOW_POLLS: u32 = 4;
const LEAST_WINDOW_INTERVAL: Duration = Duration::from_secs(1);
/// Longest delay of the first chunk: this, or a tenth of the poll interval.
const MAX_SPREAD: Duration = Duration::from_secs(1);
const SPREAD_PARTS: u32 = 10;

/// Store failures that determine the time of the next poll of an audience.
#[derive(Debug)]
pub(super) struct Pace {
    /// In poll intervals.
    backoff: Backoff,
    /// Whether the served audience follows a window, and changes at any second.
    is_from_window: bool,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            backoff: Backoff::new(MAX_BACKOFF),
            is_from_window: false,
        }
    }
}

impl Pace {
    /// Records a poll without a failure of the store.
    pub(super) const fn record_success(&mut self) {
        self.backoff.reset();
    }

    /// Records a failure of the store.
    pub(super) fn record_failure(&mut self) {
        self.backoff.fail();
    }

    /// Records whether the audience that is served now follows a window.
    pub(super) const fn record_source(&mut self, is_from_window: bool) {
        self.is_from_window = is_from_window;
    }

    /// Time until the next poll. Repeated failures widen the jitter, because the whole fleet
    /// retries.
    pub(super) fn delay(&self, poll_interval: Duration) -> Duration {
        let poll_interval = if self.is_from_window && self.backoff.units() == 0 {
            (poll_interval / WINDOW_POLLS)
                .max(LEAST_WINDOW_INTERVAL)
                .min(poll_interval)
        } else {
            poll_interval
        };
        // One interval also after the first failure: most are transient.
        let intervals = self.backoff.units().max(1);
        let backed_off = poll_interval * intervals;
        if intervals == 1 {
            jittered(backed_off, 0.9, 1.1)
        } else {
            jittered(backed_off, 0.75, 1.25)
        }
    }
}

/// Random delay before a new generation's chunks are fetched, so that the pods of a fleet do not
/// start at once.
pub fn spread(poll_interval: Duration) -> Duration {
    jittered((poll_interval / SPREAD_PARTS).min(MAX_SPREAD), 0.0, 1.0)
}

/// The duration, times a random factor between `least` and `most`.
fn jittered(duration: Duration, least: f64, most: f64) -> Duration {
    duration.mul_f64(least + (most - least) * random::fraction())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Asserts that all random delays are within these bounds, in seconds.
    #[track_caller]
    fn assert_between(pace: &Pace, least: f64, most: f64) {
        for _ in 0..1000 {
            let delay = pace.delay(10 * SECOND).as_secs_f64();
            assert!(
                (least..=most).contains(&delay),
                "{delay} is not within {least} and {most}"
            );
        }
    }

    #[test]
    fn intervals_vary_by_a_tenth() {
        assert_between(&Pace::default(), 9.0, 11.0);
    }

    #[test]
    fn polls_back_off_while_the_store_fails_and_recover_at_once() {
        let mut pace = Pace::default();
        for (least, most) in [
            (9.0, 11.0),
            (15.0, 25.0),
            (30.0, 50.0),
            (45.0, 75.0),
            (45.0, 75.0),
        ] {
            pace.record_failure();
            assert_between(&pace, least, most);
        }
        (0..1000).for_each(|_| pace.record_failure());
        assert_between(&pace, 45.0, 75.0);
        pace.record_success();
        assert_between(&pace, 9.0, 11.0);
    }

    #[test]
    fn audiences_of_windows_are_polled_four_times_as_often() {
        let mut pace = Pace::default();
        pace.record_source(true);
        assert_between(&pace, 2.25, 2.75);
        assert!(
            pace.delay(2 * SECOND) >= SECOND * 9 / 10,
            "once a second at most"
        );
        assert!(
            pace.delay(SECOND / 10) <= SECOND * 11 / 100,
            "no slower than configured"
        );
        pace.record_failure();
        assert_between(&pace, 9.0, 11.0);
        pace.record_success();
        assert_between(&pace, 2.25, 2.75);
        // A build took the audience over.
        pace.record_source(false);
        assert_between(&pace, 9.0, 11.0);
    }

    #[test]
    fn fetching_is_spread_over_a_second_at_most() {
        for _ in 0..1000 {
            assert!(spread(100 * SECOND) <= SECOND);
            assert!(spread(SECOND) <= SECOND / 10);
        }
    }
}
