//! Measurement of the false-positive rate with random keys.
//!
//! A random key is a member with a chance of 2⁻¹²⁸ only. Keys depend on their index alone, so a
//! measurement is reproducible on any number of threads.

use std::ops::Range;

use parking_lot::Mutex;
use serde::Serialize;

use rtad_core::snapshot::Snapshot;
use rtad_core::synth::random_key;

use crate::keys::next;
use crate::progress::Progress;

/// Expected false positives of a default measurement: enough for an interval of ±2 %.
const WANTED_POSITIVES: f64 = 10_000.0;
const MAX_DEFAULT_PROBES: u64 = 200_000_000;
const BATCH_KEYS: usize = 4096;
const BATCHES_PER_TASK: u64 = 256;
/// The normal distribution's 97.5th percentile: two-sided 95 %.
const Z: f64 = 1.959_963_985;

#[derive(Debug, Clone, Copy, Serialize)]
pub struct MeasuredFpr {
    pub probes: u64,
    pub false_positives: u64,
    pub measured_fpr: f64,
    /// 95 % interval (Wilson 1927).
    pub low: f64,
    pub high: f64,
}

/// Default number of random keys.
pub fn default_probes(expected_fpr: f64) -> u64 {
    // A snapshot without keys has no false positives at any number of probes.
    if expected_fpr <= 0.0 {
        return 1_000_000;
    }
    ((WANTED_POSITIVES / expected_fpr).ceil() as u64).min(MAX_DEFAULT_PROBES)
}

/// Looks up `probes` non-members in `snapshot`.
pub fn measure(
    snapshot: &Snapshot,
    probes: u64,
    threads: usize,
    progress: &Progress,
) -> MeasuredFpr {
    let size = BATCHES_PER_TASK * BATCH_KEYS as u64;
    let tasks =
        (0..probes.div_ceil(size)).map(|index| index * size..probes.min((index + 1) * size));
    let queue = Mutex::new(tasks);
    let mut false_positives = 0;
    std::thread::scope(|scope| {
        let mut workers = Vec::with_capacity(threads);
        for _ in 0..threads {
            workers.push(scope.spawn(|| {
                let mut found = 0;
                while let Some(task) = next(&queue) {
                    progress.add(task.end - task.start);
                    found += count_members(snapshot, task);
                }
                found
            }));
        }
        for worker in workers {
            match worker.join() {
                Ok(found) => false_positives += found,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });

    let (low, high) = wilson(false_positives, probes);
    let measured_fpr = if probes == 0 {
        0.0
    } else {
        false_positives as f64 / probes as f64
    };
    MeasuredFpr {
        probes,
        false_positives,
        measured_fpr,
        low,
        high,
    }
}

fn count_members(snapshot: &Snapshot, mut indices: Range<u64>) -> u64 {
    let mut keys = Vec::with_capacity(BATCH_KEYS);
    let mut members = vec![false; BATCH_KEYS];
    let mut found = 0;
    while !indices.is_empty() {
        keys.clear();
        keys.extend(indices.by_ref().take(BATCH_KEYS).map(random_key));
        snapshot.contains_many(&keys, &mut members);
        found += members[..keys.len()]
            .iter()
            .filter(|member| **member)
            .count() as u64;
    }
    found
}

/// 95 % confidence interval of a proportion (Wilson 1927).
pub fn wilson(positives: u64, probes: u64) -> (f64, f64) {
    if probes == 0 {
        return (0.0, 1.0);
    }
    let n = probes as f64;
    let p = positives as f64 / n;
    let center = p + Z * Z / (2.0 * n);
    let reach = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + Z * Z / n;
    (
        ((center - reach) / scale).max(0.0),
        (center + reach) / scale,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_matches_published_tables() {
        // 10 of 100 give 0.0552 to 0.1744.
        let (low, high) = wilson(10, 100);
        assert!(
            (low - 0.0552).abs() < 1e-4 && (high - 0.1744).abs() < 1e-4,
            "{low} {high}"
        );
        assert_eq!(wilson(0, 1000).0, 0.0);
        assert_eq!(wilson(0, 0), (0.0, 1.0));
    }

    #[test]
    fn default_probes_are_bounded() {
        assert_eq!(default_probes(0.0001), 100_000_000);
        assert_eq!(default_probes(1e-7), MAX_DEFAULT_PROBES);
        assert_eq!(default_probes(0.0), 1_000_000);
    }
}
