//! Keys whose membership in an audience may have changed.
//!
//! A report says only that a key is to be looked at. Its count is read when the delta is written,
//! so reports need no order and may be repeated.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use rtad_window::Key;

/// Maximum number of waiting reports: 64 MiB. More reports publish the whole audience.
const MAX_WAITING: usize = 4 << 20;

pub struct Reports {
    pub(super) min_count: u16,
    state: Mutex<State>,
    pub(super) wake: Notify,
}

#[derive(Default)]
struct State {
    keys: Vec<Key>,
    /// The oldest waiting report.
    waiting: Option<Instant>,
    /// The oldest report that is being written.
    writing: Option<Instant>,
    renews: bool,
    #[cfg(test)]
    retries: u32,
}

/// Reports to publish.
#[derive(Debug, PartialEq, Eq)]
pub enum Due {
    /// The changes of these keys.
    Changes(Vec<Key>),
    /// The whole audience.
    All,
}

impl Reports {
    /// Begins with a publication of the whole audience.
    pub fn new(min_count: u16) -> Self {
        let reports = Self {
            min_count,
            state: Mutex::default(),
            wake: Notify::new(),
        };
        reports.renew();
        reports
    }

    /// Blocks the window's engine at its next report.
    #[cfg(test)]
    pub fn hold(&self) -> impl Sized {
        self.state.lock()
    }

    /// Number of attempts that failed.
    #[cfg(test)]
    pub fn retries(&self) -> u32 {
        self.state.lock().retries
    }

    pub fn add<'k>(&self, keys: impl Iterator<Item = &'k Key>) {
        let mut keys = keys.peekable();
        if keys.peek().is_none() {
            return;
        }
        let mut state = self.state.lock();
        if !state.renews {
            state.keys.extend(keys);
        }
        if state.keys.len() > MAX_WAITING {
            state.keys = Vec::new();
            state.renews = true;
        }
        state.waiting.get_or_insert_with(Instant::now);
        drop(state);
        self.wake.notify_one();
    }

    /// Asks for a publication of the whole audience.
    pub fn renew(&self) {
        let mut state = self.state.lock();
        state.keys = Vec::new();
        state.renews = true;
        state.waiting.get_or_insert_with(Instant::now);
        drop(state);
        self.wake.notify_one();
    }

    /// Takes what is due.
    pub fn take(&self) -> Option<Due> {
        let mut state = self.state.lock();
        state.writing = state.writing.or(state.waiting);
        state.waiting = None;
        if std::mem::take(&mut state.renews) {
            return Some(Due::All);
        }
        let keys = std::mem::take(&mut state.keys);
        if keys.is_empty() {
            state.writing = None;
            return None;
        }
        Some(Due::Changes(keys))
    }

    /// Removes the reports taken, which are published.
    pub fn done(&self) {
        self.state.lock().writing = None;
    }

    /// Returns the reports taken, which are not published: they wait again.
    pub fn retry(&self, due: Due) {
        let mut state = self.state.lock();
        state.waiting = state.writing.take().or(state.waiting);
        #[cfg(test)]
        {
            state.retries += 1;
        }
        match due {
            Due::Changes(keys) if !state.renews => state.keys.extend(keys),
            Due::Changes(_) => {}
            Due::All => {
                state.keys = Vec::new();
                state.renews = true;
            }
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Age of the oldest report that is not published.
    pub fn lag(&self) -> Duration {
        let state = self.state.lock();
        let oldest = state.writing.or(state.waiting);
        oldest.map_or(Duration::ZERO, |oldest| oldest.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_changes_are_due_again_with_later_ones() {
        let reports = Reports::new(1);
        assert_eq!(reports.take(), Some(Due::All));
        reports.done();
        assert_eq!((reports.take(), reports.lag()), (None, Duration::ZERO));
        reports.add([[1; 16]].iter());
        let due = reports.take().unwrap();
        reports.add([[2; 16]].iter());
        assert!(reports.lag() > Duration::ZERO);
        reports.retry(due);
        assert_eq!(reports.take(), Some(Due::Changes(vec![[2; 16], [1; 16]])));
        reports.retry(Due::All);
        reports.add([[3; 16]].iter());
        assert_eq!(reports.take(), Some(Due::All));
        reports.done();
        assert_eq!(reports.take(), None);
    }
}
