//! Open connections: their number, and the time since the last one closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The connections of one port.
#[derive(Debug)]
pub struct OpenConnections {
    started: Instant,
    count: AtomicUsize,
    /// Time of the last close, in milliseconds since `started`; `NEVER` before the first.
    closed: AtomicU64,
}

const NEVER: u64 = u64::MAX;

impl Default for OpenConnections {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            count: AtomicUsize::new(0),
            closed: AtomicU64::new(NEVER),
        }
    }
}

impl OpenConnections {
    /// Adds a connection, and returns whether it is within `limit`.
    pub fn open(self: &Arc<Self>, limit: usize) -> (ConnectionPermit, bool) {
        let is_within = self.count.fetch_add(1, Ordering::Relaxed) < limit;
        (ConnectionPermit(Arc::clone(self)), is_within)
    }

    pub fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Time since the last connection closed: zero while one is open, [`Duration::MAX`] if there
    /// was none.
    pub fn unused_for(&self) -> Duration {
        match (self.count(), self.closed.load(Ordering::Relaxed)) {
            (0, NEVER) => Duration::MAX,
            (0, closed) => self
                .started
                .elapsed()
                .saturating_sub(Duration::from_millis(closed)),
            _ => Duration::ZERO,
        }
    }
}

/// A connection's permit under a limit; returned when dropped.
#[derive(Debug)]
pub struct ConnectionPermit(Arc<OpenConnections>);

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        // The time precedes the count: a reader of count 0 must not see an older time.
        self.0.closed.store(
            self.0.started.elapsed().as_millis() as u64,
            Ordering::Release,
        );
        self.0.count.fetch_sub(1, Ordering::Release);
    }
}
