//! Time between attempts, doubled after each failure.

use std::time::Duration;

/// The time before the next attempt.
#[derive(Debug)]
pub struct Backoff {
    least: Duration,
    most: Duration,
    last: Option<Duration>,
}

impl Backoff {
    /// From the least time to the most.
    pub const fn new([least, most]: [Duration; 2]) -> Self {
        Self {
            least,
            most,
            last: None,
        }
    }

    /// The time after another failure.
    pub fn next(&mut self) -> Duration {
        let next = self.last.map_or(self.least, |last| self.most.min(2 * last));
        self.last = Some(next);
        next
    }

    /// Begins with the least time again.
    pub const fn reset(&mut self) {
        self.last = None;
    }
}
