//! Lease of a window: how long its owner may acknowledge events without word from the store.
//!
//! Each confirmation of the store renews the lease from the time of the request. A later owner
//! waits for the lease of the previous owner, unless that one stopped cleanly or has certainly
//! ended: the later one holds the lock of its directory, on the same machine since it booted. So no
//! two owners acknowledge events, also while the earlier one cannot reach the store. Both count by
//! their monotonic clocks, which need not agree about the time.

use std::time::{Duration, Instant};

use rtad_store::write::WindowCurrent;

/// Time for answers that are on their way when a lease ends.
const ANSWER_SECONDS: u64 = 1;
/// A monotonic clock runs fast or slow by less than 500 ppm: two drift apart by less than this
/// part.
const DRIFT: u64 = 1000;
/// Time between requests for the owner in the store, at most.
const MAX_CHECK: Duration = Duration::from_secs(5);
/// Time after which a request without an answer is sent again, at most.
const MAX_CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// State of an owner: whether it may acknowledge events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// No: the lease of the previous owner may still run.
    Waiting,
    /// Yes.
    Held,
    /// No: the store has not confirmed the owner for the length of the lease.
    Lapsed,
    /// Never again: another process owns the window.
    Fenced,
    /// Never again: the window was given back.
    Released,
}

/// Facts from which the state follows at any time.
pub struct Lease {
    length: Duration,
    wait_ends: Instant,
    /// One length after the last request that the store confirmed.
    held_until: Instant,
    /// The last state, once it is reached.
    end: Option<Ownership>,
    logged: Ownership,
}

impl Lease {
    /// The lease of a claim that was sent at `claim_began` and has just succeeded.
    pub fn claimed(length: Duration, claim_began: Instant, wait_seconds: u64) -> Self {
        let wait_ends = Instant::now() + Duration::from_secs(wait_seconds);
        let logged = if wait_seconds > 0 {
            Ownership::Waiting
        } else {
            Ownership::Held
        };
        Self {
            length,
            wait_ends,
            held_until: claim_began + length,
            end: None,
            logged,
        }
    }

    /// Length in whole seconds, for the claim: rounded up.
    pub fn seconds(length: Duration) -> u64 {
        length.as_secs() + u64::from(length.subsec_nanos() > 0)
    }

    /// The store has confirmed the owner in answer to a request of that time.
    pub fn confirm(&mut self, asked: Instant) {
        self.held_until = self.held_until.max(asked + self.length);
    }

    /// Ends the lease: no event is acknowledged any more.
    pub const fn end(&mut self, state: Ownership) {
        self.end = Some(state);
    }

    pub fn state(&self, now: Instant) -> Ownership {
        match self.end {
            Some(end) => end,
            None if now >= self.held_until => Ownership::Lapsed,
            None if now < self.wait_ends => Ownership::Waiting,
            None => Ownership::Held,
        }
    }

    /// The state, if it is not the one that this call has returned last.
    pub fn take_state_change(&mut self, now: Instant) -> Option<Ownership> {
        let state = self.state(now);
        let last = std::mem::replace(&mut self.logged, state);
        (state != last).then_some(state)
    }

    /// Whether the wait for the previous owner is over.
    pub fn has_waited(&self, now: Instant) -> bool {
        now >= self.wait_ends
    }

    /// Time between requests for the owner in the store.
    pub fn check_interval(&self) -> Duration {
        MAX_CHECK.min(self.length / 4)
    }

    /// Time after which such a request is sent again.
    pub fn check_timeout(&self) -> Duration {
        MAX_CHECK_TIMEOUT.min(self.length / 2)
    }
}

/// Time that the owner of a new claim waits, given the claim before. `own_claims` are the claims of
/// its directory, whose lock excludes the process that made them if it ran under the same boot.
pub fn wait_seconds(before: Option<&WindowCurrent>, own_claims: &[String], boot: &str) -> u64 {
    let Some(before) = before else { return 0 };
    // An unknown boot proves nothing.
    let is_of_boot = !boot.is_empty() && before.boot == boot;
    let has_ended = own_claims.contains(&before.owner) && is_of_boot;
    if has_ended || before.lease_seconds == 0 {
        // It may have ended while it waited itself.
        return before.wait_seconds;
    }
    let lease = before.lease_seconds;
    before
        .wait_seconds
        .max(lease + lease.div_ceil(DRIFT) + ANSWER_SECONDS)
}

