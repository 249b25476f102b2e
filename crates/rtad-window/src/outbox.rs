//! Outbox: sealed segments on their way to the store, in their order.
//!
//! The window's engine adds segments, the shipper of the caller creates them one at a time. An
//! outgoing segment stays the first one until it is created, so the caller may ask for it again.
//!
//! The times here decide whether a window may answer: see the module `journal`.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;

use crate::queue::{MAX_WAITING_BYTES, Queue};
use crate::spec::WindowSpec;
use crate::uptime::{MachineClock, MachineTime};

/// Time after which a window refuses requests, counted from the newest created segment, and from
/// the oldest group that is in none.
pub const MAX_UNSHIPPED_TIME: Duration = Duration::from_secs(10);
/// Time without a new segment after which a standby takes over. Five seconds longer: the owner
/// answers nothing any more.
pub const TAKE_OVER_AFTER: Duration = Duration::from_secs(15);
/// Seconds by which the wall clock may be set ahead after the newest created segment was sent. Set
/// further, it may be that of a machine that was suspended with its uptime.
const MAX_WALL_JUMP: i64 = 5;
/// Time without a created segment after which an owner gives the window up. Its next segment may
/// have been created by another process, and removed since: the number would be free again.
pub const MAX_SILENCE: Duration = Duration::from_secs(10 * 60);
/// Age that a segment has before it is removed; twice the time above, and some more.
pub const MIN_REMOVED_AGE: Duration = Duration::from_secs(30 * 60);
/// Least bound of the bytes in sealed segments.
const MIN_SEALED_BOUND: u64 = 32 << 20;
/// Largest bound of them.
const MAX_SEALED_BOUND: u64 = 256 << 20;

/// Bytes in sealed segments beyond which a window refuses requests: they are in memory. As many as
/// its table has, so that a small window does not take the memory of a large one.
fn max_sealed_bytes(spec: &WindowSpec) -> u64 {
    spec.memory_bytes()
        .clamp(MIN_SEALED_BOUND, MAX_SEALED_BOUND)
}

/// Most memory of a window beside its table and its answers, which it reaches while the store is
/// away: segments that are not created, and 64 MiB of keys that wait. Some megabytes of the open
/// segment, and the last request, are not in it.
pub fn max_unshipped_bytes(spec: &WindowSpec) -> u64 {
    max_sealed_bytes(spec) + MAX_WAITING_BYTES
}

/// A segment to create in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// Its number.
    pub number: u64,
    /// Its content.
    pub bytes: Bytes,
    /// Whether nothing follows: a clean stop.
    pub is_last: bool,
}

impl Outgoing {
    /// Whether a segment that was found under its number is this one: an answer of the store was
    /// lost. All bytes are compared: a copy of a running machine has the same owner, but not the
    /// same mark of a segment.
    pub fn is_ours(&self, found: &[u8]) -> bool {
        self.bytes == found
    }
}

/// A segment of the outbox.
pub struct Sealed {
    pub outgoing: Outgoing,
    /// When its first group was written.
    pub since: Option<Duration>,
}

/// State that the window's engine and the shipper share.
pub struct Shipping {
    state: Mutex<ShippingState>,
    /// Wakes the shipper.
    changed: Notify,
    /// Wakes who waits for the end of the window.
    ended: Notify,
    /// Wakes the window's engine.
    queue: Arc<Queue>,
    clock: MachineClock,
    max_sealed_bytes: u64,
}

struct ShippingState {
    sealed: VecDeque<Sealed>,
    sealed_bytes: u64,
    /// When the shipper took the first one.
    taken_at: Option<MachineTime>,
    /// When the first group of the open segment was written.
    open_since: Option<Duration>,
    /// Number of the newest created segment.
    created: u64,
    /// When the shipper took it: a standby may have seen it from then on.
    created_at: Duration,
    /// By how many seconds the wall clock was ahead then.
    created_wall_ahead: i64,
    /// Reason for the end of the ownership.
    lost: Option<String>,
    /// The last segment is created: a clean stop.
    is_released: bool,
    /// The window's engine has ended.
    has_ended: bool,
}

