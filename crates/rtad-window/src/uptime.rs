//! Clock of staleness: it goes on while the machine sleeps or the process is stopped.

use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A reading of the clock; tests have their own.
pub type Uptime = Arc<dyn Fn() -> Duration + Send + Sync>;

/// Time since the start of the machine.
pub fn uptime() -> Duration {
    #[cfg(target_os = "linux")]
    const CLOCK: ClockId = ClockId::Boottime;
    // Elsewhere it stands still while the machine sleeps.
    #[cfg(not(target_os = "linux"))]
    const CLOCK: ClockId = ClockId::Monotonic;
    let time = clock_gettime(CLOCK);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
