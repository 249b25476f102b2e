//! What others see of sync: whether the pod is ready, and how the last looks went.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::telemetry::Telemetry;
use rtad_core::snapshot::AudienceName;

/// Whether the pod should get traffic. Rises once, when every required audience has been loaded and the decision port is open; falls
/// once, on draining.
#[derive(Debug, Default)]
pub struct Readiness {
    complete: AtomicBool,
    open: AtomicBool,
    draining: AtomicBool,
}

impl Readiness {
    /// Ready: complete, open and not draining. A refresh that fails does not change it.
    pub fn is_ready(&self) -> bool {
        self.complete.load(Ordering::Acquire) && self.is_open() && !self.is_draining()
    }

    /// Whether the decision port is open.
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Whether the process is on its way out.
    #[inline]
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Every required audience has been loaded.
    pub fn complete(&self) {
        self.complete.store(true, Ordering::Release);
    }

    /// The decision port is open: who connects from now on is answered.
    pub fn open(&self) {
        self.open.store(true, Ordering::Release);
    }

    /// The process is on its way out.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }
}

/// How the last look at an audience went, for people.
#[derive(Debug, Clone, serde::Serialize)]
pub struct LastSync {
    /// When, in seconds since 1970.
    pub at_unix_seconds: u64,
    /// `ok`, `unchanged`, or the cause of the failure.
    pub result: &'static str,
    /// The failure in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Looks with one result, one after the other. What was loaded stands by itself. Of failures the last one's words are kept: a store's
/// differ with each look, by how long it took.
#[derive(Debug, Clone, serde::Serialize)]
pub struct SyncRun {
    /// When the first of them was, in seconds since 1970.
    pub since_unix_seconds: u64,
    /// How many there were.
    pub count: u64,
    /// How long the last one took.
    pub seconds: f64,
    /// Of a load that went well: what it loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// How the last one went.
    #[serde(flatten)]
    pub last: LastSync,
}

/// Of each audience so many are kept: with the equal ones as one, they go back for hours.
const KEPT_LOOKS: usize = 20;

/// The last looks at each audience, newest first; written by sync, read by the admin port.
#[derive(Debug, Default)]
pub struct SyncBoard(Mutex<BTreeMap<AudienceName, VecDeque<SyncRun>>>);

impl SyncBoard {
    /// How the last look at the audience went; `None` before the first.
    pub fn last(&self, audience: &AudienceName) -> Option<LastSync> {
        Some(self.audiences().get(audience)?.front()?.last.clone())
    }

    /// The last looks at the audience, newest first.
    pub fn looks(&self, audience: &AudienceName) -> Vec<SyncRun> {
        self.audiences()
            .get(audience)
            .map_or_else(Vec::new, |looks| looks.iter().cloned().collect())
    }

    pub(super) fn note(
        &self,
        audience: &AudienceName,
        last: LastSync,
        generation: Option<u64>,
        took: Duration,
    ) {
        let seconds = took.as_secs_f64();
        let mut audiences = self.audiences();
        let looks = audiences.entry(audience.clone()).or_default();
        match looks.front_mut() {
            Some(same) if generation.is_none() && same.last.result == last.result => {
                (same.last, same.seconds) = (last, seconds);
                same.count += 1;
            }
            _ => {
                let since_unix_seconds = last.at_unix_seconds;
                looks.push_front(SyncRun {
                    since_unix_seconds,
                    count: 1,
                    seconds,
                    generation,
                    last,
                });
                looks.truncate(KEPT_LOOKS);
            }
        }
    }

    fn audiences(&self) -> MutexGuard<'_, BTreeMap<AudienceName, VecDeque<SyncRun>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What others see of sync.
#[derive(Debug, Clone, Default)]
pub struct Shared {
    /// All metrics.
    pub telemetry: Arc<Telemetry>,
    /// Whether the pod should get traffic.
    pub readiness: Arc<Readiness>,
    /// How the last looks went.
    pub board: Arc<SyncBoard>,
}

/// Seconds since 1970.
pub fn now_unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_that_came_to_the_same_are_one_and_the_oldest_are_forgotten() {
        let (board, name) = (SyncBoard::default(), "a".parse().unwrap());
        let look = |at, result, error: Option<&str>, generation| {
            let last = LastSync { at_unix_seconds: at, result, error: error.map(str::to_owned) };
            board.note(&name, last, generation, Duration::from_millis(at));
        };
        assert!(board.last(&name).is_none() && board.looks(&name).is_empty());
        look(1, "ok", None, Some(7));
        look(2, "ok", None, Some(7));
        for at in 3..6 {
            look(at, "unchanged", None, None);
        }
        look(6, "store", Some("refused"), None);
        look(7, "store", Some("reset"), None);
        let seen: Vec<_> = board
            .looks(&name)
            .into_iter()
            .map(|looks| {
                (
                    looks.since_unix_seconds,
                    looks.last.at_unix_seconds,
                    looks.count,
                    looks.generation,
                )
            })
            .collect();
        assert_eq!(
            seen,
            [(6, 7, 2, None), (3, 5, 3, None), (2, 2, 1, Some(7)), (1, 1, 1, Some(7))]
        );
        assert_eq!(board.last(&name).unwrap().error.as_deref(), Some("reset"));
        (100..200).for_each(|at| look(at, "ok", None, Some(at)));
        let looks = board.looks(&name);
        assert_eq!(
            (looks.len(), looks[0].generation, looks[19].generation),
            (KEPT_LOOKS, Some(199), Some(180))
        );
    }
}