impl ShippingState {
    /// Gives the window up if the newest created segment was sent too long ago.
    fn check_silence(&mut self, now: Duration, sent_at: Duration) {
        if now.saturating_sub(sent_at) > MAX_SILENCE {
            let reason = "no segment was created for 10 minutes";
            self.lost.get_or_insert_with(|| reason.to_owned());
        }
    }

    fn oldest_unshipped(&self) -> Option<Duration> {
        let sealed = self.sealed.iter().find_map(|sealed| sealed.since);
        sealed.or(self.open_since)
    }
}

/// Progress of the segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Number of the newest created segment.
    pub created: u64,
    /// Age of the oldest group that is in no created segment; zero if there is none.
    pub unshipped_age: Duration,
    /// Time since the newest created segment was sent.
    pub created_age: Duration,
    /// Whether requests may be answered.
    pub is_fresh: bool,
}

impl Shipping {
    /// Shipping of a window after a take-over that sent segment `created` at `created_at`.
    pub fn new(
        spec: &WindowSpec,
        queue: Arc<Queue>,
        clock: MachineClock,
        created: u64,
        created_at: Duration,
    ) -> Self {
        let state = ShippingState {
            sealed: VecDeque::new(),
            sealed_bytes: 0,
            taken_at: None,
            open_since: None,
            created,
            created_at,
            created_wall_ahead: clock().wall_ahead(),
            lost: None,
            is_released: false,
            has_ended: false,
        };
        Self {
            state: Mutex::new(state),
            changed: Notify::new(),
            ended: Notify::new(),
            queue,
            clock,
            max_sealed_bytes: max_sealed_bytes(spec),
        }
    }

    pub fn now(&self) -> Duration {
        (self.clock)().up
    }

    /// A panic of a holder leaves the state valid.
    fn state(&self) -> MutexGuard<'_, ShippingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the next segment.
    pub fn add(&self, sealed: Sealed) {
        let mut state = self.state();
        state.sealed_bytes += sealed.outgoing.bytes.len() as u64;
        state.sealed.push_back(sealed);
        state.open_since = None;
        drop(state);
        self.changed.notify_one();
    }

    /// A group was written to the open segment.
    pub fn set_open_since(&self, since: Duration) {
        self.state().open_since.get_or_insert(since);
    }

    pub fn progress(&self) -> Progress {
        let clocks = (self.clock)();
        let now = clocks.up;
        let state = self.state();
        let wall_jump = clocks.wall_ahead() - state.created_wall_ahead;
        let oldest = state.oldest_unshipped();
        let unshipped_age = oldest.map_or(Duration::ZERO, |since| now.saturating_sub(since));
        let created_age = now.saturating_sub(state.created_at);
        Progress {
            created: state.created,
            unshipped_age,
            created_age,
            is_fresh: state.lost.is_none()
                && unshipped_age < MAX_UNSHIPPED_TIME
                && created_age < MAX_UNSHIPPED_TIME
                && wall_jump <= MAX_WALL_JUMP
                && state.sealed_bytes <= self.max_sealed_bytes,
        }
    }

    /// # Errors
    ///
    /// The ownership is lost.
    pub fn check_owned(&self) -> io::Result<()> {
        match &self.state().lost {
            None => Ok(()),
            Some(reason) => Err(io::Error::other(reason.clone())),
        }
    }

    /// The newest sealed segment that has groups.
    #[cfg(test)]
    pub fn last_with_groups(&self) -> Bytes {
        let state = self.state();
        let mut sealed = state.sealed.iter().rev();
        let newest = sealed.find(|sealed| sealed.since.is_some());
        newest
            .expect("a segment with groups")
            .outgoing
            .bytes
            .clone()
    }

    /// Whether the window's engine has ended.
    pub fn has_ended(&self) -> bool {
        self.state().has_ended
    }

    /// Waits for the end of the window's engine.
    pub async fn ended(&self) {
        let ended = self.ended.notified();
        if !self.has_ended() {
            ended.await;
        }
    }

    /// Whether the last segment is created.
    pub fn is_released(&self) -> bool {
        self.state().is_released
    }

