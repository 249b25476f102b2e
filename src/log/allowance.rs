//! Rows that a pod may write in a second.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

/// An allowance of rows that all workers share. Workers begin its seconds: the log's thread may
/// wait for its disk for longer.
#[derive(Debug)]
pub struct Allowance {
    begun: Instant,
    /// The second since `begun` whose rows are counted.
    second: AtomicU64,
    left: AtomicI64,
    rate: i64,
}

impl Allowance {
    /// An allowance of so many rows in a second.
    pub fn new(rate: u32) -> Self {
        let rate = rate.into();
        Self {
            begun: Instant::now(),
            second: AtomicU64::new(0),
            left: AtomicI64::new(rate),
            rate,
        }
    }

    /// Takes a row of a request at a time. Returns false if none is left.
    pub fn take(&self, at: Instant) -> bool {
        let order = Ordering::Relaxed;
        let second = at.saturating_duration_since(self.begun).as_secs();
        let last = self.second.load(order);
        if second > last {
            let begun = self.second.compare_exchange(last, second, order, order);
            if begun.is_ok() {
                self.left.store(self.rate, order);
            }
        }
        self.left.fetch_sub(1, order) > 0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_second_has_its_rows_whatever_the_order_of_requests() {
        let allowance = Allowance::new(2);
        let mut take = |seconds| allowance.take(allowance.begun + Duration::from_millis(seconds));
        assert_eq!([0, 500, 999].map(&mut take), [true, true, false]);
        // A slow request of the second before takes from the new one.
        assert_eq!([1000, 900, 1001].map(&mut take), [true, true, false]);
        assert_eq!([60_000, 60_000, 60_000].map(take), [true, true, false]);
    }
}
