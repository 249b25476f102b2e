//! Memory for requests that are not answered yet, shared by all connections of a port.
//!
//! A connection buffers up to [`FREE_BYTES`] of its own. Further bytes of a head or a body are
//! taken from the budget as they arrive, and returned after the answer is written. Without budget
//! left, the connection ends: a head gets 503, and reading a body fails with [`OverBudget`].

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

/// Bytes per connection that need no budget: most requests are smaller. Also the largest read, so
/// that no more than this of a following request can be in memory uncounted.
pub const FREE_BYTES: usize = 8 << 10;

/// Bytes that all connections of a port may buffer beyond [`FREE_BYTES`] each.
#[derive(Debug)]
pub struct ByteBudget {
    limit: usize,
    taken: AtomicUsize,
    refusals: AtomicU64,
}

impl ByteBudget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, taken: AtomicUsize::new(0), refusals: AtomicU64::new(0) })
    }

    /// Bytes in use.
    pub fn taken(&self) -> usize {
        self.taken.load(Relaxed)
    }

    /// Reads that were refused since the last call.
    pub fn take_refusals(&self) -> u64 {
        self.refusals.swap(0, Relaxed)
    }

    fn try_take(&self, bytes: usize) -> bool {
        let is_within = self.taken.fetch_add(bytes, Relaxed) + bytes <= self.limit;
        if !is_within {
            self.give_back(bytes);
            self.refusals.fetch_add(1, Relaxed);
        }
        is_within
    }

    fn give_back(&self, bytes: usize) {
        self.taken.fetch_sub(bytes, Relaxed);
    }
}

/// Error of a read that would exceed the budget.
#[derive(Debug)]
pub struct OverBudget;

impl fmt::Display for OverBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("too many bytes of unanswered requests")
    }
}

impl std::error::Error for OverBudget {}

/// Unanswered bytes of one connection. Only the task that serves it changes them.
#[derive(Debug)]
pub(crate) struct Account {
    budget: Arc<ByteBudget>,
    /// Bytes read since the last answer was written.
    unanswered: AtomicUsize,
}

impl Account {
    pub(crate) const fn new(budget: Arc<ByteBudget>) -> Self {
        Self { budget, unanswered: AtomicUsize::new(0) }
    }

    /// Adds bytes that were read.
    pub(crate) fn add(&self, bytes: usize) -> Result<(), OverBudget> {
        let before = self.unanswered.load(Relaxed);
        let now = before + bytes;
        let more = charged(now) - charged(before);
        if more > 0 && !self.budget.try_take(more) {
            return Err(OverBudget);
        }
        self.unanswered.store(now, Relaxed);
        Ok(())
    }

    /// Returns everything: the answer is written.
    pub(crate) fn settle(&self) {
        let charged = charged(self.unanswered.load(Relaxed));
        self.unanswered.store(0, Relaxed);
        if charged > 0 {
            self.budget.give_back(charged);
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.settle();
    }
}

const fn charged(bytes: usize) -> usize {
    bytes.saturating_sub(FREE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_share_the_budget_and_return_their_bytes() {
        let budget = ByteBudget::new(10_000);
        let [one, other] = [(); 2].map(|()| Account::new(Arc::clone(&budget)));
        one.add(FREE_BYTES).unwrap();
        assert_eq!(budget.taken(), 0, "the first bytes are free");
        one.add(6_000).unwrap();
        other.add(FREE_BYTES + 4_000).unwrap();
        assert_eq!(budget.taken(), 10_000);
        other.add(1).unwrap_err();
        assert_eq!(budget.taken(), 10_000, "a refused read takes nothing");
        assert_eq!([budget.take_refusals(), budget.take_refusals()], [1, 0]);
        one.settle();
        assert_eq!(budget.taken(), 4_000);
        other.add(1).unwrap();
        drop((one, other));
        assert_eq!(budget.taken(), 0);
    }
}
