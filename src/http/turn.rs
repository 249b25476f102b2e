//! How long what has come has waited for its turn.
//!
//! A worker learns of many connections at once that there is something to read, and serves them one after the other. The waker by which it
//! learns of one notes when. No clock is read for that: the begin of the worker's last request is near enough, and if it was idle,
//! the moment when it woke. What lies in a socket of which the worker has not learnt yet is not seen: it looks every 61 turns.

use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, LazyLock};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

/// What times are counted from.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

thread_local! {
    /// When this worker's last request began, in nanoseconds; [`IDLE`] since it went to sleep.
    static LAST: Cell<u64> = const { Cell::new(IDLE) };
    /// When it last woke up.
    static AWAKE: Cell<u64> = const { Cell::new(0) };
}

const IDLE: u64 = 0;
/// Of a connection: nothing has been noted.
const NOT_NOTED: u64 = u64::MAX;

fn since_epoch(now: Instant) -> u64 {
    // Never 0, which is `IDLE`.
    (now - *EPOCH).as_nanos() as u64 + 1
}

/// To be called before a worker goes to sleep.
pub(super) fn sleeps() {
    LAST.set(IDLE);
}

/// To be called when it has woken up.
pub(super) fn wakes() {
    let now = since_epoch(Instant::now());
    AWAKE.set(now);
    LAST.set(now);
}

/// A request's turn: when it began, and for how long the request had waited for it.
#[derive(Debug, Clone, Copy)]
pub struct Turn {
    pub(super) begun: Instant,
    pub(super) waited: Duration,
}

/// When a connection was last found to have something to read.
#[derive(Debug)]
pub(super) struct Noted(AtomicU64);

impl Default for Noted {
    fn default() -> Self {
        Self(AtomicU64::new(NOT_NOTED))
    }
}

impl Noted {
    /// Begins the turn of a request that has come on the connection.
    pub(super) fn begin(&self) -> Turn {
        let begun = Instant::now();
        let now = since_epoch(begun);
        LAST.set(now);
        let ready = match self.0.load(Relaxed) {
            NOT_NOTED => now,
            IDLE => AWAKE.get(),
            ready => ready,
        };
        Turn { begun, waited: Duration::from_nanos(now.saturating_sub(ready)) }
    }

    /// The connection waits for what comes next.
    pub(super) fn forget(&self) {
        self.0.store(NOT_NOTED, Relaxed);
    }
}

/// A task's waker that notes when it is called.
#[derive(Debug)]
pub(super) struct Noting {
    pub(super) task: Waker,
    pub(super) noted: Arc<Noted>,
}

impl Wake for Noting {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.noted.0.store(LAST.get(), Relaxed);
        self.task.wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_waited_for_from_when_it_was_noted() {
        let noted = Arc::new(Noted::default());
        let waker = Waker::from(Arc::new(Noting { task: Waker::noop().clone(), noted: Arc::clone(&noted) }));
        let pause = Duration::from_millis(20);
        assert_eq!(noted.begin().waited, Duration::ZERO, "nobody was woken");

        // Noted while another request was under way, whose begin is what is known.
        waker.wake_by_ref();
        std::thread::sleep(pause);
        assert!(noted.begin().waited >= pause);

        noted.forget();
        assert_eq!(noted.begin().waited, Duration::ZERO);

        // Noted as the worker slept: what counts is when it woke.
        sleeps();
        std::thread::sleep(pause);
        waker.wake_by_ref();
        wakes();
        assert!(noted.begin().waited < pause);
        std::thread::sleep(pause);
        assert!(noted.begin().waited >= pause);
    }
}
