//! Latency quantiles of sorted latencies in microseconds.

use std::time::Duration;

/// The reported quantiles and their names.
pub const QUANTILES: [(&str, f64); 4] =
    [("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)];

/// The latency at this share of all; 0 if there is none.
pub fn quantile(sorted: &[u32], share: f64) -> u32 {
    let index = (sorted.len() as f64 * share) as usize;
    sorted.get(index).or(sorted.last()).copied().unwrap_or(0)
}

/// The number of latencies up to `limit`.
pub fn within(sorted: &[u32], limit: Duration) -> usize {
    sorted.partition_point(|latency| u128::from(*latency) <= limit.as_micros())
}