/// Random id of the machine's boot, which containers share; empty if the system has none.
pub fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn current(lease_seconds: u64, wait_seconds: u64) -> WindowCurrent {
        let fields = serde_json::json!({
            "format": 1, "epoch": 1, "owner": "one", "boot": "boot", "claimed_unix_seconds": 0,
            "checkpoint": null, "lease_seconds": lease_seconds, "wait_seconds": wait_seconds,
        });
        serde_json::from_value(fields).unwrap()
    }

    #[test]
    fn lease_counts_from_the_confirmed_request() {
        let began = Instant::now();
        let second = Duration::from_secs(1);
        let mut lease = Lease::claimed(10 * second, began, 0);
        let at = |lease: &Lease, seconds: u32| lease.state(began + seconds * second);
        assert_eq!(
            [1, 9, 10].map(|seconds| at(&lease, seconds)),
            [Ownership::Held, Ownership::Held, Ownership::Lapsed]
        );
        lease.confirm(began + 4 * second);
        // An answer to an earlier request came late.
        lease.confirm(began + 2 * second);
        assert_eq!(
            [13, 14].map(|seconds| at(&lease, seconds)),
            [Ownership::Held, Ownership::Lapsed]
        );
        lease.end(Ownership::Released);
        lease.confirm(began + 5 * second);
        assert_eq!(at(&lease, 6), Ownership::Released);
    }

    #[test]
    fn change_of_the_state_is_taken_once() {
        let began = Instant::now();
        let second = Duration::from_secs(1);
        let mut lease = Lease::claimed(10 * second, began, 3);
        let mut change = |seconds: u32| lease.take_state_change(began + seconds * second);
        assert_eq!(
            [1, 4, 5].map(&mut change),
            [None, Some(Ownership::Held), None]
        );
        assert_eq!([11, 12].map(change), [Some(Ownership::Lapsed), None]);
        lease.end(Ownership::Fenced);
        assert_eq!(lease.take_state_change(began), Some(Ownership::Fenced));
    }

    #[test]
    fn new_owner_waits_for_the_previous_lease() {
        let waits = |lease, wait, own: &[String], boot| {
            wait_seconds(Some(&current(lease, wait)), own, boot)
        };
        let own = ["one".to_owned()];
        assert_eq!(wait_seconds(None, &[], "boot"), 0);
        // The other directory's owner runs, stopped cleanly, or was still waiting itself.
        assert_eq!(
            (waits(60, 0, &[], "boot"), waits(0, 0, &[], "boot")),
            (62, 0)
        );
        assert_eq!(
            (waits(60, 301, &[], "boot"), waits(0, 301, &[], "boot")),
            (301, 301)
        );
        assert_eq!(waits(86_400, 0, &[], "boot"), 86_488);
        // The same directory's owner was still waiting or not.
        assert_eq!(
            (waits(60, 0, &own, "boot"), waits(60, 301, &own, "boot")),
            (0, 301)
        );
        // The volume has moved, or the machine was booted again.
        assert_eq!(
            (waits(60, 0, &own, "other"), waits(0, 0, &own, "other")),
            (62, 0)
        );
        // The system hides its boot.
        assert_eq!(
            (waits(60, 0, &own, ""), waits(60, 0, &own, "oot")),
            (62, 62)
        );
        let began = Instant::now();
        let lease = Lease::claimed(Duration::from_secs(10), began, 3);
        assert_eq!(
            lease.state(began + Duration::from_secs(1)),
            Ownership::Waiting
        );
        assert_eq!(lease.state(began + Duration::from_secs(4)), Ownership::Held);
        assert!(!lease.has_waited(began));
    }
}
