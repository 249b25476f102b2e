//! Counters of failures of platforms' requests.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use metrics::Counter;

/// Counter of a platform's failures with one cause.
#[derive(Debug, Clone)]
pub struct FailureCounter {
    exported: Counter,
    /// The exporter's counter cannot be read.
    count: Arc<AtomicU64>,
}

impl FailureCounter {
    pub(super) fn new(exported: Counter) -> Self {
        Self { exported, count: Arc::default() }
    }

    /// Counts a failure.
    pub fn increment(&self) {
        self.exported.increment(1);
        self.count.fetch_add(1, Relaxed);
    }

    pub(super) fn total(&self) -> u64 {
        self.count.load(Relaxed)
    }
}
