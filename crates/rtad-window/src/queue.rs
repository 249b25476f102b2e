//! Requests that wait for a window's engine, bounded by their keys.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

use crate::answers::Retry;
use crate::table_copy::TableCopy;
use crate::window::Seen;
use crate::{Key, ListedKey};

/// Keys that may wait: less than a second of work.
const MAX_WAITING: usize = 4 << 20;
/// Their memory.
pub const MAX_WAITING_BYTES: u64 = (MAX_WAITING * size_of::<Key>()) as u64;
/// Keys of one group, apart from the last request.
const MAX_GROUP: usize = 1 << 16;
/// A request without keys takes the memory of so many.
const REQUEST_KEYS: usize = 16;

/// A request of which nothing was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Events cannot be made durable now, or the window is closed.
    #[error("events of the window cannot be made durable")]
    NotDurable,
    /// The request key belongs to another request.
    #[error("the request key was used for another request")]
    RequestKeyReused,
    /// Entries of the time of the events have expired.
    #[error("the events are too old for the window")]
    Late,
    /// Too many keys wait.
    #[error("too many requests wait for the window")]
    Overloaded,
}

/// Outcome of a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// One outcome per event.
    pub seen: Vec<Seen>,
    /// The request was repeated, and got its first answer: nothing was counted.
    pub is_repeated: bool,
}

/// Where an answer goes. Dropping it refuses the request.
pub type Reply<T> = oneshot::Sender<Result<T, Failure>>;

pub enum Request {
    /// `at` is the tick of the events; `None` for events of now.
    Observe {
        keys: Vec<Key>,
        at: Option<u64>,
        retry: Option<Retry>,
        reply: Reply<Observed>,
    },
    Counts {
        keys: Vec<Key>,
        reply: Reply<Vec<u16>>,
    },
    Forget {
        keys: Vec<Key>,
        reply: Reply<Vec<bool>>,
    },
    List {
        min_count: u16,
        reply: Reply<Vec<ListedKey>>,
    },
    Table {
        reply: Reply<TableCopy>,
    },
}

impl Request {
    /// Memory in keys.
    fn weight(&self) -> usize {
        let keys = match self {
            Self::Observe { keys, .. } | Self::Counts { keys, .. } | Self::Forget { keys, .. } => {
                keys.len()
            }
            Self::List { .. } | Self::Table { .. } => 0,
        };
        keys + REQUEST_KEYS
    }
}

pub struct Queue {
    state: Mutex<QueueState>,
    wake: Notify,
}

struct QueueState {
    requests: VecDeque<Request>,
    /// Sum of the requests' weights.
    weight: usize,
    /// Requests are accepted.
    is_open: bool,
    /// The engine is to end without its last segments.
    is_abandoned: bool,
    /// The engine is to look for other work.
    is_nudged: bool,
}

impl QueueState {
    fn push(&mut self, request: Request) -> Result<(), Failure> {
        if !self.is_open {
            return Err(Failure::NotDurable);
        }
        let weight = self.weight + request.weight();
        // A request that finds the queue empty is accepted, however large it is.
        if weight > MAX_WAITING && self.weight > 0 {
            return Err(Failure::Overloaded);
        }
        self.weight = weight;
        self.requests.push_back(request);
        Ok(())
    }
}

impl Queue {
    pub fn new() -> Self {
        let state = QueueState {
            requests: VecDeque::new(),
            weight: 0,
            is_open: true,
            is_abandoned: false,
            is_nudged: false,
        };
        Self {
            state: Mutex::new(state),
            wake: Notify::new(),
        }
    }

    /// A panic of a holder leaves the state valid.
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn push(&self, request: Request) -> Result<(), Failure> {
        self.state().push(request)?;
        self.wake.notify_one();
        Ok(())
    }

    /// Wakes the engine for other work.
    pub fn nudge(&self) {
        self.state().is_nudged = true;
        self.wake.notify_one();
    }

    /// Refuses requests from now on. The engine ends after those that wait.
    pub fn close(&self) {
        self.state().is_open = false;
        self.nudge();
    }

    /// Refuses requests from now on, and those that wait. The engine ends at once.
    pub fn abandon(&self) {
        let mut state = self.state();
        state.is_open = false;
        state.is_abandoned = true;
        state.weight = 0;
        let refused = std::mem::take(&mut state.requests);
        drop(state);
        self.nudge();
        drop(refused);
    }

    pub fn is_open(&self) -> bool {
        self.state().is_open
    }

    pub fn is_abandoned(&self) -> bool {
        self.state().is_abandoned
    }

    /// Whether the queue is closed and empty.
    pub fn is_done(&self) -> bool {
        let state = self.state();
        !state.is_open && state.requests.is_empty()
    }

    /// Waits for a nudge, and with `takes_requests` also for a request.
    pub async fn wait(&self, takes_requests: bool) {
        while !self.has_work(takes_requests) {
            self.wake.notified().await;
        }
    }

    fn has_work(&self, takes_requests: bool) -> bool {
        let mut state = self.state();
        let is_nudged = std::mem::take(&mut state.is_nudged);
        is_nudged || takes_requests && !state.requests.is_empty()
    }

    /// Takes the requests of one group.
    pub fn take(&self, into: &mut Vec<Request>) {
        let mut state = self.state();
        let mut taken = 0;
        while taken < MAX_GROUP
            && let Some(request) = state.requests.pop_front()
        {
            taken += request.weight();
            into.push(request);
        }
        state.weight -= taken;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(keys: usize) -> Request {
        Request::Counts {
            keys: vec![[0; 16]; keys],
            reply: oneshot::channel().0,
        }
    }

    #[test]
    fn waiting_keys_are_bounded_and_taken_in_groups() {
        let queue = Queue::new();
        let mut accepted = 0;
        let refused = loop {
            match queue.push(request(10_000)) {
                Ok(()) => accepted += 1,
                Err(failure) => break failure,
            }
        };
        assert_eq!(
            (refused, accepted),
            (Failure::Overloaded, MAX_WAITING / 10_016)
        );
        let mut group = Vec::new();
        queue.take(&mut group);
        assert_eq!(group.len(), MAX_GROUP.div_ceil(10_016));
        queue.push(request(10_000)).unwrap();
        queue.close();
        assert_eq!(queue.push(request(1)), Err(Failure::NotDurable));
        group.clear();
        while !queue.is_done() {
            queue.take(&mut group);
        }
        assert_eq!(group.len(), accepted + 1 - MAX_GROUP.div_ceil(10_016));
    }

    #[tokio::test]
    async fn requests_that_wait_are_refused_by_an_abandoned_window() {
        let queue = Queue::new();
        let (reply, answer) = oneshot::channel();
        queue
            .push(Request::Counts {
                keys: Vec::new(),
                reply,
            })
            .unwrap();
        queue.abandon();
        assert!(answer.await.is_err());
        assert_eq!(queue.push(request(1)), Err(Failure::NotDurable));
    }
}
