//! Engines in process: Bloom filters in shared memory.

pub(crate) mod apbf;
pub(crate) mod bits;
pub(crate) mod blocked;
pub(crate) mod plain;
pub(crate) mod rtad;

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Keys whose cache misses overlap.
pub(crate) const GROUP: usize = 16;

/// Read lock of a batch. A panic of another thread leaves consistent bits.
pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Write lock of a rotation.
pub(crate) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::engine::{ENGINES, Entry, Key, Sizing};
    use crate::workload::key;

    const TICKS: u64 = 8;

    fn local() -> impl Iterator<Item = &'static Entry> {
        ENGINES.iter().filter(|entry| !entry.is_network)
    }

    fn sizing(keys: u64, fpr: f64) -> Sizing {
        Sizing { keys, fpr, ticks: TICKS, window: Duration::ZERO, redisbloom: None }
    }

    fn keys(tick: u64, count: u64) -> Vec<Key> {
        (0..count).map(|index| key(tick, index)).collect()
    }

    #[test]
    fn key_is_new_once_in_a_batch() {
        for entry in local() {
            let (engine, _) = (entry.build)(&sizing(8000, 1e-9)).unwrap();
            let mut out = vec![true; 3];
            engine.observe(&[key(0, 1), key(0, 2), key(0, 1), key(0, 1)], &mut out).unwrap();
            assert_eq!(out, [true, true, false, false], "{}", entry.name);
        }
    }

    #[test]
    fn key_is_a_duplicate_for_a_window_and_new_after_its_slack() {
        for entry in local() {
            for first in 0..2 * TICKS {
                let (engine, _) = (entry.build)(&sizing(8000, 1e-9)).unwrap();
                let mut out = Vec::new();
                for tick in 0..first + 3 * TICKS {
                    if tick > 0 {
                        engine.advance(tick).unwrap();
                    }
                    if tick == first || tick + 1 == first + TICKS {
                        engine.observe(&[key(0, 0)], &mut out).unwrap();
                        assert_eq!(out, [tick == first], "{} at {tick}", entry.name);
                    }
                }
                engine.observe(&[key(0, 0)], &mut out).unwrap();
                assert_eq!(out, [true], "{} of tick {first}", entry.name);
            }
        }
    }

    #[test]
    fn false_positive_rate_of_a_full_window_is_that_of_the_sizing() {
        let (per_tick, fpr) = (10_000, 1e-2);
        for entry in local() {
            let (engine, _) = (entry.build)(&sizing(per_tick * TICKS, fpr)).unwrap();
            let (mut out, mut found) = (Vec::new(), 0);
            for tick in 0..3 * TICKS {
                if tick > 0 {
                    engine.advance(tick).unwrap();
                }
                engine.observe(&keys(tick, per_tick), &mut out).unwrap();
                if tick >= 2 * TICKS {
                    found += out.iter().filter(|is_new| !**is_new).count();
                }
            }
            let rate = found as f64 / (per_tick * TICKS) as f64;
            // The rate of a table of fingerprints is that of its width, which is far lower.
            let least = if entry.name.starts_with("rtad") { 0.0 } else { 0.3 * fpr };
            assert!((least..1.1 * fpr).contains(&rate), "{}: {rate}", entry.name);
        }
    }
}
