//! Requests that wait for a window's thread, bounded by their keys.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::answers::Retry;
use crate::window::Seen;
use crate::{Key, ListedKey};

/// Keys that may wait: 64 MiB, less than a second of work.
const MAX_WAITING: usize = 4 << 20;
/// Keys of one group, apart from the last request.
const MAX_GROUP: usize = 1 << 16;
/// A request without keys takes the memory of so many.
const REQUEST_KEYS: usize = 16;

/// A request of which nothing was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The log could not be written, or the window is closed.
    #[error("the log of the window cannot be written")]
    NotWritable,
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

/// A checkpoint that was written. The next one removes its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedCheckpoint {
    /// The file.
    pub path: PathBuf,
    /// Random number of the window's files.
    pub window_id: u64,
    /// Its number, which is in its name.
    pub number: u64,
    /// Number of changes of the window, as in its state, that it holds at least.
    pub changes: u64,
}

/// Where an answer goes. Dropping it refuses the request.
pub type Reply<T> = oneshot::Sender<Result<T, Failure>>;
/// Where a checkpoint goes; `None` for a window that is not kept, or if the log fails meanwhile.
pub type CheckpointReply = oneshot::Sender<io::Result<Option<SavedCheckpoint>>>;

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
    Checkpoint {
        unix_seconds: u64,
        reply: CheckpointReply,
    },
}

impl Request {
    /// Memory in keys.
    fn weight(&self) -> usize {
        let keys = match self {
            Self::Observe { keys, .. } | Self::Counts { keys, .. } | Self::Forget { keys, .. } => {
                keys.len()
            }
            Self::List { .. } | Self::Checkpoint { .. } => 0,
        };
        keys + REQUEST_KEYS
    }
}

pub struct Queue {
    state: Mutex<QueueState>,
    wake: Condvar,
}

struct QueueState {
    requests: VecDeque<Request>,
    /// Sum of the requests' weights.
    weight: usize,
    /// Requests are refused once the log cannot be written.
    is_writable: bool,
    /// No request comes any more.
    is_closed: bool,
    /// The thread is to look for other work.
    is_nudged: bool,
    /// The thread waits for `wake`.
    is_waiting: bool,
}

impl QueueState {
    fn push(&mut self, request: Request) -> Result<(), Failure> {
        if !self.is_writable || self.is_closed {
            return Err(Failure::NotWritable);
        }
        let weight = self.weight + request.weight();
        // A request that finds the queue empty is accepted, however large it is. A checkpoint is
        // small, and a stop needs it.
        let is_checkpoint = matches!(request, Request::Checkpoint { .. });
        if weight > MAX_WAITING && self.weight > 0 && !is_checkpoint {
            return Err(Failure::Overloaded);
        }
        self.weight = weight;
        self.requests.push_back(request);
        Ok(())
    }

    const fn close(&mut self) {
        self.is_closed = true;
        self.is_nudged = true;
    }
}

impl Queue {
    pub fn new() -> Self {
        let state = QueueState {
            requests: VecDeque::new(),
            weight: 0,
            is_writable: true,
            is_closed: false,
            is_nudged: false,
            is_waiting: false,
        };
        Self {
            state: Mutex::new(state),
            wake: Condvar::new(),
        }
    }

    /// A panic of a holder leaves the state valid.
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, state: MutexGuard<'_, QueueState>) {
        let is_waiting = state.is_waiting;
        drop(state);
        if is_waiting {
            self.wake.notify_one();
        }
    }

    pub fn push(&self, request: Request) -> Result<(), Failure> {
        let mut state = self.state();
        state.push(request)?;
        self.wake(state);
        Ok(())
    }

    /// Accepts a last request. The thread ends after it, and after nothing else.
    pub fn push_last(&self, request: Request) -> Result<(), Failure> {
        let mut state = self.state();
        let pushed = state.push(request);
        state.close();
        self.wake(state);
        pushed
    }

    /// Wakes the thread for other work.
    pub fn nudge(&self) {
        let mut state = self.state();
        state.is_nudged = true;
        self.wake(state);
    }

    /// Ends the thread after the requests that wait.
    pub fn close(&self) {
        let mut state = self.state();
        state.close();
        self.wake(state);
    }

    pub fn is_writable(&self) -> bool {
        let state = self.state();
        state.is_writable && !state.is_closed
    }

    /// Refuses requests from now on, and those that wait.
    pub fn refuse(&self) {
        let mut state = self.state();
        state.is_writable = false;
        state.weight = 0;
        let refused = std::mem::take(&mut state.requests);
        drop(state);
        drop(refused);
    }

    /// Takes the requests of one group; waits at most `wait` for one. `true`: the queue is closed
    /// and empty now.
    pub fn take(&self, wait: Duration, into: &mut Vec<Request>) -> bool {
        let mut state = self.state();
        let is_idle = |state: &QueueState| state.requests.is_empty() && !state.is_nudged;
        if is_idle(&state) && !wait.is_zero() {
            state.is_waiting = true;
            let waited = self
                .wake
                .wait_timeout_while(state, wait, |state| is_idle(state));
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            state.is_waiting = false;
        }
        state.is_nudged = false;
        let mut taken = 0;
        while taken < MAX_GROUP
            && let Some(request) = state.requests.pop_front()
        {
            taken += request.weight();
            into.push(request);
        }
        state.weight -= taken;
        state.is_closed && state.requests.is_empty()
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
    fn nothing_follows_the_last_request() {
        let queue = Queue::new();
        queue.push(request(1)).unwrap();
        queue.push_last(request(2)).unwrap();
        assert_eq!(queue.push(request(3)), Err(Failure::NotWritable));
        assert_eq!(queue.push_last(request(4)), Err(Failure::NotWritable));
        let mut group = Vec::new();
        assert!(queue.take(Duration::from_secs(60), &mut group));
        assert_eq!(group.len(), 2);
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
        assert!(!queue.take(Duration::ZERO, &mut group));
        assert_eq!(group.len(), MAX_GROUP.div_ceil(10_016));
        queue.push(request(10_000)).unwrap();
        queue.close();
        assert_eq!(queue.push(request(1)), Err(Failure::NotWritable));
        group.clear();
        while !queue.take(Duration::ZERO, &mut group) {}
        assert_eq!(group.len(), accepted + 1 - MAX_GROUP.div_ceil(10_016));
    }

    #[tokio::test]
    async fn requests_that_wait_are_refused_with_the_log() {
        let queue = Queue::new();
        let (reply, answer) = oneshot::channel();
        queue
            .push(Request::Counts {
                keys: Vec::new(),
                reply,
            })
            .unwrap();
        queue.refuse();
        assert!(answer.await.is_err());
        assert_eq!(queue.push(request(1)), Err(Failure::NotWritable));
    }
}
