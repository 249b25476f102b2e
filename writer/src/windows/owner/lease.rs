//! Lease of a window: how long its owner may acknowledge events without word from the store.
//!
//! Each confirmation of the store renews the lease from the time of the request. A later owner
//! waits for the lease of the previous owner, unless that one stopped cleanly or has certainly
//! ended: the later one holds the lock of its directory, on the same machine since it booted. So no
//! two owners acknowledge events, also while the earlier one cannot reach the store. Both count by
//! their monotonic clocks, which need not agree about the time.

use std::sync::atomic::{AtomicU64, Ordering};
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
/// No confirmation: the lease was given back.
const RELEASED: u64 = u64::MAX;

/// Whether events may be acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaseState {
    Held,
    /// The lease of the previous owner may still run.
    Waiting,
    /// The store has not confirmed the owner for the length of the lease.
    Lapsed,
}

pub(in super::super) struct Lease {
    length: Duration,
    claim_began: Instant,
    /// Milliseconds from `claim_began` to the last request that the store confirmed.
    confirmed: AtomicU64,
    wait_ends: Instant,
}

impl Lease {
    /// The lease of a claim that was sent at `claim_began` and has just succeeded.
    pub(super) fn claimed(length: Duration, claim_began: Instant, wait_seconds: u64) -> Self {
        let wait_ends = Instant::now() + Duration::from_secs(wait_seconds);
        Self { length, claim_began, confirmed: AtomicU64::new(0), wait_ends }
    }

    /// Length in whole seconds, for the claim: rounded up.
    pub(super) fn seconds(length: Duration) -> u64 {
        length.as_secs() + u64::from(length.subsec_nanos() > 0)
    }

    /// The store has confirmed the owner in answer to a request of that time.
    pub(super) fn confirm(&self, asked: Instant) {
        let asked = asked.saturating_duration_since(self.claim_began).as_millis() as u64;
        self.confirmed.fetch_max(asked, Ordering::AcqRel);
    }

    /// Ends the lease: no event is acknowledged any more.
    pub(super) fn release(&self) {
        self.confirmed.store(RELEASED, Ordering::Release);
    }

    pub(super) fn state(&self, now: Instant) -> LeaseState {
        let confirmed = self.confirmed.load(Ordering::Acquire);
        let since = now.saturating_duration_since(self.claim_began);
        let is_held = confirmed != RELEASED
            && since < self.length.saturating_add(Duration::from_millis(confirmed));
        match is_held {
            true if now < self.wait_ends => LeaseState::Waiting,
            true => LeaseState::Held,
            false => LeaseState::Lapsed,
        }
    }

    /// Whether the wait for the previous owner is over.
    pub(super) fn has_waited(&self) -> bool {
        Instant::now() >= self.wait_ends
    }

    /// Time between requests for the owner in the store.
    pub(super) fn check_interval(&self) -> Duration {
        MAX_CHECK.min(self.length / 4)
    }

    /// Time after which such a request is sent again.
    pub(super) fn check_timeout(&self) -> Duration {
        MAX_CHECK_TIMEOUT.min(self.length / 2)
    }
}

/// Time that the owner of a new claim waits, given the claim before. `own` are the claims of its
/// directory, whose lock excludes the process that made them if it ran under the same boot.
pub(super) fn wait_seconds(before: Option<&WindowCurrent>, own: &[String], boot: &str) -> u64 {
    let Some(before) = before else { return 0 };
    // An unknown boot proves nothing.
    let is_of_boot = !boot.is_empty() && before.boot == boot;
    let has_ended = own.contains(&before.owner) && is_of_boot;
    if has_ended || before.lease_seconds == 0 {
        // It may have ended while it waited itself.
        return before.wait_seconds;
    }
    let lease = before.lease_seconds;
    before.wait_seconds.max(lease + lease.div_ceil(DRIFT) + ANSWER_SECONDS)
}

/// Random id of the machine's boot, which containers share; empty if the system has none.
pub(super) fn boot_id() -> String {
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
        let lease = Lease::claimed(10 * second, began, 0);
        let at = |seconds: u32| lease.state(began + seconds * second);
        assert_eq!(
            (at(1), at(9), at(10)),
            (LeaseState::Held, LeaseState::Held, LeaseState::Lapsed)
        );
        lease.confirm(began + 4 * second);
        // An answer to an earlier request came late.
        lease.confirm(began + 2 * second);
        assert_eq!((at(13), at(14)), (LeaseState::Held, LeaseState::Lapsed));
        lease.release();
        lease.confirm(began + 5 * second);
        assert_eq!(at(6), LeaseState::Lapsed);
    }

    #[test]
    fn new_owner_waits_for_the_previous_lease() {
        let waits = |lease, wait, own: &[String], boot| {
            wait_seconds(Some(&current(lease, wait)), own, boot)
        };
        let own = ["one".to_owned()];
        assert_eq!(wait_seconds(None, &[], "boot"), 0);
        // The other directory's owner runs, stopped cleanly, or was still waiting itself.
        assert_eq!((waits(60, 0, &[], "boot"), waits(0, 0, &[], "boot")), (62, 0));
        assert_eq!((waits(60, 301, &[], "boot"), waits(0, 301, &[], "boot")), (301, 301));
        assert_eq!(waits(86_400, 0, &[], "boot"), 86_488);
        // The same directory's owner was still waiting or not.
        assert_eq!((waits(60, 0, &own, "boot"), waits(60, 301, &own, "boot")), (0, 301));
        // The volume has moved, or the machine was booted again.
        assert_eq!((waits(60, 0, &own, "other"), waits(0, 0, &own, "other")), (62, 0));
        // The system hides its boot.
        assert_eq!((waits(60, 0, &own, ""), waits(60, 0, &own, "oot")), (62, 62));
        let began = Instant::now();
        let lease = Lease::claimed(Duration::from_secs(10), began, 3);
        assert_eq!(lease.state(began + Duration::from_secs(1)), LeaseState::Waiting);
        assert_eq!(lease.state(began + Duration::from_secs(4)), LeaseState::Held);
        assert!(!lease.has_waited());
    }
}
