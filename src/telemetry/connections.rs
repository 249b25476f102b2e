//! Open connections: how many, and for how long there has been none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The connections of one port.
#[derive(Debug)]
pub(super) struct OpenConnections {
    begun: Instant,
    count: AtomicUsize,
    /// When one was closed last, in milliseconds since `begun`; `NEVER` before that.
    closed: AtomicU64,
}

const NEVER: u64 = u64::MAX;

impl Default for OpenConnections {
    fn default() -> Self {
        Self { begun: Instant::now(), count: AtomicUsize::new(0), closed: AtomicU64::new(NEVER) }
    }
}

impl OpenConnections {
    /// One more, and whether it is among the first `limit`.
    pub(super) fn open(self: &Arc<Self>, limit: usize) -> (ConnectionPermit, bool) {
        let is_within = self.count.fetch_add(1, Ordering::Relaxed) < limit;
        (ConnectionPermit(Arc::clone(self)), is_within)
    }

    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// For how long none has been open: nothing while one is.
    pub(super) fn unused_for(&self) -> Duration {
        match (self.count(), self.closed.load(Ordering::Relaxed)) {
            (0, NEVER) => Duration::MAX,
            (0, closed) => self.begun.elapsed().saturating_sub(Duration::from_millis(closed)),
            _ => Duration::ZERO,
        }
    }
}

/// A connection's place under a limit; given back when dropped.
#[derive(Debug)]
pub struct ConnectionPermit(Arc<OpenConnections>);

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        // First, so that nobody sees that there is none, and an older time.
        self.0.closed.store(self.0.begun.elapsed().as_millis() as u64, Ordering::Release);
        self.0.count.fetch_sub(1, Ordering::Release);
    }
}