    /// Ends the outbox: nothing follows.
    pub fn end(&self) {
        self.state().has_ended = true;
        self.changed.notify_one();
        self.ended.notify_waiters();
    }
}

/// Segments of an owner, for the shipper. Dropped before the last segment was created, it ends the
/// window.
pub struct Outbox(Arc<Shipping>);

impl Outbox {
    pub(crate) const fn new(shipping: Arc<Shipping>) -> Self {
        Self(shipping)
    }

    /// The next segment to create: the same one until [`created`](Self::created) was called with
    /// its number. `None` once the window has ended, or is lost. A future that is dropped loses
    /// nothing.
    pub async fn next(&self) -> Option<Outgoing> {
        loop {
            // Registered before the look, so that no wake-up is missed.
            let changed = self.0.changed.notified();
            if self.has_ended() {
                return None;
            }
            if let Some(outgoing) = self.first() {
                return Some(outgoing);
            }
            if self.has_ended() {
                return None;
            }
            changed.await;
        }
    }

    fn has_ended(&self) -> bool {
        let state = self.0.state();
        state.has_ended || state.is_released || state.lost.is_some()
    }

    /// The first segment, which is sent from now on.
    pub(crate) fn first(&self) -> Option<Outgoing> {
        let now = (self.0.clock)();
        let mut state = self.0.state();
        let outgoing = state.sealed.front()?.outgoing.clone();
        let created_at = state.created_at;
        state.check_silence(now.up, created_at);
        if state.lost.is_some() {
            drop(state);
            self.0.queue.nudge();
            return None;
        }
        state.taken_at.get_or_insert(now);
        Some(outgoing)
    }

    /// The store has the segment of this number, which was the next one.
    pub fn created(&self, number: u64) {
        let now = self.0.now();
        let mut state = self.0.state();
        let front = state.sealed.front();
        if front.is_none_or(|sealed| sealed.outgoing.number != number) {
            return;
        }
        // A segment that nobody took was never sent.
        let sent = state.taken_at.take();
        let sent_at = sent.map_or(state.created_at, |sent| sent.up);
        state.check_silence(now, sent_at);
        if state.lost.is_none()
            && let Some(sealed) = state.sealed.pop_front()
        {
            state.sealed_bytes -= sealed.outgoing.bytes.len() as u64;
            state.created = number;
            state.created_at = sent_at;
            if let Some(sent) = sent {
                state.created_wall_ahead = sent.wall_ahead();
            }
            state.is_released |= sealed.outgoing.is_last;
        }
        drop(state);
        self.0.queue.nudge();
    }

    /// Another process is the owner, or segments cannot be created for another reason that stays.
    /// The window ends, and answers nothing any more.
    pub fn lost(&self, reason: impl Into<String>) {
        self.0.state().lost.get_or_insert_with(|| reason.into());
        self.0.queue.nudge();
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        if !self.has_ended() {
            self.lost("the shipper of the window's segments has ended");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(capacity: u64) -> WindowSpec {
        WindowSpec {
            capacity,
            fpr: 1e-5,
            count: 1,
            whole_keys: false,
            lifetime: 129,
        }
    }

    #[test]
    fn small_window_refuses_with_less_in_memory_than_a_large_one() {
        let capacities = [1_000, 20_000_000, 1_000_000_000];
        let bounds = capacities.map(|capacity| max_unshipped_bytes(&spec(capacity)) >> 20);
        assert_eq!(bounds, [32 + 64, 101 + 64, 256 + 64]);

        let now = Duration::from_secs(100);
        let clock: MachineClock = Arc::new(move || MachineTime {
            up: now,
            wall_seconds: 1_000,
        });
        let shipping = Shipping::new(&spec(1_000), Arc::new(Queue::new()), clock, 1, now);
        for number in 2..=6 {
            assert!(shipping.progress().is_fresh, "before segment {number}");
            let outgoing = Outgoing {
                number,
                bytes: vec![0; 8 << 20].into(),
                is_last: false,
            };
            let since = Some(now);
            shipping.add(Sealed { outgoing, since });
        }
        assert!(!shipping.progress().is_fresh);
    }
}
