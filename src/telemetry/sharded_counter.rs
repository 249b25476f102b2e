//! Sharded counters: one slot per worker, so that an increment needs neither an atomic
//! read-modify-write nor a cache line of another worker.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

thread_local! {
    /// Index of this thread's slot. Slot 0 is shared by all threads without a slot.
    static SLOT: Cell<usize> = const { Cell::new(0) };
}

/// Assigns slot `number + 1` to this thread. `number` must be unique among workers.
pub fn count_as_worker(number: usize) {
    SLOT.set(number + 1);
}

/// Number of slots: one per CPU, and the shared one. Workers with higher numbers use slot 0.
fn slots() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from) + 1
}

/// `N` counters of one thread. Aligned to two cache lines, which processors fetch in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct PerWorkerCounters<const N: usize>([AtomicU64; N]);

/// `N` counters, with a slot per worker.
#[derive(Debug, Clone)]
pub struct ShardedCounter<const N: usize>(Arc<[PerWorkerCounters<N>]>);

impl<const N: usize> Default for ShardedCounter<N> {
    fn default() -> Self {
        let slots =
            (0..slots()).map(|_| PerWorkerCounters(std::array::from_fn(|_| AtomicU64::new(0))));
        Self(slots.collect())
    }
}

impl<const N: usize> ShardedCounter<N> {
    /// Adds to the counter at `index`. Wraps on overflow, so that adding `u64::MAX` subtracts one.
    #[inline]
    pub fn add(&self, index: usize, count: u64) {
        match self.0.get(SLOT.get()) {
            Some(slot) if SLOT.get() > 0 => {
                let counter = &slot.0[index];
                // A load and a store suffice: only this thread writes the slot.
                counter.store(counter.load(Relaxed).wrapping_add(count), Relaxed);
            }
            _ => {
                self.0[0].0[index].fetch_add(count, Relaxed);
            }
        }
    }

    /// Sum of all slots of the counter at `index`.
    pub fn sum(&self, index: usize) -> u64 {
        self.0
            .iter()
            .fold(0, |sum, slot| sum.wrapping_add(slot.0[index].load(Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_includes_worker_and_shared_slots() {
        let counter = ShardedCounter::<3>::default();
        std::thread::scope(|scope| {
            // Two workers, two threads without a slot, and a worker number above the CPU count.
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
