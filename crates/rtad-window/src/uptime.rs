//! Clocks of staleness. The uptime goes on while the machine sleeps or the process is stopped. It
//! stands still with a virtual machine that is suspended; then the wall clock is set ahead later.

use std::sync::Arc;
use std::time::Duration;

use rtad_core::clock::{now_unix_seconds, uptime};

/// A reading of the machine's clocks.
#[derive(Debug, Clone, Copy)]
pub struct MachineTime {
    /// Time since its start.
    pub up: Duration,
    /// Seconds since 1970 by the wall clock.
    pub wall_seconds: u64,
}

impl MachineTime {
    /// The clocks now.
    pub fn now() -> Self {
        Self {
            up: uptime(),
            wall_seconds: now_unix_seconds(),
        }
    }

    /// Time since an earlier reading, by the clock that went further.
    pub fn since(self, earlier: Self) -> Duration {
        let wall_seconds = self.wall_seconds.saturating_sub(earlier.wall_seconds);
        let up = self.up.saturating_sub(earlier.up);
        up.max(Duration::from_secs(wall_seconds))
    }

    /// By how many seconds the wall clock is ahead of the other one.
    pub const fn wall_ahead(self) -> i64 {
        self.wall_seconds as i64 - self.up.as_secs() as i64
    }
}

/// The clocks; tests have their own.
pub type MachineClock = Arc<dyn Fn() -> MachineTime + Send + Sync>;
