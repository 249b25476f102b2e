//! Unix time in whole seconds; 0 before 1970.

use std::time::{SystemTime, UNIX_EPOCH};

/// The time now.
#[must_use]
pub fn now_unix_seconds() -> u64 {
    unix_seconds(SystemTime::now())
}

/// A time of the wall clock.
#[must_use]
pub fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
