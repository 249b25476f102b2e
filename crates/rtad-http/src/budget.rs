//! Memory for requests that are not answered yet, shared by all connections of a port.
//!
//! A connection buffers up to [`FREE_BYTES`] of its own. Further bytes of a head or a body are
//! taken from the budget as they arrive, and returned after the answer is written. An exhausted
//! budget ends the connection: a head gets 503, and reading a body fails with [`OverBudget`].
//!
//! Small reads of a large body cost more than its decision. A connection with a large request
//! therefore takes [`LARGE_BYTES`] for the rest of its life, and reads as much at a time, as long
//! as such connections have at most a quarter of the budget.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

/// Bytes per connection that need no budget: most requests are smaller. Also the largest read, so
/// that no more than this of a following request can be in memory uncounted, and that the read
/// buffer stays small.
pub const FREE_BYTES: usize = 8 << 10;

/// Bytes that a connection of large requests takes at once, and its largest read.
pub const LARGE_BYTES: usize = 64 << 10;

/// Bytes that all connections of a port may buffer beyond [`FREE_BYTES`] each.
#[derive(Debug, Default)]
pub struct ByteBudget {
    limit: usize,
    taken: AtomicUsize,
    /// Those of [`LARGE_BYTES`] among them.
    taken_large: AtomicUsize,
    refusals: AtomicU64,
}

impl ByteBudget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            ..Self::default()
        })
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
        }
        is_within
    }

    fn try_take_large(&self) -> bool {
        let taken = self.taken_large.fetch_add(LARGE_BYTES, Relaxed) + LARGE_BYTES;
        let is_within = taken <= self.limit / 4 && self.try_take(LARGE_BYTES);
        if !is_within {
            self.taken_large.fetch_sub(LARGE_BYTES, Relaxed);
        }
        is_within
    }

    fn give_back_large(&self) {
        self.give_back(LARGE_BYTES);
        self.taken_large.fetch_sub(LARGE_BYTES, Relaxed);
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
    /// Number of them that need no more budget; also the largest read.
    free: AtomicUsize,
}

impl Account {
    pub(crate) const fn new(budget: Arc<ByteBudget>) -> Self {
        Self {
            budget,
            unanswered: AtomicUsize::new(0),
            free: AtomicUsize::new(FREE_BYTES),
        }
    }

    /// Size of the largest read. It stays below [`FREE_BYTES`], the size of hyper's first buffer,
    /// as hyper doubles a buffer that a read has filled, and keeps it while the connection is idle.
    #[inline]
    pub(crate) fn largest_read(&self) -> usize {
        match self.free.load(Relaxed) {
            LARGE_BYTES => LARGE_BYTES,
            free => free - 1,
        }
    }

    /// Adds bytes that were read.
    pub(crate) fn add(&self, bytes: usize) -> Result<(), OverBudget> {
        let before = self.unanswered.load(Relaxed);
        let now = before + bytes;
        let more = self.charged(now) - self.charged(before);
        if more > 0 && !self.budget.try_take(more) {
            self.budget.refusals.fetch_add(1, Relaxed);
            return Err(OverBudget);
        }
        self.unanswered.store(now, Relaxed);
        Ok(())
    }

    /// Allows large reads from now on, if there is budget for them.
    pub(crate) fn enlarge(&self) {
        if !self.is_large() && self.budget.try_take_large() {
            let unanswered = self.unanswered.load(Relaxed);
            let before = self.charged(unanswered);
            self.free.store(LARGE_BYTES, Relaxed);
            self.budget.give_back(before - self.charged(unanswered));
        }
    }

    /// Returns the bytes of the answered requests: the answer is written.
    pub(crate) fn settle(&self) {
        let charged = self.charged(self.unanswered.load(Relaxed));
        self.unanswered.store(0, Relaxed);
        if charged > 0 {
            self.budget.give_back(charged);
        }
    }

    fn is_large(&self) -> bool {
        self.free.load(Relaxed) == LARGE_BYTES
    }

    fn charged(&self, bytes: usize) -> usize {
        bytes.saturating_sub(self.free.load(Relaxed))
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.settle();
        if self.is_large() {
            self.budget.give_back_large();
        }
    }
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

    #[test]
    fn connections_of_large_requests_take_at_most_a_quarter() {
        let budget = ByteBudget::new(9 * LARGE_BYTES);
        let accounts = [(); 4].map(|()| Account::new(Arc::clone(&budget)));
        for account in &accounts {
            account.add(FREE_BYTES + 1_000).unwrap();
            account.enlarge();
            account.enlarge();
        }
        let is_large = |account: &Account| account.largest_read() == LARGE_BYTES;
        assert_eq!(
            accounts.each_ref().map(is_large),
            [true, true, false, false]
        );
        assert_eq!(budget.taken(), 2 * LARGE_BYTES + 2 * 1_000);
        let [one, other, third, fourth] = accounts;
        drop(fourth);
        one.add(LARGE_BYTES).unwrap();
        assert_eq!(budget.taken(), 2 * LARGE_BYTES + 1_000 + FREE_BYTES + 1_000);
        one.settle();
        assert!(is_large(&one), "an answer returns the request's bytes only");
        assert_eq!(budget.taken(), 2 * LARGE_BYTES + 1_000);
        drop((one, other));
        third.enlarge();
        assert_eq!((is_large(&third), budget.taken()), (true, LARGE_BYTES));
        drop(third);
        assert_eq!((budget.taken(), budget.take_refusals()), (0, 0));
    }
}
