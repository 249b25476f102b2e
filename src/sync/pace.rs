//! When the store is asked next: jitter, backing off, and what the store itself asks for.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

/// While the store fails, polls are at most so many intervals apart.
const MAX_BACKOFF: u32 = 6;
/// A `Retry-After` beyond this is not believed.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);
/// Most that the fetching of chunks is put off, and what part of a poll interval.
const MAX_SPREAD: Duration = Duration::from_secs(1);
const SPREAD_PARTS: u32 = 10;

/// How the last looks went, as far as it concerns when to look again.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Rounds, one after the other, in which the store failed.
    failures: u32,
    /// In this round.
    has_failed: bool,
    retry_after: Option<Duration>,
}

impl Pace {
    /// Begins a round of looks.
    pub(super) const fn begin(&mut self) {
        self.has_failed = false;
        self.retry_after = None;
    }

    /// The store failed, and may have asked to be left alone for so long.
    pub(super) fn failed(&mut self, retry_after: Option<Duration>) {
        self.has_failed = true;
        self.retry_after =
            self.retry_after.max(retry_after.map(|asked| asked.min(MAX_RETRY_AFTER)));
    }

    /// Ends the round.
    pub(super) const fn end(&mut self) {
        self.failures = if self.has_failed { self.failures.saturating_add(1) } else { 0 };
    }

    /// How long to wait for the next round. After a failure the jitter is wider: what failed for one failed for the fleet.
    pub(super) fn delay(&self, poll_interval: Duration) -> Duration {
        // The first failure changes nothing: most pass by themselves.
        let doublings = self.failures.saturating_sub(1).min(8);
        let backed_off = poll_interval * (1 << doublings).min(MAX_BACKOFF);
        let delay = if doublings == 0 {
            varied(backed_off, 0.9, 1.1)
        } else {
            varied(backed_off, 0.75, 1.25)
        };
        // Not all at the very moment that was named.
        delay.max(varied(self.retry_after.unwrap_or_default(), 1.0, 1.1))
    }
}

/// For how long the fetching of a new generation's chunks is put off, so that a fleet does not begin all at once. Far too
/// short for anybody to miss.
pub(super) fn spread(poll_interval: Duration) -> Duration {
    varied((poll_interval / SPREAD_PARTS).min(MAX_SPREAD), 0.0, 1.0)
}

/// The duration times a random number between these.
fn varied(duration: Duration, least: f64, most: f64) -> Duration {
    let random = RandomState::new().build_hasher().finish() as f64 / u64::MAX as f64;
    duration.mul_f64(least + (most - least) * random)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Asserts that delays lie between these, in seconds, whatever the dice say.
    #[track_caller]
    fn assert_between(pace: &Pace, least: f64, most: f64) {
        for _ in 0..1000 {
            let delay = pace.delay(10 * SECOND).as_secs_f64();
            assert!((least..=most).contains(&delay), "{delay} is not within {least} and {most}");
        }
    }

    #[test]
    fn intervals_vary_by_a_tenth() {
        assert_between(&Pace::default(), 9.0, 11.0);
    }

    fn round(pace: &mut Pace, failure: Option<Option<Duration>>) {
        pace.begin();
        if let Some(retry_after) = failure {
            pace.failed(retry_after);
        }
        pace.end();
    }

    #[test]
    fn a_store_that_fails_is_asked_less_and_less_and_as_before_once_it_is_back() {
        let mut pace = Pace::default();
        for (least, most) in [(9.0, 11.0), (15.0, 25.0), (30.0, 50.0), (45.0, 75.0), (45.0, 75.0)] {
            round(&mut pace, Some(None));
            assert_between(&pace, least, most);
        }
        (0..1000).for_each(|_| round(&mut pace, Some(None)));
        assert_between(&pace, 45.0, 75.0);
        round(&mut pace, None);
        assert_between(&pace, 9.0, 11.0);
    }

    #[test]
    fn what_the_store_asks_for_is_honoured_within_reason() {
        for (asked, least, most) in [(1, 9.0, 11.0), (60, 60.0, 66.0), (1_000_000, 300.0, 330.0)] {
            let mut pace = Pace::default();
            pace.begin();
            for asked in [Some(SECOND), Some(SECOND * asked), None] {
                pace.failed(asked);
            }
            pace.end();
            assert_between(&pace, least, most);
            round(&mut pace, None);
            assert_between(&pace, 9.0, 11.0);
        }
    }

    #[test]
    fn fetching_is_spread_over_a_second_at_most() {
        for _ in 0..1000 {
            assert!(spread(100 * SECOND) <= SECOND);
            assert!(spread(SECOND) <= SECOND / 10);
        }
    }
}
