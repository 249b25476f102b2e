//! Events of the world: each at a time of its own, one after the other.
//!
//! The runtime has one thread and a paused clock. The clock moves only when every task waits and no
//! blocking work runs. So an event happens in a world at rest, and everything that follows from it
//! happens before the next one. Events of one time are ordered by their names, not by their
//! arrival: blocking work ends in any order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Work of an event.
type Work = Box<dyn FnOnce() + Send>;

/// Time and name of an event.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    at: Duration,
    name: String,
}

#[derive(Default)]
struct Waiting {
    events: BTreeMap<Place, Work>,
    /// Number of events so far.
    happened: u64,
}

/// The events that have not happened.
pub struct Schedule {
    /// When the world began.
    pub start: Instant,
    waiting: Mutex<Waiting>,
    changed: Notify,
}

impl Schedule {
    /// An empty schedule that begins now.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            waiting: Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// Virtual time since the start.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Adds an event. Its name is unique.
    pub fn add(&self, after: Duration, name: String, work: impl FnOnce() + Send + 'static) {
        let at = self.now() + after;
        let place = Place { at, name };
        let before = self.waiting.lock().events.insert(place, Box::new(work));
        assert!(before.is_none(), "an event has a name of its own");
        self.changed.notify_one();
    }

    /// Lets events happen, each followed by a look at the world, until a time, or until it is over.
    pub async fn run_until(&self, end: Duration, look: impl Fn(), is_over: impl Fn() -> bool) {
        while !is_over() {
            let next = self.waiting.lock().events.keys().next().map(|it| it.at);
            let wake_at = next.unwrap_or(end).min(end);
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(self.start + wake_at) => {}
                () = self.changed.notified() => continue,
            }
            if next.is_none_or(|at| at > end) {
                return;
            }

            // One per unit of the runtime's clock: what follows comes first.
            if let Some(work) = self.take_due() {
                work();
                tokio::time::sleep(Duration::from_millis(1)).await;
                look();
            }
        }
    }

    /// Takes the first event, if its time has come.
    fn take_due(&self) -> Option<Work> {
        let mut waiting = self.waiting.lock();
        let first = waiting.events.first_entry()?;
        if first.key().at > self.now() {
            return None;
        }
        let work = first.remove();
        waiting.happened += 1;
        Some(work)
    }

    /// Number of events so far.
    pub fn happened(&self) -> u64 {
        self.waiting.lock().happened
    }
}
