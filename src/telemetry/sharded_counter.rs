//! Sharded counters: each worker writes a slot of its own, so counting needs no locked instruction
//! and shares no cache line.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

thread_local! {
    /// Index of this thread's own slot; slot 0 is shared.
    static SLOT: Cell<usize> = const { Cell::new(0) };
}

/// Gives this thread a slot of its own. `number` must be unique; other threads share slot 0.
pub fn count_as_worker(number: usize) {
    SLOT.set(number + 1);
}

/// `N` counters of one thread. Aligned to two cache lines, which processors fetch in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct PerWorkerCounters<const N: usize>([AtomicU64; N]);

/// `N` counters, with a slot per worker.
#[derive(Debug, Clone)]
pub(super) struct ShardedCounter<const N: usize>(Arc<[PerWorkerCounters<N>]>);

impl<const N: usize> Default for ShardedCounter<N> {
    fn default() -> Self {
        // Workers beyond the CPUs share slot 0.
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self(
            (0..=threads)
                .map(|_| PerWorkerCounters(std::array::from_fn(|_| AtomicU64::new(0))))
                .collect(),
        )
    }
}

impl<const N: usize> ShardedCounter<N> {
    /// Adds to the counter at `index`. Wraps, so that the same thread can subtract.
    #[inline]
    pub(super) fn add(&self, index: usize, count: u64) {
        match self.0.get(SLOT.get()) {
            Some(own) if SLOT.get() > 0 => {
                let own = &own.0[index];
                // Only this thread writes it.
                own.store(own.load(Relaxed).wrapping_add(count), Relaxed);
            }
            _ => {
                self.0[0].0[index].fetch_add(count, Relaxed);
            }
        }
    }

    /// Sum of all slots of the counter at `index`.
    pub(super) fn sum(&self, index: usize) -> u64 {
        self.0.iter().fold(0, |sum, own| sum.wrapping_add(own.0[index].load(Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_covers_own_and_shared_slots() {
        let counter = ShardedCounter::<3>::default();
        std::thread::scope(|scope| {
            // Two numbered threads, two unnumbered ones, and one numbered beyond the CPUs.
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
        assert_eq!([0, 1, 2].map(|index| counter.sum(index)), [0, 1_000_000, 0]);
    }
}
