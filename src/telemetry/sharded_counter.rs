//! Counts of what happens with each request. Every worker has its own, which others only read: to count costs no core a cache line that
//! another wants, nor a locked instruction.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

thread_local! {
    /// Which of the counts are this thread's alone; the first are everybody's.
    static MINE: Cell<usize> = const { Cell::new(0) };
}

/// Has this thread count by itself, as the only one with this number. Threads that nobody numbers share their counts.
pub fn count_as_worker(number: usize) {
    MINE.set(number + 1);
}

/// `N` counts of one thread. Two cache lines stand apart, as processors fetch them in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct PerWorkerCounters<const N: usize>([AtomicU64; N]);

/// `N` counts, by thread.
#[derive(Debug, Clone)]
pub(super) struct ShardedCounter<const N: usize>(Arc<[PerWorkerCounters<N>]>);

impl<const N: usize> Default for ShardedCounter<N> {
    fn default() -> Self {
        // Workers beyond the CPUs share theirs.
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self(
            (0..=threads)
                .map(|_| PerWorkerCounters(std::array::from_fn(|_| AtomicU64::new(0))))
                .collect(),
        )
    }
}

impl<const N: usize> ShardedCounter<N> {
    /// Adds to the count at `place`; wraps, so that what was added can be taken off by the same thread.
    #[inline]
    pub(super) fn add(&self, place: usize, count: u64) {
        match self.0.get(MINE.get()) {
            Some(own) if MINE.get() > 0 => {
                let own = &own.0[place];
                // Nobody else writes it.
                own.store(own.load(Relaxed).wrapping_add(count), Relaxed);
            }
            _ => {
                self.0[0].0[place].fetch_add(count, Relaxed);
            }
        }
    }

    /// What all threads have counted at `place`.
    pub(super) fn sum(&self, place: usize) -> u64 {
        self.0.iter().fold(0, |sum, own| sum.wrapping_add(own.0[place].load(Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_whoever_counts() {
        let counter = ShardedCounter::<3>::default();
        std::thread::scope(|scope| {
            // Two that are numbered, two that are not, and one with a number beyond all CPUs.
            for number in [Some(0), Some(1), None, None, Some(1_000_000)] {
                let counter = &counter;
                scope.spawn(move || {
                    if let Some(number) = number {
                        count_as_worker(number);
                    }
                    for _ in 0..100_000 {
                        counter.add(1, 2);
                        counter.add(2, 1);
                        counter.add(2, u64::MAX);
                    }
                });
            }
        });
        assert_eq!([0, 1, 2].map(|place| counter.sum(place)), [0, 1_000_000, 0]);
    }
}
