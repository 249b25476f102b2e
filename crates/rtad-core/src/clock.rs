//! Clocks of the process: the wall clock, and the time since the start of the machine.
//!
//! Times that only measure a duration are `tokio::time::Instant`. The feature `simulated` lets a
//! simulation set all three.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The wall clock.
#[must_use]
pub fn now() -> SystemTime {
    #[cfg(feature = "simulated")]
    if let Some(clocks) = simulated::clocks() {
        return clocks.wall;
    }
    SystemTime::now()
}

/// Time since the start of the machine. It goes on while the machine sleeps or the process is
/// stopped.
#[must_use]
pub fn uptime() -> Duration {
    #[cfg(feature = "simulated")]
    if let Some(clocks) = simulated::clocks() {
        return clocks.uptime;
    }
    since_start()
}

fn since_start() -> Duration {
    use rustix::time::{ClockId, clock_gettime};

    #[cfg(target_os = "linux")]
    const CLOCK: ClockId = ClockId::Boottime;
    // Elsewhere it stands still while the machine sleeps.
    #[cfg(not(target_os = "linux"))]
    const CLOCK: ClockId = ClockId::Monotonic;
    let time = clock_gettime(CLOCK);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The wall clock as Unix time in whole seconds; 0 before 1970.
#[must_use]
pub fn now_unix_seconds() -> u64 {
    unix_seconds(now())
}

/// A time of the wall clock.
#[must_use]
pub fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Clocks of a simulated process.
#[cfg(feature = "simulated")]
pub mod simulated {
    use std::cell::Cell;
    use std::time::{Duration, SystemTime};

    /// Readings of the clocks.
    #[derive(Debug, Clone, Copy)]
    pub struct Clocks {
        /// See [`super::now`].
        pub wall: SystemTime,
        /// See [`super::uptime`].
        pub uptime: Duration,
    }

    thread_local! {
        static CLOCKS: Cell<Option<Clocks>> = const { Cell::new(None) };
    }

    pub(super) fn clocks() -> Option<Clocks> {
        CLOCKS.get()
    }

    /// Sets the clocks of this thread; `None` for those of the machine. Returns what was set.
    pub fn set(clocks: Option<Clocks>) -> Option<Clocks> {
        CLOCKS.replace(clocks)
    }
}
