//! Waits for a condition, with a deadline.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// Deadline of every wait, for tests that would hang. A pod loads at the lowest priority: beside
/// tests that use all processors, a load of a second takes more than a minute.
pub const DEADLINE: Duration = Duration::from_secs(300);

/// Pauses between checks. They grow with the time waited: a check may cost the server more than the
/// test.
const SHORTEST: Duration = Duration::from_millis(2);
const LONGEST: Duration = Duration::from_millis(20);

/// Result of one check of a condition: `bool`, or `Option` for a value.
pub trait Check {
    /// Value of a passed check.
    type Value;

    /// The value, if the condition holds.
    fn passed(self) -> Option<Self::Value>;
}

impl Check for bool {
    type Value = ();

    fn passed(self) -> Option<()> {
        self.then_some(())
    }
}

impl<T> Check for Option<T> {
    type Value = T;

    fn passed(self) -> Self {
        self
    }
}

/// Repeats a check until it passes; panics with `what` at the [`DEADLINE`].
#[track_caller]
pub fn wait_until<C: Check>(what: &str, mut check: impl FnMut() -> C) -> C::Value {
    let begun = Instant::now();
    loop {
        if let Some(value) = check().passed() {
            return value;
        }
        assert!(begun.elapsed() < DEADLINE, "timed out waiting for: {what}");
        sleep(begun.elapsed().clamp(SHORTEST, LONGEST));
    }
}
