//! Arrival of a request: its peer, its start and its queueing delay.
//!
//! The queueing delay is the time from a connection becoming readable to its worker starting the
//! request. A worker gets many readable connections at once and serves them one after the other.
//! The waker of each connection records when it was called. It does not read the clock: it uses
//! the start of the worker's last request or, after sleep, the time when the worker woke up. The
//! delay excludes data in sockets that tokio has not polled yet: it polls them every 61 tasks.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, LazyLock};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

/// The origin of all times in nanoseconds.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

thread_local! {
    /// Start of this worker's last request, in nanoseconds; [`IDLE`] during sleep.
    static LAST_START: Cell<u64> = const { Cell::new(IDLE) };
    /// Time of the last wake-up.
    static AWAKE: Cell<u64> = const { Cell::new(0) };
}

/// The peer of a connection that ended before it was served.
pub(crate) const UNKNOWN_PEER: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

const IDLE: u64 = 0;
/// A connection whose waker was not called.
const NOT_READY: u64 = u64::MAX;

fn since_epoch(now: Instant) -> u64 {
    // Never 0, which is `IDLE`.
    (now - *EPOCH).as_nanos() as u64 + 1
}

/// Call before a worker goes to sleep.
pub(crate) fn park() {
    LAST_START.set(IDLE);
}

/// Call after a worker has woken up.
pub(crate) fn unpark() {
    let now = since_epoch(Instant::now());
    AWAKE.set(now);
    LAST_START.set(now);
}

/// Start, queueing delay and peer of one request.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// Address of the client, or of the balancer before it.
    pub peer: IpAddr,
    /// When its worker started the request.
    pub started: Instant,
    /// Queueing delay.
    pub queued: Duration,
}

/// When a connection last became readable.
#[derive(Debug)]
pub(crate) struct ReadyAt(AtomicU64);

impl Default for ReadyAt {
    fn default() -> Self {
        Self(AtomicU64::new(NOT_READY))
    }
}

impl ReadyAt {
    /// Starts a request of the connection.
    pub(crate) fn start(&self, peer: IpAddr) -> Arrival {
        let started = Instant::now();
        let now = since_epoch(started);
        LAST_START.set(now);
        let ready = match self.0.load(Relaxed) {
            NOT_READY => now,
            IDLE => AWAKE.get(),
            ready => ready,
        };
        Arrival {
            peer,
            started,
            queued: Duration::from_nanos(now.saturating_sub(ready)),
        }
    }

    /// Clears the time: the connection waits for more data.
    pub(crate) fn reset(&self) {
        self.0.store(NOT_READY, Relaxed);
    }
}

/// A task's waker that records when it is called.
#[derive(Debug)]
pub(crate) struct TimestampWaker {
    pub(crate) task: Waker,
    pub(crate) ready_at: Arc<ReadyAt>,
}

impl Wake for TimestampWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready_at.0.store(LAST_START.get(), Relaxed);
        self.task.wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_starts_when_the_waker_is_called() {
        let ready_at = Arc::new(ReadyAt::default());
        let task = Waker::noop().clone();
        let waker = Waker::from(Arc::new(TimestampWaker {
            task,
            ready_at: Arc::clone(&ready_at),
        }));
        let pause = Duration::from_millis(20);
        assert_eq!(
            ready_at.start(UNKNOWN_PEER).queued,
            Duration::ZERO,
            "the waker was not called"
        );

        // Called during another request: the delay starts with that request.
        waker.wake_by_ref();
        std::thread::sleep(pause);
        assert!(ready_at.start(UNKNOWN_PEER).queued >= pause);

        ready_at.reset();
        assert_eq!(ready_at.start(UNKNOWN_PEER).queued, Duration::ZERO);

        // Called during sleep: the delay starts when the worker wakes up. The sleep is long, as a
        // busy machine may delay this thread.
        let sleep = Duration::from_millis(500);
        park();
        std::thread::sleep(sleep);
        waker.wake_by_ref();
        unpark();
        assert!(ready_at.start(UNKNOWN_PEER).queued < sleep);
        std::thread::sleep(pause);
        assert!(ready_at.start(UNKNOWN_PEER).queued >= pause);
    }
}
