//! Waiting for a condition, within a deadline.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// Deadline of every wait. It only ends a test that would hang.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Result of one check of a condition: `bool`, or `Option` for a value that is not there yet.
pub trait Check {
    /// Value that comes with the condition.
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

/// Checks until the condition holds; panics with `what` at the [`DEADLINE`].
#[track_caller]
pub fn wait_until<C: Check>(what: &str, mut check: impl FnMut() -> C) -> C::Value {
    let begun = Instant::now();
    loop {
        if let Some(value) = check().passed() {
            return value;
        }
        assert!(begun.elapsed() < DEADLINE, "never came true: {what}");
        sleep(Duration::from_millis(2));
    }
}
